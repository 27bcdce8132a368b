import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import type { Principal } from "../../src/domain/principal.js";
import {
  acceptCall,
  allEvents,
  bytes,
  createSession,
  freshRequestId,
  given,
  of,
  openRun,
  readCall,
  type OpenRun,
} from "../support/conversation.js";
import { FaultyStore } from "../support/faulty-store.js";
import { expectNothingWritten } from "../support/nothing-written.js";
import { refused } from "../support/refused.js";
import { startTestService, WIRES, type Clients } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { partsOf, readWhole, sha256Of, upload, type UploadPart } from "../support/uploading.js";
import {
  CALLER_HEADER,
  startWatchedService,
  type WatchedService,
} from "../support/watched-service.js";
import { until } from "./listeners-fixture.js";

const HOUR_MS = 3_600_000;
const BODY_BYTES_MAX = 100_000;
const READER: Principal = { tenant: "default", subject: "loopback", roles: { reader: "tenant" } };
const STRANGER: Principal = { tenant: "default", subject: "eve", roles: { engine: "own" } };

let folder: StoreFolder;
let service: WatchedService;
let store: FaultyStore;
let aheadMs = 0;

beforeAll(async () => {
  folder = await makeStoreFolder();
  service = await startWatchedService({
    store: folder.store,
    flags: ["--limit-body-bytes", String(BODY_BYTES_MAX)],
    wrapStore: (opened) => (store = new FaultyStore(opened)),
    nowMs: () => Date.now() + aheadMs,
    principals: { reader: READER, stranger: STRANGER },
  });
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

let made = 0;

/** A body that no test had before. */
function freshData(sizeBytes = 70_000): Uint8Array {
  made += 1;
  return bytes(`{"number":${made},"text":"${"x".repeat(sizeBytes)}"}`);
}

function record(clients: Clients, run: OpenRun, bodyRef: string, requestId = freshRequestId()) {
  const command = { role: MessageRole.USER, content: { bodyRef, mediaType: "text/plain" } };
  return clients.evidence.recordMessage({ ...of(run, requestId), command });
}

async function* messages(...parts: UploadPart[]): AsyncGenerator<UploadPart> {
  for (const part of parts) yield await Promise.resolve(part);
}

describe.each(WIRES)("over %s", (wire) => {
  test("an uploaded body is described, writes nothing, and is stored with what names it", async () => {
    const clients = service.clients(wire);
    const run = await openRun(clients);
    const data = freshData();
    const body = await upload(clients, run.sessionId, data, {
      ...{ mediaType: "application/json", sha256: sha256Of(data), partBytes: 999 },
    });
    expect(body).toMatchObject({
      sizeBytes: BigInt(data.length),
      mediaType: "application/json",
      isJsonObject: true,
    });
    expect(body.data).toBeUndefined();
    expect(Buffer.compare(body.sha256, sha256Of(data))).toBe(0);
    expect(await allEvents(clients, run.sessionId)).toHaveLength(2);
    const { sessionId } = run;
    const unread = await refused(readWhole(clients, sessionId, body.bodyRef));
    expect(unread.reason).toBe("BODY_NOT_FOUND");

    await record(clients, run, body.bodyRef);
    const read = await readWhole(clients, sessionId, body.bodyRef);
    expect(Buffer.compare(read.data, data)).toBe(0);
  });

  test("the same bytes have the same reference, uploaded or not", async () => {
    const clients = service.clients(wire);
    const run = await openRun(clients);
    const data = freshData();
    const { bodyRef } = await upload(clients, run.sessionId, data);
    expect((await upload(clients, run.sessionId, data)).bodyRef).toBe(bodyRef);
    const call = { toolName: "write", arguments: { data } };
    expect((await acceptCall(clients, run, call)).proposed?.bodyRef).toBe(bodyRef);
    expect((await upload(clients, run.sessionId, data)).bodyRef).toBe(bodyRef);
  });

  test("an empty body may be uploaded", async () => {
    const clients = service.clients(wire);
    const run = await openRun(clients);
    const { bodyRef, sizeBytes } = await upload(clients, run.sessionId, new Uint8Array());
    expect(sizeBytes).toBe(0n);
    await record(clients, run, bodyRef);
  });

  const malformed: [string, (sessionId: string) => UploadPart[], string][] = [
    ["without a message", () => [], "session_id"],
    ["without a session", () => [{ chunk: bytes("x") }], "session_id"],
    ["with half a digest", (sessionId) => [{ sessionId, sha256: bytes("x") }], "sha256"],
    [
      "with the digest of other bytes",
      (sessionId) => [{ sessionId, chunk: bytes("x"), sha256: sha256Of(bytes("y")) }],
      "sha256",
    ],
    [
      "with a media type that is too long",
      (sessionId) => [{ sessionId, mediaType: "x".repeat(257) }],
      "media_type",
    ],
    ["that names its session twice", (sessionId) => [{ sessionId }, { sessionId }], "session_id"],
    [
      "with a media type in a later message",
      (sessionId) => [{ sessionId }, { mediaType: "text/plain" }],
      "media_type",
    ],
    [
      "with a digest in a later message",
      (sessionId) => [{ sessionId }, { sha256: sha256Of(bytes("x")) }],
      "sha256",
    ],
  ];

  test.each(malformed)("an upload %s is refused", async (_what, parts, field) => {
    const run = await openRun(service.clients());
    const clients = service.clients(wire);
    const refusal = await expectNothingWritten(service, run.sessionId, () =>
      clients.evidence.writeBody(messages(...parts(run.sessionId))),
    );
    expect(refusal).toMatchObject({ reason: "FIELD_INVALID", code: Code.InvalidArgument });
    expect(refusal.metadata["field"]).toBe(field);
  });

  test("an upload that is too large is refused, and its connection goes on", async () => {
    const clients = service.clients(wire);
    const run = await openRun(clients);
    const refusal = await refused(upload(clients, run.sessionId, freshData(BODY_BYTES_MAX)));
    expect(refusal).toMatchObject({ reason: "BODY_TOO_LARGE", code: Code.ResourceExhausted });
    await record(clients, run, (await upload(clients, run.sessionId, freshData())).bodyRef);
  });

  test("an upload to a session that has ended is refused", async () => {
    const clients = service.clients(wire);
    const { sessionId } = await openRun(clients);
    await clients.sessions.endSession({ sessionId, requestId: freshRequestId() });
    const refusal = await refused(upload(clients, sessionId, freshData()));
    expect(refusal.reason).toBe("SESSION_ENDED");
  });

  test("whoever may not see the session, or write to it, is refused", async () => {
    const clients = service.clients(wire);
    const sessionId = await createSession(clients);
    const as = (caller: string, named: string) =>
      refused(
        clients.evidence.writeBody(partsOf(named, freshData()), {
          headers: { [CALLER_HEADER]: caller },
        }),
      );
    const unknown = await as("", "ses_00000000000000000000000000");
    expect(unknown).toMatchObject({ reason: "SESSION_NOT_FOUND", code: Code.NotFound });
    expect(await as("stranger", sessionId)).toEqual(unknown);
    expect((await as("reader", sessionId)).reason).toBe("ROLE_MISSING");
  });
});

describe("an uploaded body", () => {
  test("belongs to its session", async () => {
    const clients = service.clients();
    const [run, other] = [await openRun(clients), await openRun(clients)];
    const { bodyRef } = await upload(clients, run.sessionId, freshData());
    const refusal = await refused(record(clients, other, bodyRef));
    expect(refusal).toMatchObject({ reason: "BODY_NOT_FOUND", code: Code.NotFound });
  });

  test("is dropped after an hour without use", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    const { bodyRef } = await upload(clients, run.sessionId, freshData());
    aheadMs += HOUR_MS + 1;
    expect((await refused(record(clients, run, bodyRef))).reason).toBe("BODY_NOT_FOUND");
  });

  test("may be named by all commands that take a body, twice in one request as well", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    const { sessionId } = run;
    const refOf = async (data: Uint8Array) => (await upload(clients, sessionId, data)).bodyRef;
    const [proposed, effective, content, said] = [1, 2, 3, 4].map(() => freshData());
    const first = { bodyRef: await refOf(given(proposed, "body")) };
    const call = { toolName: "write", arguments: first };
    const { toolCallId } = await acceptCall(clients, run, call);
    const amended = { bodyRef: await refOf(given(effective, "body")) };
    await clients.calls.amendToolCall({
      ...of(run),
      command: { toolCallId, effective: amended },
    });
    const value = { content: { bodyRef: await refOf(given(content, "body")) } };
    const result = { case: "canonical" as const, value };
    await clients.calls.recordResult({ ...of(run), command: { toolCallId, result } });
    const message = {
      role: MessageRole.USER,
      content: { bodyRef: await refOf(given(said, "body")) },
    };
    const twice = { command: { case: "recordMessage" as const, value: message } };
    await clients.runs.apply({ ...of(run), commands: [twice, twice] });
    const read = await readCall(clients, sessionId, toolCallId);
    for (const [bodyRef, data] of [
      [read.proposed?.bodyRef, proposed],
      [read.effective?.bodyRef, effective],
      [read.result?.content?.bodyRef, content],
      [message.content.bodyRef, said],
    ] as const) {
      const stored = await readWhole(clients, sessionId, given(bodyRef, "reference"));
      expect(Buffer.compare(stored.data, given(data, "body"))).toBe(0);
    }
  });

  test("may be named by commands at one time", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    const { bodyRef } = await upload(clients, run.sessionId, freshData());
    const named = Array.from({ length: 20 }, () => record(clients, run, bodyRef));
    await Promise.all(named);
    expect((await readWhole(clients, run.sessionId, bodyRef)).parts).toHaveLength(1);
  });

  test("may be named again after a commit that failed", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    for (const fails of ["before", "after"] as const) {
      const data = freshData();
      const { bodyRef } = await upload(clients, run.sessionId, data);
      const requestId = freshRequestId();
      store.failNext = fails;
      const refusal = await refused(record(clients, run, bodyRef, requestId));
      expect(refusal.reason).toBe("COMMIT_UNCERTAIN");
      const { message } = await record(clients, run, bodyRef, requestId);
      expect(await record(clients, run, bodyRef, requestId)).toMatchObject({ message });
      const stored = await readWhole(clients, run.sessionId, bodyRef);
      expect(Buffer.compare(stored.data, data)).toBe(0);
    }
  });

  test("is kept when the command that names it is refused", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    const { bodyRef } = await upload(clients, run.sessionId, freshData());
    const wrong = { ...run, runId: "run_00000000000000000000000000" };
    await expectNothingWritten(service, run.sessionId, () => record(clients, wrong, bodyRef));
    await record(clients, run, bodyRef);
  });
});

