import type {
  DescMessage,
  DescMethod,
  DescMethodBiDiStreaming,
  DescMethodClientStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  Message,
  MessageShape,
} from "@bufbuild/protobuf";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import type { Principal } from "../domain/principal.js";
import { refuse, type Refusal } from "../domain/refusal.js";

/**
 * What a handler knows of its call besides the request. The same on every listener and protocol.
 */
export interface CallContext {
  readonly method: DescMethod;
  /** The verified caller. */
  readonly principal: Principal;
  /**
   * Aborted when the caller no longer waits; its reason is the refusal to answer with: CALLER_GONE,
   * DEADLINE_PASSED or, for what is cut off by a shutdown, DRAINING. Made on first use: a call that
   * never asks for it pays nothing.
   */
  readonly signal: AbortSignal;
  /** The reason of `signal`, if it is aborted. A cheap look that makes no signal. */
  readonly aborted: Refusal | undefined;
  /** Calls back when the call is aborted, unless it is already. Costs less than `signal`. Returns how to stop. */
  whenAborted(call: () => void): () => void;
  /**
   * Aborted when the server begins to drain. A call that merely waits for something to happen
   * should answer now.
   */
  readonly draining: AbortSignal;
  /**
   * Ends the call with the refusal as its last item, also while its caller takes nothing of what it
   * is sent.
   */
  cutOff(reason: Refusal): void;
  /** Names this call in the log. Made on first use. */
  readonly correlationId: string;
}

export type UnaryHandler<I extends DescMessage, O extends DescMessage> = (
  context: CallContext,
  request: MessageShape<I>,
) => Promise<MessageShape<O> | Refusal>;

/** A refusal is the last item of the stream. */
export type ServerStreamHandler<I extends DescMessage, O extends DescMessage> = (
  context: CallContext,
  request: MessageShape<I>,
) => AsyncIterable<MessageShape<O> | Refusal>;

/** The requests throw when the caller goes away or sends what cannot be decoded: let it pass. */
export type ClientStreamHandler<I extends DescMessage, O extends DescMessage> = (
  context: CallContext,
  requests: AsyncIterable<MessageShape<I>>,
) => Promise<MessageShape<O> | Refusal>;

export type BidiStreamHandler<I extends DescMessage, O extends DescMessage> = (
  context: CallContext,
  requests: AsyncIterable<MessageShape<I>>,
) => AsyncIterable<MessageShape<O> | Refusal>;

export type HandlerOf<M> =
  M extends DescMethodUnary<infer I, infer O>
    ? UnaryHandler<I, O>
    : M extends DescMethodServerStreaming<infer I, infer O>
      ? ServerStreamHandler<I, O>
      : M extends DescMethodClientStreaming<infer I, infer O>
        ? ClientStreamHandler<I, O>
        : M extends DescMethodBiDiStreaming<infer I, infer O>
          ? BidiStreamHandler<I, O>
          : never;

/**
 * Handlers of a service by the local names of its methods. A method without one answers
 * UNIMPLEMENTED.
 */
export type Implementation<S extends DescService> = {
  readonly [Name in keyof S["method"]]?: HandlerOf<S["method"][Name]>;
};

/** A message of a reply, or the refusal that ends it. */
export type Item = Message | Refusal;

/** A method and its handler with the message types erased. */
export interface BoundMethod {
  readonly method: DescMethod;
  /**
   * `Service.Method` with the package: how the method is named in policies, logs and GetServerInfo.
   */
  readonly name: string;
  /** False if there is no handler, so that the answer is always UNIMPLEMENTED. */
  readonly implemented: boolean;
  readonly handle: (
    context: CallContext,
    request: Message | AsyncIterable<Message>,
  ) => Promise<Item> | AsyncIterable<Item>;
}

export interface BoundService {
  readonly desc: DescService;
  readonly methods: readonly BoundMethod[];
}

export type Binding = readonly BoundService[];

/** Whether the replies of a method are a stream. */
export function repliesWithStream(method: DescMethod): boolean {
  return method.methodKind === "server_streaming" || method.methodKind === "bidi_streaming";
}

/** Whether the requests of a method are a stream. */
export function takesStream(method: DescMethod): boolean {
  return method.methodKind === "client_streaming" || method.methodKind === "bidi_streaming";
}

/**
 * The name of a method in policies, logs and GetServerInfo, for example
 * `toolmark.v1.InfoService.GetServerInfo`.
 */
export function methodName(method: DescMethod): string {
  return `${method.parent.typeName}.${method.name}`;
}

export function bindService<S extends DescService>(
  desc: S,
  implementation: Implementation<S>,
): BoundService {
  // The one place where message types are erased; a descriptor and its handlers were matched by the
  // type above.
  const handlers = implementation as Readonly<Record<string, BoundMethod["handle"] | undefined>>;
  const methods = desc.methods.map((method): BoundMethod => {
    const handler = handlers[method.localName];
    return {
      method,
      name: methodName(method),
      implemented: handler !== undefined,
      handle: handler ?? unimplemented(method),
    };
  });
  return { desc, methods };
}

function unimplemented(method: DescMethod): BoundMethod["handle"] {
  const feature = methodName(method);
  const refusal = refuse(ErrorReason.UNIMPLEMENTED, `${feature} is not offered by this server`, {
    feature,
  });
  if (!repliesWithStream(method)) return () => Promise.resolve(refusal);
  return async function* refuseStream() {
    yield await Promise.resolve(refusal);
  };
}
