import type { Readable } from "node:stream";
import type { DescMethod, Message } from "@bufbuild/protobuf";
import {
  Metadata,
  status as grpcStatus,
  type Server,
  type ServerDuplexStream,
  type ServerReadableStream,
  type ServerUnaryCall,
  type ServerWritableStream,
  type ServiceDefinition,
  type StatusObject,
  type UntypedHandleCall,
  type sendUnaryData,
} from "@grpc/grpc-js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { repliesWithStream, takesStream } from "./call.js";
import { OpenCall, type CallEnvironment } from "./open-call.js";
import type { Pipeline, ServedMethod } from "./pipeline.js";
import {
  everyItem,
  sendEvery,
  singleItem,
  type Incoming,
  type Reply,
  type ReplySink,
} from "./reply.js";
import { statusDetailsOf, statusOf } from "./status.js";

const STATUS_DETAILS_TRAILER = "grpc-status-details-bin";

type AnyServerCall =
  | ServerUnaryCall<Buffer, Buffer>
  | ServerReadableStream<Buffer, Buffer>
  | ServerWritableStream<Buffer, Buffer>
  | ServerDuplexStream<Buffer, Buffer>;
type WritingCall = ServerWritableStream<Buffer, Buffer> | ServerDuplexStream<Buffer, Buffer>;

/** Serves every method over native gRPC. Messages cross this border as bytes in both directions. */
export function addToGrpcServer(server: Server, pipeline: Pipeline): void {
  for (const { desc, methods } of pipeline.services) {
    const definition: Record<string, ServiceDefinition[string]> = {};
    const handlers: Record<string, UntypedHandleCall> = {};
    for (const served of methods) {
      const { method } = served;
      definition[method.name] = {
        path: `/${desc.typeName}/${method.name}`,
        requestStream: takesStream(method),
        responseStream: repliesWithStream(method),
        requestSerialize: passOn,
        requestDeserialize: passOn,
        responseSerialize: passOn,
        responseDeserialize: passOn,
      };
      handlers[method.name] = handlerOf(served, pipeline.environment);
    }
    server.addService(definition, handlers);
  }
}

function passOn(bytes: Buffer): Buffer {
  return bytes;
}

function handlerOf(served: ServedMethod, environment: CallEnvironment): UntypedHandleCall {
  if (repliesWithStream(served.method)) {
    return (call: WritingCall) => {
      const open = new GrpcCall(served.method, environment, call);
      const reply = served.run(open, requestOf(call));
      void sendEvery(everyItem(reply), new GrpcSink(open, call));
    };
  }
  return (
    call: ServerUnaryCall<Buffer, Buffer> | ServerReadableStream<Buffer, Buffer>,
    callback: sendUnaryData<Buffer>,
  ) => {
    const open = new GrpcCall(served.method, environment, call);
    const reply = served.run(open, requestOf(call));
    void sendOne(open, callback, reply);
  };
}

function requestOf(call: AnyServerCall): Incoming {
  return "request" in call ? call.request : requestsOf(call);
}

/** Leaving the requests early must not destroy the call, whose reply is still to be sent. */
function requestsOf(call: Readable): AsyncIterable<Buffer> {
  return call.iterator({ destroyOnReturn: false });
}

/** What every kind of call of grpc-js offers. */
interface CommonCall {
  readonly metadata: Metadata;
  getPeer(): string;
  getDeadline(): Date | number;
  on(event: "cancelled", listener: () => void): unknown;
}

class GrpcCall extends OpenCall {
  readonly #call: CommonCall;

  constructor(method: DescMethod, environment: CallEnvironment, call: CommonCall) {
    super(method, environment);
    this.#call = call;
    call.on("cancelled", () => {
      this.callerLeft();
    });
  }

  get peer(): string {
    return this.#call.getPeer();
  }

  header(name: string): string | undefined {
    return this.#call.metadata.get(name)[0]?.toString();
  }

  protected remainingMs(): number {
    return Number(this.#call.getDeadline()) - this.environment.nowMs();
  }
}

async function sendOne(
  open: OpenCall,
  callback: sendUnaryData<Buffer>,
  reply: Reply,
): Promise<void> {
  const item = await singleItem(reply);
  open.finish();
  if (isRefusal(item)) callback(grpcStatusOf(item));
  else callback(null, asBuffer(open.encode(item)));
}

/** Where the items of a stream go. */
class GrpcSink implements ReplySink {
  readonly #open: OpenCall;
  readonly #call: WritingCall;

  constructor(open: OpenCall, call: WritingCall) {
    this.#open = open;
    this.#call = call;
  }

  send(message: Message): Promise<void> | undefined {
    const flushed = this.#call.write(asBuffer(this.#open.encode(message)));
    return flushed ? undefined : drained(this.#call, this.#open.signal);
  }

  refuse(refusal: Refusal): void {
    this.#open.finish();
    const fault = Object.assign(new Error(refusal.message), grpcStatusOf(refusal));
    this.#call.emit("error", fault);
  }

  end(): void {
    this.#open.finish();
    this.#call.end();
  }
}

/**
 * Waits until more can be written, but not for a caller that went away: grpc-js then never says
 * "drain".
 */
function drained(call: WritingCall, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const wake = (): void => {
      call.off("drain", wake);
      signal.removeEventListener("abort", wake);
      resolve();
    };
    call.on("drain", wake);
    signal.addEventListener("abort", wake);
  });
}

function grpcStatusOf(refusal: Refusal): StatusObject {
  const status = statusOf(refusal);
  const metadata = new Metadata();
  metadata.set(STATUS_DETAILS_TRAILER, asBuffer(statusDetailsOf(status)));
  return { code: grpcStatus[status.name], details: status.message, metadata };
}

/** The same memory as a Buffer, which grpc-js wants. */
function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