describe("an upload that is not completed", () => {
  /** Says what the whole would be, so that a part of it is never taken for it. */
  async function* neverEnding(sessionId: string, sent: () => void): AsyncGenerator<UploadPart> {
    const sha256 = sha256Of(bytes("xy"));
    yield await Promise.resolve({ sessionId, sha256, chunk: bytes("x") });
    sent();
    await new Promise<never>(() => {
      // Never settled.
    });
  }

  /** How the upload to a session ended, as it was logged. */
  function endOf(sessionId: string): string | undefined {
    const lines = service.logged().split("\n");
    return lines.find((line) => line.includes("WriteBody") && line.includes(sessionId));
  }

  test.each(WIRES)("leaves nothing behind, over %s", async (wire) => {
    const run = await openRun(service.clients());
    const before = service.arrived.length;
    const leaving = new AbortController();
    const clients = service.clients(wire);
    let isSent = false;
    const sending = neverEnding(run.sessionId, () => (isSent = true));
    const call = refused(clients.evidence.writeBody(sending, { signal: leaving.signal }));
    await until(() => isSent && service.arrived.at(before)?.request !== undefined);
    leaving.abort();
    expect((await call).code).toBe(Code.Canceled);
    await until(() => endOf(run.sessionId) !== undefined);
    // Over HTTP/2 a client may end its messages before it cancels.
    expect(endOf(run.sessionId)).toMatch(/CALLER_GONE|FIELD_INVALID/);
    expect(await allEvents(service.clients(), run.sessionId)).toHaveLength(2);
  });

  test("does not hold a shutdown up", async () => {
    const draining = await startTestService({ flags: ["--drain-timeout-ms", "600000"] });
    const run = await openRun(draining.clients());
    let isSent = false;
    const sending = neverEnding(run.sessionId, () => (isSent = true));
    const call = refused(draining.clients().evidence.writeBody(sending));
    await until(() => isSent);
    const drained = draining.drain();
    expect((await call).reason).toBe("DRAINING");
    await draining.stop();
    await drained;
  });
});
