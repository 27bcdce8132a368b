import { parentPort, workerData } from "node:worker_threads";
import { StoreFault } from "../ledger/store-port.js";
import { openUnlockedFileReader } from "../store/sqlite/file-reader.js";
import type { ThreadAnswer } from "./verify-threads.js";
import { verifyPart, type SessionVerdict, type VerifyTask } from "./verify-task.js";

/** A thread of `toolmark verify`: verdicts of one part of the sessions, by a connection of its own. */

const BATCH = 32;
const task = workerData as VerifyTask;

function answer(message: ThreadAnswer): void {
  parentPort?.postMessage(message);
}

async function verify(): Promise<void> {
  const reader = openUnlockedFileReader(task.path);
  try {
    let batch: SessionVerdict[] = [];
    for await (const verdict of verifyPart(reader, task)) {
      batch.push(verdict);
      if (batch.length < BATCH) continue;
      answer({ kind: "verdicts", verdicts: batch });
      batch = [];
    }
    answer({ kind: "verdicts", verdicts: batch });
  } finally {
    reader.close();
  }
}

try {
  await verify();
  answer({ kind: "done" });
} catch (error) {
  if (!(error instanceof StoreFault)) throw error;
  const { reason, message } = error;
  answer({ kind: "fault", reason, message });
}
