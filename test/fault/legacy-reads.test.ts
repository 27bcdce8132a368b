import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import BetterSqlite from "better-sqlite3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { oldSnapshot } from "../support/old-session.js";
import type { Clients } from "../support/service.js";
import { readTrace, traceArguments, type Operation } from "./strace-log.js";
import { startListening, type FaultyServer } from "./strace-server.js";
import { canRun, faultTimeoutMs, STRACE } from "./strace-tools.js";

const SESSIONS = ["old-1", "old-2", "old-3"];

let folder: string;
let database: string;
let server: FaultyServer;

describe("a mounted folder", () => {
  if (!canRun("reading mounted sessions", [STRACE])) return;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "legacy-reads-"));
    await mkdir(join(folder, "store"));
    await mkdir(join(folder, "old"));
    database = join(folder, "store", "toolmark.db");
    for (const id of SESSIONS) {
      const file = join(folder, "old", `${id}.session.json`);
      await writeFile(file, JSON.stringify(oldSnapshot(id)));
    }
    server = await startListening({
      ...{ folder, path: database },
      strace: traceArguments(join(folder, "trace")),
      flags: ["--legacy-dir", join(folder, "old")],
    });
  });

  afterAll(async () => {
    await server.end("SIGKILL");
    await rm(folder, { recursive: true });
  });

  test(
    "is read without one write to the database, its log, or the folder; the first command writes",
    async () => {
      const clients = server.clients();
      await clients.info.getServerInfo({});
      const watching = new BetterSqlite(database, { readonly: true });
      const version = (): unknown => watching.pragma("data_version", { simple: true });
      const before = version();
      let reads = 0;
      for (const id of [...SESSIONS, ...SESSIONS]) reads += await readAll(clients, id);
      expect(version()).toBe(before);
      await clients.runs.beginRun({
        ...{ requestId: "first", sessionId: "old-1", startGate: StartGate.OFF },
      });
      expect(version()).not.toBe(before);
      watching.close();
      await server.end("SIGKILL");

      const operations = await readTrace(join(folder, "trace"), folder);
      expect(answersBeforeTheFirstChange(operations)).toBeGreaterThanOrEqual(reads);
    },
    faultTimeoutMs(),
  );
});

/** How many reads it took. */
async function readAll(
  { sessions, history, approvals }: Clients,
  sessionId: string,
): Promise<number> {
  await sessions.getSession({ sessionId });
  await sessions.listSessions({});
  const { toolCalls } = await history.listToolCalls({ sessionId });
  expect(toolCalls.length).toBeGreaterThan(0);
  for (const { toolCallId } of toolCalls) await history.getToolCall({ sessionId, toolCallId });
  await history.listHooks({ sessionId });
  await history.listEvents({ sessionId });
  await approvals.listAsks({ sessionId });
  return 6 + toolCalls.length;
}

/** Answers, in one piece or more each, before the first change of a file after the first of them; there must be one. */
function answersBeforeTheFirstChange(operations: readonly Operation[]): number {
  const firstAnswer = operations.findIndex(({ kind }) => kind === "send");
  const isOfInterest = (operation: Operation): boolean =>
    operation.kind === "send" || /[/](?:store|old)[/]/.test(operation.path);
  const sinceThen = operations.slice(firstAnswer).filter(isOfInterest);
  const firstChange = sinceThen.findIndex(({ kind }) => kind !== "send");
  expect(firstChange).toBeGreaterThan(0);
  return firstChange;
}
