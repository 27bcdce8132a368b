import { dirname, join } from "node:path";
import { Code } from "@connectrpc/connect";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import { RunOutcome } from "../../gen/toolmark/v1/run_pb.js";
import { migrateStore } from "../../src/server/migrate-store.js";
import {
  acceptCall,
  allEvents,
  beginRun,
  complete,
  createSession,
  endRun,
  freshRequestId,
  given,
  newCall,
  openRun,
  readSession,
  recordMessage,
} from "../support/conversation.js";
import { writeForkSource, type ForkSource } from "../support/fork-source.js";
import { copyFaults, fork, readLists } from "../support/forking.js";
import { refused } from "../support/refused.js";
import { ANNA, OTTO } from "../support/rich-history.js";
import { spawnServer } from "../support/spawned-server.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, tableContents, type StoreFolder } from "../support/store-folder.js";
import { backUp, restore, toolmark } from "../support/toolmark-command.js";

const EVERY_FOURTH = ["--snapshot-every", "4"];

let folder: StoreFolder;
let service: TestService;

beforeEach(async () => {
  folder = await makeStoreFolder();
  service = await startTestService({ store: folder.store, flags: EVERY_FOURTH });
});

afterEach(async () => {
  await service.stop();
  await folder.remove();
});

async function restart(flags: readonly string[] = EVERY_FOURTH): Promise<Clients> {
  await service.stop();
  service = await startTestService({ store: folder.store, flags });
  return service.clients();
}

/** A source, its fork with a turn of its own and a compaction over all that it copied, and the fork of that. */
async function writeForks(clients: Clients): Promise<{ source: ForkSource; ids: string[] }> {
  const source = await writeForkSource(clients);
  const { sessionId } = await fork(clients, source.run.sessionId);
  const run = await beginRun(clients, sessionId);
  await complete(clients, run, (await acceptCall(clients, run, newCall("call_0"))).toolCallId);
  const compaction = { throughSequence: 2n, summary: "Copied." };
  await clients.sessions.compactSession({ requestId: "compact", sessionId, ...compaction });
  await acceptCall(clients, run, newCall("call_0"));
  const second = await fork(clients, sessionId);
  return { source, ids: [source.run.sessionId, sessionId, second.sessionId] };
}

async function readAll(clients: Clients, ids: readonly string[]) {
  const read = [];
  for (const id of ids) {
    await clients.sessions.verifySession({ sessionId: id });
    read.push(await readLists(clients, id, 500));
  }
  return read;
}

