import type { CommitFailure, CommitResult } from "../../ledger/store-port.js";
import { sqliteCode } from "./sqlite-database.js";

/** Whatever is not "committed". */
export type CommitFault = Exclude<CommitResult, { outcome: "committed" }>;
export type FailedCommit = Extract<CommitResult, { outcome: "failed" }>;

/**
 * What a commit that threw comes to. `index` is that of the write being written, absent while the transaction as a
 * whole began or ended. `hasRoom` tells a failed write from a file that may not grow.
 */
export function commitFailure(
  cause: Error,
  index: number | undefined,
  hasRoom: () => boolean,
): CommitFault {
  const code = sqliteCode(cause);
  if (index !== undefined && isRefusal(code)) return { outcome: "command_failed", index, cause };
  return { outcome: "failed", reason: failureReason(code ?? "", hasRoom), cause };
}

/**
 * Whether no commit may follow. Pages whose sync failed count as written although they are not: what is committed after
 * them would be lost with them. Writing on into a damaged file can overwrite what is sound.
 */
export function isFinal({ reason }: FailedCommit): boolean {
  return reason === "lost" || reason === "damaged";
}

/** Without a code it is the writer's own refusal, or a value that cannot be bound. */
function isRefusal(code: string | undefined): boolean {
  return code === undefined || /^SQLITE_(CONSTRAINT|MISMATCH|TOOBIG|RANGE)(_|$)/.test(code);
}

function failureReason(code: string, hasRoom: () => boolean): CommitFailure {
  if (code === "SQLITE_FULL") return "full";
  if (/^SQLITE_(BUSY|LOCKED)(_|$)/.test(code)) return "busy";
  if (/^SQLITE_(CORRUPT|NOTADB)(_|$)/.test(code)) return "damaged";
  if (code === "SQLITE_IOERR_WRITE") return hasRoom() ? "lost" : "full";
  return /^SQLITE_IOERR(_|$)/.test(code) ? "lost" : "other";
}
