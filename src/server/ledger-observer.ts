import type { LedgerObserver } from "../ledger/ledger.js";
import type { CommitResult } from "../ledger/store-port.js";
import { traceOf } from "../rpc/fault-trace.js";
import type { Log } from "../rpc/log.js";
import { StoreFilesGoneError } from "../store/sqlite/file-guard.js";
import type { CommitOutcome } from "./metrics.js";

type CommitFault = Exclude<CommitResult, { outcome: "committed" }>;

export interface ObserverOptions {
  readonly log: Log;
  readonly countCommit: (outcome: CommitOutcome) => void;
  /** The store takes no more commits, and the process must stop without closing it. */
  readonly onStoreFailed: () => void;
}

/** Tells an operator how the store fares: each change once, however many commits it concerns. */
export function observeLedger({
  log,
  countCommit,
  onStoreFailed,
}: ObserverOptions): LedgerObserver {
  let lastOutcome: CommitOutcome = "committed";
  const changesTo = (outcome: CommitOutcome): boolean => {
    countCommit(outcome);
    const changes = outcome !== lastOutcome;
    lastOutcome = outcome;
    return changes;
  };
  return {
    sessionDamaged: ({ sessionId, warning, cause }) => {
      log.warn("a stored session is damaged", { sessionId, warning, cause });
    },
    committed: () => {
      if (changesTo("committed")) log.info("commits succeed again");
    },
    commitFailed: (fault) => {
      const outcome = outcomeOf(fault);
      if (!changesTo(outcome)) return;
      log.error(TEXTS[outcome], { outcome, ...causeOf(fault.cause), fault: traceOf(fault.cause) });
      if (outcome === "lost") onStoreFailed();
    },
  };
}

const TEXTS: Readonly<Record<Exclude<CommitOutcome, "committed">, string>> = {
  command_failed: "a command failed in the database",
  full: "a commit failed: the store is full",
  busy: "a commit failed: another process holds the database",
  damaged: "a commit failed: the database is damaged and takes no more commands",
  lost: "a commit failed and may be lost: the server stops",
  other: "a commit failed",
};

function outcomeOf(fault: CommitFault): Exclude<CommitOutcome, "committed"> {
  return fault.outcome === "failed" ? fault.reason : "command_failed";
}

/** The one cause whose text is this program's own. */
function causeOf(fault: Error): { readonly cause?: string } {
  return fault instanceof StoreFilesGoneError ? { cause: fault.message } : {};
}
