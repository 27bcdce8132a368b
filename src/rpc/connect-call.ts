import { fromJsonString, toJsonString, type DescMethod, type Message } from "@bufbuild/protobuf";
import { Code, ConnectError, createContextKey, type HandlerContext } from "@connectrpc/connect";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { repliesWithStream } from "./call.js";
import { bytesOf, carry, jsonKey, type Carried } from "./connect-bytes.js";
import type { StatusName } from "./error-table.js";
import { OpenCall, type CallEnvironment } from "./open-call.js";
import type { ServedMethod } from "./pipeline.js";
import { everyItem, singleItem, type Incoming, type Reply } from "./reply.js";
import type { RuledStream } from "./ruled-stream.js";
import { statusOf } from "./status.js";

/** Carries the address of the caller, which connect-node does not hand on. */
export const peerKey = createContextKey("unknown");

/** Ends what is being written to a caller that takes nothing, which connect-node would wait for. */
export const cutOffKey = createContextKey<() => void>(() => undefined);

type ConnectHandler = (
  request: Carried | AsyncIterable<Carried>,
  context: HandlerContext,
) => Promise<Carried> | AsyncIterable<Carried>;

/**
 * A method as connect-node calls it. The only thing thrown is a refusal in the form that
 * connect-node sends.
 */
export function connectHandler(served: ServedMethod, environment: CallEnvironment): ConnectHandler {
  const { method, run } = served;
  if (repliesWithStream(method)) {
    return (request, context) => {
      const call = new ConnectCall(method, environment, context);
      return messagesOf(call, () => run(call, incoming(request)));
    };
  }
  return (request, context) => {
    const call = new ConnectCall(method, environment, context);
    return messageOf(call, run(call, incoming(request)));
  };
}

function incoming(request: Carried | AsyncIterable<Carried>): Incoming {
  return Symbol.asyncIterator in request ? eachIncoming(request) : bytesOf(request);
}

async function* eachIncoming(requests: AsyncIterable<Carried>): AsyncGenerator<Uint8Array> {
  for await (const request of requests) yield bytesOf(request);
}

async function messageOf(call: ConnectCall, reply: Reply): Promise<Carried> {
  const item = await singleItem(reply);
  call.finish();
  if (isRefusal(item)) throw errorOf(item);
  return carry(call.write(item));
}

/**
 * The call starts with the first item that is asked for: a generator that never started would never
 * end it.
 */
async function* messagesOf(call: ConnectCall, start: () => Reply): AsyncGenerator<Carried> {
  let items: RuledStream | undefined;
  try {
    items = everyItem(start());
    for (;;) {
      const taken = items.take();
      const item = taken instanceof Promise ? await taken : taken;
      if (item === undefined) return;
      if (isRefusal(item)) throw errorOf(item);
      yield carry(call.write(item));
    }
  } finally {
    try {
      await items?.return();
    } finally {
      call.finish();
    }
  }
}

/**
 * Refuses what would else be changed or dropped unseen: bytes that are not UTF-8, and fields and
 * enum values by names that are not known.
 */
const UTF8 = new TextDecoder("utf-8", { fatal: true });
const STRICT = { ignoreUnknownFields: false };

class ConnectCall extends OpenCall {
  readonly #context: HandlerContext;

  constructor(method: DescMethod, environment: CallEnvironment, context: HandlerContext) {
    super(method, environment);
    this.#context = context;
    const { signal } = context;
    if (signal.aborted) {
      this.callerLeft();
    } else {
      signal.addEventListener("abort", () => {
        this.callerLeft();
      });
    }
  }

  get peer(): string {
    return this.#context.values.get(peerKey);
  }

  header(name: string): string | undefined {
    return this.#context.requestHeader.get(name) ?? undefined;
  }

  override decode(bytes: Uint8Array): Message {
    if (!this.#isJson) return super.decode(bytes);
    return fromJsonString(this.method.input, UTF8.decode(bytes), STRICT);
  }

  override cutOff(reason: Refusal): void {
    super.cutOff(reason);
    this.#context.values.get(cutOffKey)();
  }

  /** A message in the form that the caller reads. */
  write(message: Message): Uint8Array {
    if (!this.#isJson) return this.encode(message);
    return Buffer.from(toJsonString(this.method.output, message));
  }

  get #isJson(): boolean {
    return this.#context.values.get(jsonKey);
  }

  protected remainingMs(): number {
    return this.#context.timeoutMs() ?? Infinity;
  }
}

const CODE_OF_STATUS = {
  CANCELLED: Code.Canceled,
  INVALID_ARGUMENT: Code.InvalidArgument,
  DEADLINE_EXCEEDED: Code.DeadlineExceeded,
  NOT_FOUND: Code.NotFound,
  ALREADY_EXISTS: Code.AlreadyExists,
  PERMISSION_DENIED: Code.PermissionDenied,
  RESOURCE_EXHAUSTED: Code.ResourceExhausted,
  FAILED_PRECONDITION: Code.FailedPrecondition,
  UNIMPLEMENTED: Code.Unimplemented,
  INTERNAL: Code.Internal,
  UNAVAILABLE: Code.Unavailable,
  DATA_LOSS: Code.DataLoss,
  UNAUTHENTICATED: Code.Unauthenticated,
} as const satisfies Record<StatusName, Code>;

function errorOf(refusal: Refusal): ConnectError {
  const { name, message, errorInfo } = statusOf(refusal);
  return new ConnectError(message, CODE_OF_STATUS[name], undefined, [
    { desc: ErrorInfoSchema, value: errorInfo },
  ]);
}