describe("a store with forks", () => {
  test("reads the same after a restart, and is sound to the command", async () => {
    const { ids } = await writeForks(service.clients());
    const before = await readAll(service.clients(), ids);
    expect(await readAll(await restart(), ids)).toEqual(before);
    await service.stop();
    expect(await toolmark("verify", "--store", folder.store)).toMatchObject({ code: 0 });
  });

  test("reads the same after the end of its process, and goes on", async () => {
    const { ids } = await writeForks(service.clients());
    const before = await readAll(service.clients(), ids);
    await service.stop();
    const server = await spawnServer(folder.path, ...EVERY_FOURTH);
    const clients = server.clients();
    expect(await readAll(clients, ids)).toEqual(before);
    const third = await fork(clients, ids[1] ?? "", 0n, "kept");
    await server.kill();
    service = await startTestService({ store: folder.store });
    const later = service.clients();
    expect(await readAll(later, ids)).toEqual(before);
    expect(await fork(later, ids[1] ?? "", 0n, "kept")).toEqual(third);
    for (const id of [...ids.slice(2), third.sessionId]) {
      const run = await beginRun(later, id);
      await complete(later, run, (await acceptCall(later, run)).toolCallId);
      await later.sessions.verifySession({ sessionId: id });
    }
  });

  test("is migrated down to each version and up again without a changed row", async () => {
    await writeForks(service.clients());
    await service.stop();
    const before = tableContents(folder.path);
    for (const to of [4, 3, 1]) {
      await migrateStore({ path: folder.path, to, allowDataLoss: false });
      await migrateStore({ path: folder.path, to: undefined, allowDataLoss: false });
      expect(tableContents(folder.path)).toEqual(before);
    }
  });

  test("is backed up and restored, and counts on above what is lost", async () => {
    const { ids } = await writeForks(service.clients());
    const backup = join(dirname(folder.path), "backup.db");
    const before = await readAll(service.clients(), ids);
    const backedUp = await backUp(folder.path, backup);
    expect(backedUp).toBeDefined();
    await fork(service.clients(), ids[0] ?? "");
    await service.stop();
    await restore(folder.path, backup, { discard: true });
    const clients = await restart();
    const floor = 2n ** 32n;
    const after = await readAll(clients, ids);
    expect(after.map(({ calls, hooks, events }) => ({ calls, hooks, events }))).toEqual(
      before.map(({ calls, hooks, events }) => ({ calls, hooks, events })),
    );
    const forked = await fork(clients, ids[0] ?? "");
    const events = await allEvents(clients, ids[0] ?? "");
    expect(await copyFaults(clients, { events }, forked)).toEqual([]);
    for (const id of [forked.sessionId, ids[2] ?? ""]) {
      expect((await readSession(clients, id)).highWater).toBeGreaterThanOrEqual(floor);
      const call = await acceptCall(clients, await beginRun(clients, id));
      expect(call.revision).toBe(floor + 1n);
    }
    const later = await restart();
    for (const id of [...ids, forked.sessionId]) {
      await later.sessions.verifySession({ sessionId: id });
    }
  });
});

describe("the request of a fork", () => {
  test("gives the equal reply again, whatever became of source and fork, and makes nothing", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    await complete(clients, run, (await acceptCall(clients, run)).toolCallId);
    const first = await fork(clients, run.sessionId, 0n, "one");
    const own = await beginRun(clients, first.sessionId);
    await clients.sessions.endSession({ requestId: "end", sessionId: first.sessionId });
    await recordMessage(clients, run);
    await endRun(clients, run, { outcome: RunOutcome.COMPLETED });
    await clients.sessions.endSession({ requestId: "end", sessionId: run.sessionId });
    expect(own.runId).not.toBe("");
    const tables = tableContents(folder.path);
    for (const wire of ["grpc", "connect-json"] as const) {
      expect(await fork(service.clients(wire), run.sessionId, 0n, "one")).toEqual(first);
    }
    expect(await fork(await restart(), run.sessionId, 0n, "one")).toEqual(first);
    const { snapshots: _before, ...kept } = tables;
    const { snapshots: _after, ...now } = tableContents(folder.path);
    expect(now).toEqual(kept);
    const other = fork(service.clients(), run.sessionId, 1n, "one");
    expect((await refused(other)).reason).toBe("REQUEST_ID_REUSED");
    const ending = { requestId: "one", sessionId: run.sessionId };
    const ended = service.clients().sessions.endSession(ending);
    expect((await refused(ended)).reason).toBe("REQUEST_ID_REUSED");
    const reused = fork(service.clients(), run.sessionId, 0n, "end");
    expect((await refused(reused)).reason).toBe("REQUEST_ID_REUSED");
  });

  test("that comes many times at once makes one session; others make one each", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    await complete(clients, run, (await acceptCall(clients, run)).toolCallId);
    const sent = Array.from({ length: 12 }, (_, index) => `request of fork ${index % 4}`);
    const forks = await Promise.all(
      sent.map((requestId, index) =>
        fork(
          service.clients(index % 2 === 0 ? "grpc" : "connect-binary"),
          run.sessionId,
          0n,
          requestId,
        ),
      ),
    );
    for (const [index, forked] of forks.entries()) expect(forked).toEqual(forks[index % 4]);
    expect(new Set(forks.map(({ sessionId }) => sessionId)).size).toBe(4);
    const { sessions } = await clients.sessions.listSessions({});
    expect(sessions).toHaveLength(5);
    for (const { sessionId } of sessions) await clients.sessions.verifySession({ sessionId });
  });

  test("copies one moment while the source goes on", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    const work = async (): Promise<void> => {
      for (let index = 0; index < 8; index += 1) {
        await complete(clients, run, (await acceptCall(clients, run)).toolCallId);
      }
    };
    const forking = async (): Promise<string[]> => {
      const ids: string[] = [];
      for (let index = 0; index < 6; index += 1) {
        ids.push((await fork(clients, run.sessionId)).sessionId);
      }
      return ids;
    };
    const [ids] = await Promise.all([forking(), work()]);
    const events = await allEvents(clients, run.sessionId);
    for (const sessionId of ids) {
      const forked = await readSession(clients, sessionId);
      expect(await copyFaults(clients, { events }, forked)).toEqual([]);
      await clients.sessions.verifySession({ sessionId });
    }
  });
});

