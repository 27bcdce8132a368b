import { once } from "node:events";
import { statSync } from "node:fs";
import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";
import { StoreFault } from "../ledger/store-port.js";
import type { SessionVerdict, VerifySessions, VerifyTask } from "./verify-task.js";

/** What a thread says. */
export type ThreadAnswer =
  | { readonly kind: "verdicts"; readonly verdicts: readonly SessionVerdict[] }
  | { readonly kind: "done" }
  | { readonly kind: "fault"; readonly reason: StoreFault["reason"]; readonly message: string };

const SMALL_FILE_BYTES = 8 * 1024 * 1024;

/** How many threads are worth their start for a file. */
export function threadsFor(path: string): number {
  const { size = 0 } = statSync(path, { throwIfNoEntry: false }) ?? {};
  return size < SMALL_FILE_BYTES ? 1 : availableParallelism();
}

/** Deals the sessions out to threads, each with a connection of its own. */
export function verifyInThreads(threads: number): VerifySessions {
  return (_reader, task) => {
    const parts = Array.from({ length: threads }, (_, index) => ({ index, of: threads }));
    const running = parts.map((part) => new Thread({ ...task, part }));
    return {
      verdicts: merged(running),
      stop: async () => {
        await Promise.all(running.map((thread) => thread.terminate()));
      },
    };
  };
}

/** Answers are kept as they come, so that none is lost while this thread is busy. */
class Thread {
  readonly #worker: Worker;
  readonly #answers: ThreadAnswer[] = [];
  #fault: Error | undefined;

  constructor(workerData: VerifyTask) {
    this.#worker = new Worker(new URL("./verify-thread.js", import.meta.url), { workerData });
    this.#worker.on("message", (answer: ThreadAnswer) => {
      this.#answers.push(answer);
    });
    this.#worker.on("error", (fault: unknown) => {
      this.#fault = fault instanceof Error ? fault : new Error(String(fault));
    });
  }

  async *verdicts(): AsyncGenerator<SessionVerdict> {
    for (;;) {
      const answer = this.#answers.shift() ?? (await this.#next());
      if (answer.kind === "done") return;
      if (answer.kind === "fault") throw new StoreFault(answer.reason, new Error(answer.message));
      yield* answer.verdicts;
    }
  }

  async terminate(): Promise<void> {
    await this.#worker.terminate();
  }

  async #next(): Promise<ThreadAnswer> {
    if (this.#fault !== undefined) throw this.#fault;
    await once(this.#worker, "message");
    const answer = this.#answers.shift();
    if (answer === undefined) throw new Error("a thread ended without its answer");
    return answer;
  }
}

/** One thread after the other: each goes on meanwhile. */
async function* merged(threads: readonly Thread[]): AsyncGenerator<SessionVerdict> {
  for (const thread of threads) yield* thread.verdicts();
}
