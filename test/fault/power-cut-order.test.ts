import { expect, test } from "vitest";
import { scaled } from "../support/scale.js";
import { withRecordedRun, type RecordedRun } from "./power-cut-run.js";
import { recordResult } from "./results.js";
import { canRun, faultTimeoutMs, STRACE } from "./strace-tools.js";

const APPENDS = 500;
const TIMEOUT_MS = faultTimeoutMs();

/** How many appends were synced before their reply began to be sent. */
function syncedBeforeReply(run: RecordedRun, appends: number): number {
  const { operations, timed, database } = run;
  const log = operations.map((operation) =>
    "path" in operation && operation.path.endsWith(`/${database}-wal`) ? operation : undefined,
  );
  const synced = timed.map(({ command, operationsBefore }) => {
    const before = log.slice(0, operationsBefore);
    // Nobody else writes: up to the reply, the last writes are this command's.
    const last = before.findLastIndex((operation) => operation?.kind === "write");
    const isWritten = before.some(
      (operation) => operation?.kind === "write" && operation.data.includes(command.requestId),
    );
    return isWritten && before.some((one) => one?.kind === "sync" && one.covers > last);
  });
  // The session and the run come first.
  return synced.slice(-appends).filter(Boolean).length;
}

function countSynced(appends: number, preload?: string): Promise<number> {
  const planted = preload === undefined ? {} : { preload };
  const work = {
    ...{ writers: 1, bodyBytes: 0, ...planted },
    write: async (writer: { begin(): Promise<void>; append(commands: number): Promise<void> }) => {
      await writer.begin();
      await writer.append(appends);
    },
  };
  return withRecordedRun(work, (run) => syncedBeforeReply(run, appends));
}

if (canRun("order of sync and reply", [STRACE])) {
  test(
    "a command is synced before its reply begins to be sent",
    async () => {
      const appends = scaled(APPENDS);
      const normal = await countSynced(appends, "preload-normal-sync.mjs");
      expect(normal).toBeLessThan(appends);
      const synced = await countSynced(appends);
      recordResult({
        ...{ promise: 2, part: "sync before reply", counted: "appends", count: appends },
        ...{ wanted: APPENDS, violations: appends - synced },
        planted: [{ name: "synchronous=NORMAL", caught: appends - normal }],
      });
      expect(synced).toBe(appends);
    },
    TIMEOUT_MS,
  );
}
