import { parentPort, workerData } from "node:worker_threads";
import { copyStore, type CopyFault, type CopyTask } from "./copy.js";
import { StoreOpenError } from "./store-open-error.js";

// The whole of a thread that copies a store and says how it went.
parentPort?.postMessage(copied(workerData as CopyTask));

function copied(task: CopyTask): CopyFault | undefined {
  try {
    copyStore(task);
    return undefined;
  } catch (error) {
    if (!(error instanceof StoreOpenError)) throw error;
    const { reason, message, details } = error;
    return { reason, message, details };
  }
}
