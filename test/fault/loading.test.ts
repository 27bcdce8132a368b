import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { JsonValue } from "@bufbuild/protobuf";
import { readFrozenHistory, writeFrozenHistory } from "../compat/frozen-store.js";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createSession } from "../support/conversation.js";
import { scaled } from "../support/scale.js";
import { startTestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { recordResult } from "./results.js";
import { readTrace, traceArguments, type Operation } from "./strace-log.js";
import { startListening, type FaultyServer } from "./strace-server.js";
import { canRun, faultTimeoutMs, STRACE } from "./strace-tools.js";

const LOADINGS = 10;
/** Two at least, to be compared. */
const LOADINGS_NOW = Math.max(2, scaled(LOADINGS));
const TIMEOUT_MS = faultTimeoutMs();

let made: StoreFolder;

beforeEach(async () => {
  made = await makeStoreFolder();
});

afterEach(async () => {
  await made.remove();
});

/** What was changed of the database and its log after the ready file was there. */
function changesAfterReady(operations: readonly Operation[], path: string): Operation[] {
  const ready = operations.findLastIndex(
    (operation) => "path" in operation && basename(operation.path).startsWith("ready.json"),
  );
  const files = [path, `${path}-wal`];
  return operations
    .slice(ready + 1)
    .filter((operation) => operation.kind !== "send" && operation.kind !== "sync")
    .filter((operation) => "path" in operation && files.includes(operation.path));
}

interface Loaded {
  readonly read: JsonValue;
  readonly changes: readonly Operation[];
}

/** Serves a store under a tracer, reads from it, and kills it. */
async function load(
  path: string,
  read: (server: FaultyServer) => Promise<JsonValue>,
): Promise<Loaded> {
  const folder = dirname(path);
  const trace = join(folder, "trace");
  const server = await startListening({ folder, path, strace: traceArguments(trace) });
  const found = await read(server);
  await server.end("SIGKILL");
  return { read: found, changes: changesAfterReady(await readTrace(trace, folder), path) };
}

async function digestOf(path: string): Promise<string> {
  return createHash("sha256")
    .update(await readFile(path))
    .digest("hex");
}

/** A store that a server left behind, and the ids of its sessions. */
async function makeStore(): Promise<readonly string[]> {
  const service = await startTestService({ store: made.store });
  const sessionIds = await writeFrozenHistory(service);
  await service.stop();
  return sessionIds;
}

async function loadOften(): Promise<void> {
  const sessionIds = await makeStore();
  const before = await digestOf(made.path);
  const readAll = ({ clients }: FaultyServer) => readFrozenHistory(clients(), sessionIds);
  const first = await load(made.path, readAll);
  let changes = first.changes.length;
  for (let count = 1; count < LOADINGS_NOW; count += 1) {
    const again = await load(made.path, readAll);
    changes += again.changes.length;
    expect(again.read).toEqual(first.read);
  }
  expect(await digestOf(made.path)).toBe(before);
  const caught = await plantedChanges();
  recordResult({
    ...{ promise: 16, part: "loading writes nothing", counted: "loadings", count: LOADINGS_NOW },
    ...{ wanted: LOADINGS, violations: changes },
    planted: [{ name: "a write while it is read", caught }],
  });
  expect(changes).toBe(0);
  expect(caught).toBeGreaterThan(0);
}

/** Changes that the trace shows of a server that writes while it is read. */
async function plantedChanges(): Promise<number> {
  const { changes } = await load(made.path, async ({ clients }) => {
    const sessionId = await createSession(clients());
    return sessionId;
  });
  return changes.length;
}

describe("loading a store", () => {
  if (canRun("loading", [STRACE])) {
    test(
      "writes nothing to database or log once it is ready, and reads the same",
      loadOften,
      TIMEOUT_MS,
    );
  }
});
