import { highWaterFloor } from "../ledger/load-session.js";
import type { SessionRef, SessionRows } from "../ledger/store-port.js";
import type { LogPoint, Verdict } from "../ledger/verify/verdict.js";
import { verifySession } from "../ledger/verify/verify-session.js";

/** A session to verify. */
export interface SessionTask {
  readonly session: SessionRef;
  readonly checkpoints: readonly LogPoint[];
}

export interface SessionVerdict {
  readonly session: SessionRef;
  /** Absent if the session cannot be found. */
  readonly verdict: Verdict | undefined;
}

/** The rows of a store, and since which restore it is. */
export type GenerationRows = SessionRows & { readonly generation: bigint };

/** One session after the other in this thread. */
export async function* verifyHere(
  rows: GenerationRows,
  tasks: Iterable<SessionTask>,
): AsyncGenerator<SessionVerdict> {
  for (const task of tasks) yield await verifyTask(rows, task);
}

/** Verifies a session that nobody else works on, and that nobody waits for in vain. */
export async function verifyTask(
  rows: GenerationRows,
  { session, checkpoints }: SessionTask,
): Promise<SessionVerdict> {
  const verdict = await verifySession(rows, session, {
    checkpoints,
    generationFloor: highWaterFloor(rows),
    pause: async () => undefined,
    isAborted: () => false,
  });
  return { session, verdict };
}
