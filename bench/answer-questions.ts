import { setImmediate } from "node:timers/promises";

/** Memory of a process, after everything was collected that can be. */
export interface Memory {
  readonly heapBytes: number;
  /** Outside the heap, but held by objects on it. */
  readonly externalBytes: number;
  readonly residentBytes: number;
}

const COLLECTIONS = 4;

/** Answers what the parent process asks, and always "memory". The process needs --expose-gc. */
export function answerQuestions(answers: Readonly<Record<string, () => unknown>>): void {
  process.on("message", (question: string) => {
    const answer = question === "memory" ? memory : answers[question];
    if (answer === undefined) throw new Error(`${question} is no question`);
    void reply(answer);
  });
}

async function reply(answer: () => unknown): Promise<void> {
  process.send?.(await answer());
}

async function memory(): Promise<Memory> {
  const { gc } = globalThis;
  if (gc === undefined) throw new Error("the process was started without --expose-gc");
  for (let count = 0; count < COLLECTIONS; count += 1) {
    gc();
    // What is finalized in between frees more.
    await setImmediate();
  }
  const { heapUsed, external, rss } = process.memoryUsage();
  return { heapBytes: heapUsed, externalBytes: external, residentBytes: rss };
}

/** Milliseconds of the clock that every process of the machine shares. */
export function machineMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
