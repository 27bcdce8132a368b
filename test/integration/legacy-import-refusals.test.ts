import { createHash } from "node:crypto";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { LegacySourceFormat } from "../../gen/toolmark/v1/legacy_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { answer, answerTo, listedAsks, showAsk } from "../support/asking.js";
import { allCalls, given } from "../support/conversation.js";
import {
  askIdOf,
  bytesOfSnapshot,
  calling,
  importOld,
  importRequest,
  logF,
  oldCall,
  oldEvent,
  readAdopted,
  snapshotA,
  snapshotB,
  sourcesOf,
} from "../support/old-fixtures.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, tableContents, type StoreFolder } from "../support/store-folder.js";
import { startWatchedService, type WatchedService } from "../support/watched-service.js";
import { Callers, principal } from "./cases-asks-fixture.js";

const { SNAPSHOT, EVENT_LOG } = LegacySourceFormat;
const LIMIT_BYTES = 1024 * 1024;
const OPEN_CALLS = 20;

let folder: StoreFolder;
let service: TestService;

beforeAll(async () => {
  folder = await makeStoreFolder();
  const limits = { "body-bytes": LIMIT_BYTES, "open-calls-per-session": OPEN_CALLS };
  const flags = Object.entries(limits).flatMap(([name, limit]) => [`--limit-${name}`, `${limit}`]);
  service = await startTestService({ store: folder.store, flags });
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

let sessions = 0;

function freshId(): string {
  sessions += 1;
  return `old session/${sessions}`;
}

/** Whatever it does, nothing of it is stored. */
async function expectNothingStored(act: () => Promise<unknown>): Promise<void> {
  const before = tableContents(folder.path);
  await act();
  expect(tableContents(folder.path)).toEqual(before);
}

describe("parts of sources", () => {
  const data = (id: string): Buffer => bytesOfSnapshot(snapshotA(id));
  const progressOf = async (clients: Clients, request: object): Promise<number[]> => {
    const { progress } = await clients.sessions.importSession(request);
    return progress.map(({ receivedBytes }) => Number(receivedBytes));
  };

  test("are put together in order; repeated ones and ones ahead change nothing", async () => {
    const clients = service.clients("connect-binary");
    const id = freshId();
    const whole = importRequest(id, sourcesOf(snapshotA(id)));
    const part = (from: number, to: number) => {
      const part_ = { format: SNAPSHOT, offsetBytes: BigInt(from) };
      return { ...whole, parts: [{ ...part_, data: data(id).subarray(from, to) }] };
    };
    const size = data(id).length;
    await expectNothingStored(async () => {
      expect(await progressOf(clients, { ...whole, parts: [] })).toEqual([0]);
      expect(await progressOf(clients, part(0, 10))).toEqual([10]);
      expect(await progressOf(clients, part(0, 10))).toEqual([10]);
      expect(await progressOf(clients, part(20, 30))).toEqual([10]);
      expect(await progressOf(clients, part(5, 15))).toEqual([15]);
      expect(await progressOf(clients, { ...whole, parts: [] })).toEqual([15]);
      expect(await progressOf(clients, part(15, size - 1))).toEqual([size - 1]);
      const unread = clients.sessions.getSession({ sessionId: id });
      expect((await refused(unread)).reason).toBe("SESSION_NOT_FOUND");
    });
    const last = await clients.sessions.importSession(part(size - 1, size));
    expect(last).toMatchObject({ isNew: true, progress: [{ receivedBytes: BigInt(size) }] });
    expect(last.session?.sessionId).toBe(id);
    const again = await clients.sessions.importSession(part(size - 1, size));
    expect(again).toEqual(last);
    expect(await progressOf(clients, { ...whole, parts: [] })).toEqual([size]);
  });

  test("of both sources come in one request, each told of in the order of the request", async () => {
    const clients = service.clients();
    const id = freshId();
    const whole = importRequest(id, sourcesOf(snapshotA(id), logF()));
    const [snapshot, log] = given(whole.parts, "parts") as { data: Buffer }[];
    const reversed = { ...whole, sources: whole.sources!.toReversed(), parts: [] };
    expect(await progressOf(clients, { ...whole, parts: [log!] })).toEqual([0, log!.data.length]);
    expect(await progressOf(clients, { ...whole, parts: [snapshot!] })).toEqual([
      ...[snapshot!.data.length, log!.data.length],
    ]);
    expect((await readAdopted(clients, id)).sources.map(({ format }) => format)).toEqual([
      ...[SNAPSHOT, EVENT_LOG],
    ]);
    expect((await clients.sessions.importSession({ ...reversed, requestId: "r" })).isNew).toBe(
      false,
    );
  });
});

describe("sources that are refused", () => {
  let clients: Clients;

  beforeAll(() => {
    clients = service.clients();
  });

  async function refusedImport(sessionId: string, bytes: string | Buffer, changed: object = {}) {
    const request = importRequest(sessionId, [[SNAPSHOT, Buffer.from(bytes)]]);
    const refusal = await refused(clients.sessions.importSession({ ...request, ...changed }));
    const unread = clients.sessions.getSession({ sessionId });
    expect((await refused(unread)).reason).toBe("SESSION_NOT_FOUND");
    return refusal;
  }

  const malformed: readonly (readonly [string, (id: string) => string, string, number])[] = [
    ["no JSON", () => '{"id": ', "$", 7],
    ["an id that is a number", () => '{"id": 5}', "$.id", 7],
    ["no id", () => "{}", "$.id", 0],
    ["a message that is a number", () => '{"id":"x","messages":[ 7]}', "$.messages[0]", 23],
    ["a text that is cut off", () => '{"id":"x","messages":["role', "$", 22],
    ["the id of another session", () => '{"id":"another"}', "$.id", 6],
  ];

  test.each(malformed)(
    "with %s: where it is is told, nothing is kept",
    async (_, text, path, at) => {
      const id = freshId();
      await expectNothingStored(async () => {
        const refusal = await refusedImport(id, text(id));
        const metadata = { format: "SNAPSHOT", path, offset: String(at) };
        expect(refusal).toMatchObject({ reason: "SOURCE_MALFORMED", metadata });
      });
      // Nothing of the first try is in the way of a right one.
      expect((await importOld(clients, snapshotA(id))).isNew).toBe(true);
    },
  );

  test("a log with a bad line: the line is told, and nothing of its snapshot is kept", async () => {
    const id = freshId();
    const log = ["{}", '{"Type":'];
    const request = importRequest(id, sourcesOf(snapshotA(id), [oldEvent("turn.start"), ...log]));
    await expectNothingStored(async () => {
      const refusal = await refused(clients.sessions.importSession(request));
      expect(refusal.reason).toBe("SOURCE_MALFORMED");
      expect(refusal.metadata).toMatchObject({ format: "EVENT_LOG", path: "line 2: $.Type" });
    });
    const unread = clients.sessions.getSession({ sessionId: id });
    expect((await refused(unread)).reason).toBe("SESSION_NOT_FOUND");
  });

  test("bytes of another digest: they are dropped, and can be sent again", async () => {
    const id = freshId();
    const right = importRequest(id, sourcesOf(snapshotA(id)));
    const [part] = right.parts as { data: Buffer }[];
    const bad = Buffer.from(part!.data);
    bad[bad.length - 2] = 0x20;
    await expectNothingStored(async () => {
      const wrong = { ...right, parts: [{ ...part, data: bad }] };
      const refusal = await refused(clients.sessions.importSession(wrong));
      expect(refusal).toMatchObject({
        reason: "SOURCE_MISMATCH",
        metadata: { format: "SNAPSHOT" },
      });
      const { progress } = await clients.sessions.importSession({ ...right, parts: [] });
      expect(progress.map(({ receivedBytes }) => receivedBytes)).toEqual([0n]);
    });
    expect((await clients.sessions.importSession(right)).isNew).toBe(true);
  });

  test("a source above the largest body, before any of it is sent", async () => {
    const id = freshId();
    const sha256 = createHash("sha256").digest();
    const sources = [{ format: SNAPSHOT, sizeBytes: BigInt(LIMIT_BYTES + 1), sha256 }];
    const refusal = await refusedImport(id, "", { sources, parts: [] });
    expect(refusal).toMatchObject({
      ...{ reason: "BODY_TOO_LARGE", code: Code.ResourceExhausted },
      metadata: { field: "sources[0].size_bytes", limit: String(LIMIT_BYTES) },
    });
  });

  test("records above the largest body, or more open calls than a session may have", async () => {
    const many = (count: number) => Array.from({ length: count }, (_, at) => oldCall(`p${at}`));
    const large = { state: "completed", messages: [calling(...many(5000))] };
    const bytes_ = bytesOfSnapshot(snapshotA("x", large));
    expect(bytes_.length).toBeLessThan(LIMIT_BYTES);
    const id = freshId();
    await expectNothingStored(async () => {
      const refusal = await refusedImport(id, bytesOfSnapshot(snapshotA(id, large)));
      expect(refusal.reason).toBe("BODY_TOO_LARGE");
    });
    const open = snapshotB(id, { call: "p0" }, { messages: [calling(...many(OPEN_CALLS + 1))] });
    await expectNothingStored(async () => {
      const refusal = await refusedImport(id, bytesOfSnapshot(open));
      expect(refusal).toMatchObject({ reason: "QUOTA_EXCEEDED" });
    });
  });

  test.each([
    ["no source", { sources: [], parts: [] }, "sources"],
    ["a part of another format", { parts: [{ format: EVENT_LOG }] }, "parts[0].format"],
    [
      "a part beyond the source",
      { parts: [{ format: SNAPSHOT, offsetBytes: 1n, data: Buffer.alloc(17) }] },
      "parts[0].data",
    ],
    ["an id with a control character", { sessionId: "a\nb" }, "session_id"],
  ])("%s is a malformed request", async (_, changed, field) => {
    const request = importRequest(freshId(), [[SNAPSHOT, Buffer.from('{"id":"another"}')]]);
    const sending = clients.sessions.importSession({ ...request, ...changed });
    expect(await refused(sending)).toMatchObject({ reason: "FIELD_INVALID", metadata: { field } });
  });
});

describe("who may import, and who sees it", () => {
  let watched: WatchedService;
  let callers: Callers;

  beforeAll(async () => {
    const everything = (scope: "own" | "tenant") => {
      return { engine: scope, approver: scope, reader: scope, admin: scope };
    };
    watched = await startWatchedService({
      principals: {
        foreign: { tenant: "other", subject: "loopback", roles: everything("tenant") },
        own: principal("own", everything("own")),
        reader: principal("reader", { engine: "tenant", approver: "tenant", reader: "tenant" }),
      },
    });
    callers = new Callers(watched);
  });

  afterAll(async () => {
    callers.disconnect();
    await watched.stop();
  });

  test("only an admin of the whole tenant imports", async () => {
    for (const name of ["own", "reader"]) {
      const importing = importOld(callers.as(name), snapshotA(freshId()));
      const refusal = await refused(importing);
      expect(refusal).toMatchObject({ reason: "ROLE_MISSING", metadata: { role: "admin" } });
    }
    expect((await callers.as("anybody").sessions.listSessions({})).sessions).toEqual([]);
  });

  test("a session without an owner is not found by another tenant, or by who sees only own ones", async () => {
    const id = freshId();
    await importOld(callers.as("anybody"), snapshotB(id));
    const ask = await showAsk(callers.as("reader"), id, askIdOf(id));
    const [call] = await allCalls(callers.as("reader"), id);
    for (const name of ["foreign", "own"]) {
      const { sessions: of, history, approvals, runs } = callers.as(name);
      const attempts: (() => Promise<unknown>)[] = [
        () => of.getSession({ sessionId: id }),
        () => history.listToolCalls({ sessionId: id }),
        () => history.getToolCall({ sessionId: id, toolCallId: call!.toolCallId }),
        () => history.listEvents({ sessionId: id }),
        () => approvals.listAsks({ sessionId: id }),
        () => approvals.answerAsk(answerTo(ask)),
        () => runs.beginRun({ requestId: "x", sessionId: id, startGate: StartGate.OFF }),
        () => of.forkSession({ requestId: "x", sessionId: id }),
        () => of.endSession({ requestId: "x", sessionId: id }),
      ];
      for (const attempt of attempts) {
        expect((await refused(attempt())).reason).toBe("SESSION_NOT_FOUND");
      }
      expect((await of.listSessions({})).sessions).toEqual([]);
      expect(await listedAsks(callers.as(name), {})).toEqual([]);
    }
  });

  test("another tenant's session of the same id is another session", async () => {
    const id = freshId();
    await importOld(callers.as("anybody"), snapshotB(id));
    await importOld(callers.as("foreign"), snapshotA(id));
    const [own, other] = await Promise.all(
      ["anybody", "foreign"].map((name) => allCalls(callers.as(name), id)),
    );
    expect([own?.length, other?.length]).toEqual([3, 2]);
  });

  test("an owner that is named sees it, with what is asked", async () => {
    const id = freshId();
    const request = importRequest(id, sourcesOf(snapshotB(id)));
    const importing = callers.as("anybody").sessions;
    const { session } = await importing.importSession({ ...request, ownerSubject: "own" });
    expect(session?.ownerSubject).toBe("own");
    const shown = await listedAsks(callers.as("own"), {});
    expect(shown.map(({ ask }) => ask.askId)).toEqual([askIdOf(id)]);
    await answer(callers.as("own"), shown[0]!.ask);
  });
});
