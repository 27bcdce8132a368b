import { join } from "node:path";
import { backupStore, type BackupReport } from "../../src/server/backup-store.js";
import {
  restoreStore,
  type RestoreOptions,
  type RestoreReport,
} from "../../src/server/restore-store.js";
import { commandFaultOf, type CommandFault } from "../../src/server/command-fault.js";
import { copyStore } from "../../src/store/sqlite/copy.js";
import { runProcess, type ProcessResult } from "./run-process.js";
import { ROOT } from "./source-tree.js";

const CLI = join(ROOT, "dist/bin/toolmark.js");

/** Runs the built command to its end. */
export function toolmark(...args: readonly string[]): Promise<ProcessResult> {
  return runProcess(process.execPath, [CLI, ...args]);
}

/** Copies in this thread: the sources have none of its own. */
export const copyHere: NonNullable<RestoreOptions["copy"]> = async (task) => {
  copyStore(task);
};

/** As `toolmark backup`, in this process. */
export function backUp(path: string, to: string): Promise<BackupReport> {
  return backupStore({ path, to, verify: true, copy: copyHere });
}

/** As `toolmark restore`, in this process. */
export function restore(
  path: string,
  from: string,
  options: Partial<RestoreOptions> = {},
): Promise<RestoreReport> {
  return restoreStore({ path, from, discard: false, copy: copyHere, ...options });
}

/** How the command would end if what it does is refused like this. */
export async function commandFault(refused: Promise<unknown>): Promise<CommandFault> {
  return refused.then(
    () => {
      throw new Error("it was not refused");
    },
    (thrown: unknown) => commandFaultOf(thrown),
  );
}