describe("a fork is refused with nothing written", () => {
  async function expectRefusal(
    clients: Clients,
    sending: () => Promise<unknown>,
    reason: string,
  ): Promise<void> {
    const before = tableContents(folder.path);
    expect((await refused(sending())).reason).toBe(reason);
    expect(tableContents(folder.path)).toEqual(before);
    await createSession(clients);
  }

  test("if what it copies is larger than a body may be", async () => {
    const clients = await restart(["--limit-body-bytes", "2000"]);
    const run = await openRun(clients);
    for (let index = 0; index < 2; index += 1) await recordMessage(clients, run);
    const small = given((await readSession(clients, run.sessionId)).checkpoint, "head").sequence;
    for (let index = 0; index < 20; index += 1) await recordMessage(clients, run);
    const { sessionId } = run;
    await expectRefusal(clients, () => fork(clients, sessionId), "BODY_TOO_LARGE");
    await clients.sessions.verifySession({
      sessionId: (await fork(clients, sessionId, small)).sessionId,
    });
  });

  test("if the source is not there, or its head is not so far", async () => {
    const clients = service.clients();
    const { sessionId } = await openRun(clients);
    await expectRefusal(clients, () => fork(clients, "ses_none"), "SESSION_NOT_FOUND");
    await expectRefusal(clients, () => fork(clients, sessionId, 3n), "FIELD_INVALID");
    expect(await fork(clients, sessionId, 2n)).toMatchObject({ forkedFrom: { sequence: 2n } });
  });

  test("if the source is another tenant's or another owner's", async () => {
    await service.stop();
    let caller = ANNA;
    const options = { store: folder.store, authenticate: () => caller };
    service = await startTestService(options);
    const clients = service.clients();
    const { sessionId } = await openRun(clients);
    const roles = { ...ANNA.roles, engine: "own", reader: "own", approver: "own" } as const;
    for (const other of [OTTO, { ...ANNA, subject: "eve", roles }]) {
      caller = other;
      await expectRefusal(clients, () => fork(clients, sessionId), "SESSION_NOT_FOUND");
    }
    caller = ANNA;
    await fork(clients, sessionId);
  });

  test("or made once, if its caller goes away while the copy is made", async () => {
    const clients = service.clients();
    const source = await writeForkSource(clients);
    const request = { requestId: freshRequestId(), sessionId: source.run.sessionId };
    const gone = new AbortController();
    const sending = clients.sessions.forkSession(request, { signal: gone.signal });
    setImmediate(() => {
      gone.abort();
    });
    expect((await refused(sending)).code).toBe(Code.Canceled);
    const events: Event[] = await allEvents(clients, source.run.sessionId);
    const forked = await fork(clients, source.run.sessionId, 0n, request.requestId);
    expect(await copyFaults(clients, { events }, forked)).toEqual([]);
    expect((await clients.sessions.listSessions({})).sessions).toHaveLength(2);
  });
});
