import { fromBinary, toBinary, type DescMethod, type Message } from "@bufbuild/protobuf";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { InvariantError } from "../domain/invariant.js";
import type { Principal } from "../domain/principal.js";
import { refuse, type Refusal } from "../domain/refusal.js";
import type { UnverifiedCaller } from "./authenticate.js";
import { repliesWithStream, type CallContext } from "./call.js";
import { streamedBytes } from "./streamed-bytes.js";

/** What calls need from outside: clock, randomness and the server's state. */
export interface CallEnvironment {
  /** Milliseconds since the epoch. */
  nowMs(): number;
  /** Milliseconds of a clock that never jumps. */
  monotonicMs(): number;
  mintCorrelationId(): string;
  readonly draining: AbortSignal;
}

/** A timer, or that of the caller, may fire a moment before our clock says so. */
const DEADLINE_TOLERANCE_MS = 10;

const CALLER_GONE = refuse(ErrorReason.CALLER_GONE, "the caller went away");
const DEADLINE_PASSED = refuse(ErrorReason.DEADLINE_PASSED, "the deadline passed");

/**
 * A call in progress. Handlers see it as CallContext; middleware and adapters fill it in. A class
 * with getters, so that a call pays only for what is asked for.
 */
export abstract class OpenCall implements CallContext, UnverifiedCaller {
  readonly startedMs: number;
  /** The request once decoded, for the log. */
  request: Message | undefined;
  #principal: Principal | undefined;
  #aborted: Refusal | undefined;
  #controller: AbortController | undefined;
  #whenAborted: Set<{ readonly call: () => void }> | undefined;
  #correlationId: string | undefined;
  #finished = false;
  #encodedMessage: Message | undefined;
  #encodedBytes: Uint8Array | undefined;

  constructor(
    readonly method: DescMethod,
    protected readonly environment: CallEnvironment,
  ) {
    this.startedMs = environment.monotonicMs();
  }

  abstract readonly peer: string;
  abstract header(name: string): string | undefined;
  /** Time to the deadline, Infinity without one. */
  protected abstract remainingMs(): number;

  get principal(): Principal {
    if (this.#principal === undefined) throw new InvariantError("a call was used before identity");
    return this.#principal;
  }

  /** The verified caller, or undefined if the call was refused before it was verified. */
  get identified(): Principal | undefined {
    return this.#principal;
  }

  identify(principal: Principal): void {
    this.#principal = principal;
  }

  get correlationId(): string {
    return (this.#correlationId ??= this.environment.mintCorrelationId());
  }

  get draining(): AbortSignal {
    return this.environment.draining;
  }

  get aborted(): Refusal | undefined {
    return this.#aborted;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#aborted !== undefined) this.#controller.abort(this.#aborted);
    }
    return this.#controller.signal;
  }

  /** Cuts the call off. The first reason holds; after the reply nothing can be cut off. */
  abort(reason: Refusal): void {
    if (this.#finished || this.#aborted !== undefined) return;
    this.#aborted = reason;
    this.#controller?.abort(reason);
    for (const { call } of [...(this.#whenAborted ?? [])]) call();
  }

  whenAborted(call: () => void): () => void {
    const waiter = { call };
    this.#whenAborted ??= new Set();
    this.#whenAborted.add(waiter);
    return () => void this.#whenAborted?.delete(waiter);
  }

  cutOff(reason: Refusal): void {
    this.abort(reason);
  }

  /**
   * The caller no longer waits. One whose deadline passed often hangs up before the server notices
   * the time.
   */
  callerLeft(): void {
    const late = this.remainingMs() <= DEADLINE_TOLERANCE_MS;
    this.abort(late ? DEADLINE_PASSED : CALLER_GONE);
  }

  /**
   * The reply is decided: transports report every end as a disconnect, which is none of the call's
   * any more.
   */
  finish(): void {
    this.#finished = true;
  }

  /** Decodes a request. Throws an Error if it is none. */
  decode(bytes: Uint8Array): Message {
    return fromBinary(this.method.input, bytes);
  }

  /**
   * Encodes a reply. The size check and the adapter ask for the same bytes, so the last ones are
   * kept; those of a stream with the message, which other calls may be sent as well.
   */
  encode(message: Message): Uint8Array {
    if (repliesWithStream(this.method)) return streamedBytes(this.method.output, message);
    if (this.#encodedBytes === undefined || this.#encodedMessage !== message) {
      this.#encodedBytes = toBinary(this.method.output, message);
      this.#encodedMessage = message;
    }
    return this.#encodedBytes;
  }
}
