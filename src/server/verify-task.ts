import { highWaterFloor } from "../ledger/load-session.js";
import { StoreFault, type SessionRef, type SessionRows } from "../ledger/store-port.js";
import type { LogPoint, Verdict } from "../ledger/verify/verdict.js";
import { verifySession } from "../ledger/verify/verify-session.js";
import type { FileReader } from "../store/sqlite/file-reader.js";

const LIST_ROWS = 1000;

/** A point of a session's log that somebody kept. */
export interface KeptCheckpoint extends LogPoint {
  readonly sessionId: string;
}

/** Which sessions of a file are to be verified. */
export interface VerifyTask {
  /** The store's database, or a backup of it. */
  readonly path: string;
  /** Only sessions of this id. Absent: all. */
  readonly sessionId?: string | undefined;
  /** Only sessions of this tenant. Absent: all. */
  readonly tenant?: string | undefined;
  readonly checkpoints: readonly KeptCheckpoint[];
  /** Look at the logs alone: commitments, chains, heads and checkpoints. */
  readonly logOnly: boolean;
  /** The sessions are dealt out to so many parts, and this is one of them. */
  readonly part: { readonly index: number; readonly of: number };
}

export interface SessionVerdict {
  readonly session: SessionRef;
  /** Absent if the session is listed, but cannot be found. */
  readonly verdict: Verdict | undefined;
}

/** Sessions that are being verified. */
export interface Verifying {
  /** One for each session, in any order. Rejects with StoreFault. */
  readonly verdicts: AsyncIterable<SessionVerdict>;
  /** To be called at the end, whatever it is. */
  stop(): Promise<void>;
}

/** Begins to verify sessions at once. */
export type VerifySessions = (reader: FileReader, task: Omit<VerifyTask, "part">) => Verifying;

/** One session after the other in this thread. */
export const verifyHere: VerifySessions = (reader, task) => ({
  verdicts: verifyPart(reader, { ...task, part: { index: 0, of: 1 } }),
  stop: () => Promise.resolve(),
});

/** Verdicts of the sessions of one part. */
export async function* verifyPart(
  reader: FileReader,
  task: VerifyTask,
): AsyncGenerator<SessionVerdict> {
  for (const session of wantedSessions(reader, task)) {
    const verdict = await verifyAlone(reader, session, task);
    yield { session, verdict };
  }
}

function* wantedSessions(reader: FileReader, task: VerifyTask): Generator<SessionRef> {
  let after = 0;
  for (;;) {
    const page = reader.listAllSessions(after, LIST_ROWS);
    if (page.length === 0) return;
    for (const { key, tenant, sessionId } of page) {
      // A damaged index may lead in circles.
      if (key <= after) throw outOfOrder();
      after = key;
      if (isWanted({ tenant, sessionId }, key, task)) yield { tenant, sessionId };
    }
  }
}

function isWanted(session: SessionRef, key: number, { part, ...task }: VerifyTask): boolean {
  const { sessionId = session.sessionId, tenant = session.tenant } = task;
  if (session.sessionId !== sessionId || session.tenant !== tenant) return false;
  return key % part.of === part.index;
}

/** Nobody else works on the file, and nobody waits in vain. */
function verifyAlone(
  rows: SessionRows & Pick<FileReader, "generation">,
  session: SessionRef,
  { checkpoints: kept, logOnly }: Pick<VerifyTask, "checkpoints" | "logOnly">,
): Promise<Verdict | undefined> {
  return verifySession(rows, session, {
    checkpoints: kept.filter(({ sessionId }) => sessionId === session.sessionId),
    generationFloor: highWaterFloor(rows),
    logOnly,
    pause: async () => undefined,
    isAborted: () => false,
  });
}

function outOfOrder(): StoreFault {
  return new StoreFault("damaged", new Error("sessions are listed out of order"));
}
