import { Code } from "@connectrpc/connect";
import BetterSqlite from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { VerifySessionRequestSchema } from "../../gen/toolmark/v1/session_service_pb.js";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { FaultyStore } from "../support/faulty-store.js";
import {
  acceptCall,
  complete,
  given,
  openRun,
  readSession,
  recordMessage,
} from "../support/conversation.js";
import { refused } from "../support/refused.js";
import {
  ANNA,
  OTTO,
  startHistoryService,
  writeHistory,
  type HistoryService,
} from "../support/rich-history.js";
import type { Clients, Wire } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { startWatchedService } from "../support/watched-service.js";
import { withoutTriggers } from "../support/without-triggers.js";

let folder: StoreFolder;
let service: HistoryService;

beforeEach(async () => {
  folder = await makeStoreFolder();
  service = await startHistoryService({ store: folder.store, flags: ["--snapshot-every", "4"] });
});

afterEach(async () => {
  await service.stop();
  await folder.remove();
});

async function restart(): Promise<void> {
  await service.stop();
  service = await startHistoryService({ store: folder.store });
}

/** Changes a file that nobody has open, past its triggers. */
async function alter(sql: string): Promise<void> {
  await service.stop();
  const database = new BetterSqlite(folder.path);
  withoutTriggers(database, () => {
    database.exec(sql);
  });
  database.close();
  service = await startHistoryService({ store: folder.store });
}

type VerifyInit = MessageInitShape<typeof VerifySessionRequestSchema>;

function verify({ sessions }: Clients, request: VerifyInit) {
  return sessions.verifySession(request);
}

describe.each<Wire>(["grpc", "connect-json"])("VerifySession over %s", (wire) => {
  test("gives the head of every session that is sound, also after a restart", async () => {
    const written = await writeHistory(service);
    for (let lives = 1; lives <= 2; lives += 1) {
      for (const { tenant, sessionId } of written) {
        service.become(tenant === OTTO.tenant ? OTTO : ANNA);
        const clients = service.clients(wire);
        const { checkpoint } = await readSession(clients, sessionId);
        const { head } = await verify(clients, { sessionId });
        expect(head).toEqual(checkpoint);
        expect(await verify(clients, { sessionId, ...(checkpoint && { checkpoint }) })).toEqual({
          $typeName: "toolmark.v1.VerifySessionResponse",
          head,
        });
      }
      await restart();
    }
  });

  test("names the first bad row", async () => {
    const run = await openRun(service.clients(wire));
    await acceptCall(service.clients(wire), run);
    await alter("UPDATE events SET kind = 'RUN_ENDED' WHERE sequence >= 3");
    const clients = service.clients(wire);
    const { code, reason, metadata } = await refused(verify(clients, run));
    expect({ code, reason }).toEqual({ code: Code.DataLoss, reason: "DATA_DAMAGED" });
    const fault = "does not follow the chain";
    expect(metadata).toEqual({ table: "events", key: "3", sequence: "3", fault });
  });

  test("refuses a checkpoint that the log does not go through", async () => {
    const clients = service.clients(wire);
    const { sessionId } = await openRun(clients);
    const checkpoint = given((await readSession(clients, sessionId)).checkpoint, "checkpoint");
    const other = { ...checkpoint, chain: new Uint8Array(32) };
    const { code, reason, metadata } = await refused(
      verify(clients, { sessionId, checkpoint: other }),
    );
    expect({ code, reason }).toEqual({ code: Code.DataLoss, reason: "CHECKPOINT_MISMATCH" });
    expect(metadata).toEqual({ sequence: "2", head_sequence: "2" });
  });

  test("refuses a checkpoint of another session, and one that is malformed", async () => {
    const clients = service.clients(wire);
    const { sessionId } = await openRun(clients);
    const checkpoint = given((await readSession(clients, sessionId)).checkpoint, "checkpoint");
    const refusal = async (changed: Partial<typeof checkpoint>) => {
      const call = verify(clients, { sessionId, checkpoint: { ...checkpoint, ...changed } });
      const { code, reason, metadata } = await refused(call);
      return [code, reason, metadata["field"]];
    };
    const mismatch = [Code.InvalidArgument, "REFERENCE_MISMATCH", "checkpoint.session_id"];
    expect(await refusal({ sessionId: "ses_other" })).toEqual(mismatch);
    const invalid = (field: string) => [Code.InvalidArgument, "FIELD_INVALID", field];
    expect(await refusal({ sessionId: "" })).toEqual(invalid("checkpoint.session_id"));
    expect(await refusal({ chain: new Uint8Array(31) })).toEqual(invalid("checkpoint.chain"));
    expect(await refusal({ sequence: 0n })).toEqual(invalid("checkpoint.sequence"));
    expect(await refusal({ position: 0n })).toEqual(invalid("checkpoint.position"));
  });

  test("knows nothing of sessions that are not there or another tenant's", async () => {
    const clients = service.clients(wire);
    const { sessionId } = await openRun(clients);
    service.become(OTTO);
    const foreign = await refused(verify(clients, { sessionId }));
    const absent = await refused(verify(clients, { sessionId: "ses_absent" }));
    expect(foreign).toEqual(absent);
    expect(foreign).toMatchObject({ code: Code.NotFound, reason: "SESSION_NOT_FOUND" });
  });
});

test("VerifySession goes on beside writers and finds nothing", async () => {
  const clients = service.clients();
  const run = await openRun(clients);
  let isOver = false;
  const write = async (): Promise<number> => {
    let written = 0;
    while (!isOver) {
      const { toolCallId } = await acceptCall(clients, run);
      await recordMessage(clients, run);
      await complete(clients, run, toolCallId, `done ${written}`);
      written += 1;
    }
    return written;
  };
  const writers = [write(), write(), write(), write()];
  const heads: bigint[] = [];
  for (let round = 0; round < 20; round += 1) {
    const { head } = await verify(clients, { sessionId: run.sessionId });
    heads.push(given(head, "head").sequence);
  }
  isOver = true;
  const written = (await Promise.all(writers)).reduce((sum, count) => sum + count, 0);
  expect(written).toBeGreaterThan(0);
  expect(new Set(heads).size).toBeGreaterThan(1);
  expect(heads).toEqual(heads.toSorted((left, right) => Number(left - right)));
});

test("VerifySession stops when its caller goes away", async () => {
  let reads = 0;
  const gone = new AbortController();
  const watched = await startWatchedService({
    wrapStore: (inner) => {
      const store = new FaultyStore(inner);
      store.readEvents = async (...args) => {
        reads += 1;
        gone.abort();
        await vi.waitUntil(() => watched.arrived.at(-1)?.aborted !== undefined);
        return inner.readEvents(...args);
      };
      return store;
    },
  });
  try {
    const clients = watched.clients();
    const { sessionId } = await openRun(clients);
    const call = clients.sessions.verifySession({ sessionId }, { signal: gone.signal });
    expect((await refused(call)).code).toBe(Code.Canceled);
    await vi.waitUntil(() => watched.logged().includes("SessionService.VerifySession"));
    // A log that is read to its end is read at least twice.
    expect(reads).toBe(1);
  } finally {
    await watched.stop();
  }
});
