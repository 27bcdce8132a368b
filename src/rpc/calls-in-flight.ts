import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { refuse, type Refusal } from "../domain/refusal.js";
import { repliesWithStream } from "./call.js";
import type { OpenCall } from "./open-call.js";

const DRAINING = refuse(ErrorReason.DRAINING, "the server is shutting down");

/**
 * Counts the calls of all listeners, so that a shutdown can refuse new ones, wait for some and cut
 * the rest off.
 */
export class CallsInFlight {
  readonly #calls = new Set<OpenCall>();
  readonly #streams = new Set<OpenCall>();
  readonly #controller = new AbortController();
  #waiting: { readonly calls: ReadonlySet<OpenCall>; readonly resolve: () => void }[] = [];

  /** Aborted once draining begins. */
  readonly draining: AbortSignal = this.#controller.signal;

  get size(): number {
    return this.#calls.size + this.#streams.size;
  }

  /** Takes a call in, or refuses it once draining has begun. */
  enter(call: OpenCall): Refusal | undefined {
    if (this.draining.aborted) return DRAINING;
    this.#setOf(call).add(call);
    return undefined;
  }

  leave(call: OpenCall): void {
    this.#setOf(call).delete(call);
    if (this.#waiting.length === 0) return;
    const done = this.#waiting.filter(({ calls }) => calls.size === 0);
    this.#waiting = this.#waiting.filter(({ calls }) => calls.size > 0);
    for (const { resolve } of done) resolve();
  }

  startDraining(): void {
    this.#controller.abort(DRAINING);
  }

  /**
   * Resolves when every call with a single reply has it. Streams may go on for ever and are not
   * waited for.
   */
  async untilAnswered(): Promise<void> {
    await this.#untilEmpty(this.#calls);
  }

  async untilStreamsEnded(): Promise<void> {
    await this.#untilEmpty(this.#streams);
  }

  /** Ends what is still open, streams with their next item, with DRAINING. */
  cutOff(): void {
    for (const call of [...this.#calls, ...this.#streams]) call.abort(DRAINING);
  }

  #setOf(call: OpenCall): Set<OpenCall> {
    return repliesWithStream(call.method) ? this.#streams : this.#calls;
  }

  async #untilEmpty(calls: ReadonlySet<OpenCall>): Promise<void> {
    if (calls.size === 0) return;
    await new Promise<void>((resolve) => {
      this.#waiting.push({ calls, resolve });
    });
  }
}
