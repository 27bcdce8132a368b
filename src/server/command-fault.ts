import { StoreOpenError } from "../store/sqlite/store-open-error.js";
import { BackupTargetError } from "./backup-store.js";
import { EXIT_CODE, type ExitCode } from "./exit-code.js";
import { MigrationTargetError } from "./migrate-store.js";

/** How a command that works on a store's files ends, and what it says. */
export interface CommandFault {
  readonly exitCode: ExitCode;
  readonly text: string;
}

/** What a command that threw tells whoever called it. */
export function commandFaultOf(thrown: unknown): CommandFault {
  if (!(thrown instanceof Error)) return { exitCode: EXIT_CODE.internal, text: String(thrown) };
  const { name, message } = thrown;
  if (thrown instanceof BackupTargetError || thrown instanceof MigrationTargetError) {
    return { exitCode: EXIT_CODE.configuration, text: message };
  }
  if (thrown instanceof StoreOpenError) return { exitCode: exitCodeOf(thrown), text: message };
  // The file system's.
  if ("syscall" in thrown) return { exitCode: EXIT_CODE.storeUnusable, text: message };
  return { exitCode: EXIT_CODE.internal, text: `${name}: ${message}` };
}

function exitCodeOf({ reason }: StoreOpenError): ExitCode {
  if (reason === "locked") return EXIT_CODE.storeLocked;
  if (reason === "path_invalid") return EXIT_CODE.configuration;
  return reason === "unreadable" ? EXIT_CODE.damaged : EXIT_CODE.storeUnusable;
}
