import { Code } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { openAsk } from "../support/asking.js";
import {
  acceptCall,
  acceptTurn,
  allCalls,
  allEvents,
  bytes,
  given,
  of,
  openRun,
  readCall,
  readSession,
  type OpenRun,
} from "../support/conversation.js";
import { expectNothingWritten } from "../support/nothing-written.js";
import {
  clientsOf,
  startTestService,
  WIRES,
  type Clients,
  type TestService,
  type Wire,
} from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { partsOf, readWhole, sha256Of, upload } from "../support/uploading.js";

const KIB = 1024;
const MIB = 1024 * KIB;
const RESULT_BYTES = 20 * MIB;
const ARGUMENTS_BYTES = 6 * MIB;
const PART_BYTES_MAX = 256 * KIB;
/** A client takes 4 MiB at a time by default; the service promises that no reply is above 1 MiB. */
const RECEIVE_BYTES_MAX = MIB;

/** Bytes of which no two parts are alike. */
function numbered(sizeBytes: number): Uint8Array {
  const words = new Uint32Array(sizeBytes / 4);
  return new Uint8Array(words.map((_, at) => Math.imul(at, 0x9e3779b1)).buffer);
}

function largeArguments(): Uint8Array {
  const head = '{"id":2512292042121000001,"content":"';
  return bytes(`${head}${"x".repeat(ARGUMENTS_BYTES - head.length - 2)}"}`);
}

let folder: StoreFolder;
let service: TestService;

beforeAll(async () => {
  folder = await makeStoreFolder();
  service = await startTestService({ store: folder.store });
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

/** Clients that take no message above the limit. */
function limitedClients(wire: Wire): Clients {
  const readMaxBytes = RECEIVE_BYTES_MAX;
  if (wire === "grpc") {
    return clientsOf(
      createGrpcTransport({ baseUrl: `http://${service.grpcAddress}`, readMaxBytes }),
    );
  }
  const options = {
    ...{ baseUrl: `http://${service.httpAddress}`, readMaxBytes },
    httpVersion: "1.1" as const,
  };
  if (wire === "grpc-web") return clientsOf(createGrpcWebTransport(options));
  const useBinaryFormat = wire === "connect-binary";
  return clientsOf(createConnectTransport({ ...options, useBinaryFormat }));
}

describe("B76 payloads above every message limit", () => {
  const result = numbered(RESULT_BYTES);
  const callArguments = largeArguments();
  let run: OpenRun;
  let toolCallId: string;
  let asked: ToolCall;

  beforeAll(async () => {
    const clients = service.clients();
    run = await openRun(clients);
    const proposed = await upload(clients, run.sessionId, callArguments);
    const call = { toolName: "write", arguments: { bodyRef: proposed.bodyRef } };
    [{ toolCallId }, asked] = (await acceptTurn(clients, run, [call, call])) as [
      ToolCall,
      ToolCall,
    ];
    await openAsk(clients, run, asked.toolCallId);
    const amended = await upload(clients, run.sessionId, callArguments.subarray(1));
    const command = { toolCallId, effective: { bodyRef: amended.bodyRef } };
    await clients.calls.amendToolCall({ ...of(run), command });
    const { bodyRef } = await upload(clients, run.sessionId, result);
    const canonical = { case: "canonical" as const, value: { content: { bodyRef } } };
    await clients.calls.recordResult({ ...of(run), command: { toolCallId, result: canonical } });
  });

  describe.each(WIRES)("over %s", (wire) => {
    test("every read names them, and gives them by reference in ranges", async () => {
      const clients = limitedClients(wire);
      const { sessionId } = run;
      const read = await readCall(clients, sessionId, toolCallId);
      const other = await readCall(clients, sessionId, asked.toolCallId);
      expect(await allCalls(clients, sessionId)).toEqual([read, other]);
      expect((await allEvents(clients, sessionId)).length).toBeGreaterThan(5);
      const [ask] = (await clients.approvals.listAsks({ sessionId })).asks;
      expect(ask?.ask?.presented).toEqual(other.effective);
      for (const [body, data, isJsonObject] of [
        [read.proposed, callArguments, true],
        [read.effective, callArguments.subarray(1), false],
        [read.result?.content, result, false],
      ] as const) {
        const { bodyRef, ...said } = given(body, "body");
        expect(said).toMatchObject({ sizeBytes: BigInt(data.length), isJsonObject });
        expect(said.data).toBeUndefined();
        expect(Buffer.compare(said.sha256, sha256Of(data))).toBe(0);
        const whole = await readWhole(clients, sessionId, bodyRef);
        expect(Buffer.compare(whole.data, data)).toBe(0);
        expect(Math.max(...whole.parts)).toBeLessThanOrEqual(PART_BYTES_MAX);
        const range = { offsetBytes: 3n * BigInt(MIB) + 7n, limitBytes: BigInt(MIB) + 1n };
        const part = await readWhole(clients, sessionId, bodyRef, range);
        expect(Buffer.compare(part.data, data.subarray(3 * MIB + 7, 4 * MIB + 8))).toBe(0);
      }
    });

    test("others are answered while a large one is read", async () => {
      const clients = limitedClients(wire);
      const call = await readCall(clients, run.sessionId, toolCallId);
      const { bodyRef } = given(call.result?.content, "body");
      const answered: string[] = [];
      const request = { sessionId: run.sessionId, bodyRef };
      let asking: Promise<unknown> | undefined;
      const sizes: number[] = [];
      for await (const { chunk } of clients.history.readBody(request)) {
        asking ??= readSession(service.clients(), run.sessionId).then(() => answered.push("other"));
        if (answered.length > 0) sizes.push(chunk.length);
      }
      await asking;
      expect(sizes).not.toEqual([]);
    });
  });

  test("are stored once however often they are named", async () => {
    const clients = service.clients();
    const before = await readSession(clients, run.sessionId);
    const again = await upload(clients, run.sessionId, result);
    expect(await readSession(clients, run.sessionId)).toEqual(before);
    const call = await readCall(clients, run.sessionId, toolCallId);
    expect(again.bodyRef).toBe(call.result?.content?.bodyRef);
    expect(service.logged()).not.toContain("ReplyTooLarge");
  });
});

describe("B76 many payloads that just fit into a reply", () => {
  test.each(WIRES)("are listed in pages that a client takes, over %s", async (wire) => {
    const clients = service.clients();
    const run = await openRun(clients);
    const inline = service.config.limits.inlineBodyBytes;
    const calls = Array.from({ length: 40 }, (_, at) => ({
      toolName: "write",
      arguments: { data: new Uint8Array(inline).fill(at) },
    }));
    const turns = [calls.slice(0, 20), calls.slice(20)];
    for (const turn of turns) await acceptTurn(clients, run, turn);
    const readers = limitedClients(wire);
    const listed = await allCalls(readers, run.sessionId);
    expect(listed.map(({ proposed }) => proposed?.data?.[0])).toEqual(calls.map((_, at) => at));
    expect(listed.every(({ proposed }) => proposed?.data?.length === inline)).toBe(true);
    expect(await allEvents(readers, run.sessionId)).toHaveLength(2 + 2 + 40);
  });
});

describe("B76 what is over the hard cap is refused before any event", () => {
  const CAP = 5 * MIB;
  let capped: TestService;

  beforeAll(async () => {
    capped = await startTestService({ flags: ["--limit-body-bytes", String(CAP)] });
  });

  afterAll(async () => {
    await capped.stop();
  });

  test.each(WIRES)("as an upload, as soon as it is passed, over %s", async (wire) => {
    const clients = capped.clients(wire);
    const run = await openRun(capped.clients());
    let sent = 0;
    async function* parts() {
      for await (const part of partsOf(run.sessionId, new Uint8Array(64 * MIB))) {
        sent += 1;
        yield part;
      }
    }
    const refusal = await expectNothingWritten(capped, run.sessionId, () =>
      clients.evidence.writeBody(parts()),
    );
    expect(refusal).toMatchObject({
      code: Code.ResourceExhausted,
      reason: "BODY_TOO_LARGE",
      metadata: { field: "chunk", limit: String(CAP) },
    });
    expect(sent).toBeLessThan(64);
  });

  test("while one of exactly the cap is taken", async () => {
    const clients = capped.clients();
    const run = await openRun(clients);
    const { bodyRef, sizeBytes } = await upload(clients, run.sessionId, new Uint8Array(CAP));
    expect(sizeBytes).toBe(BigInt(CAP));
    const command = { role: MessageRole.USER, content: { bodyRef } };
    await clients.evidence.recordMessage({ ...of(run), command });
  });

  test.each(WIRES)("as a message above the message limit, over %s", async (wire) => {
    const run = await openRun(capped.clients());
    const content = { data: new Uint8Array(capped.config.limits.messageBytes) };
    const send = (requestId: string) => {
      const command = { role: MessageRole.USER, content };
      return capped.clients(wire).evidence.recordMessage({ ...of(run, requestId), command });
    };
    const refusal = await expectNothingWritten(capped, run.sessionId, send);
    expect(refusal.code).toBe(Code.ResourceExhausted);
  });

  test.each(WIRES)("as bytes in a command, over %s", async (wire) => {
    const tight = await startTestService({ flags: ["--limit-body-bytes", "1000"] });
    const clients = tight.clients(wire);
    const run = await openRun(clients);
    const { toolCallId } = await acceptCall(clients, run);
    const data = new Uint8Array(1001);
    const result = { case: "canonical" as const, value: { content: { data } } };
    const sends: ((requestId: string) => Promise<unknown>)[] = [
      (requestId) =>
        clients.calls.acceptTurn({
          ...of(run, requestId),
          command: { calls: [{ toolName: "write", arguments: { data } }] },
        }),
      (requestId) =>
        clients.calls.amendToolCall({
          ...of(run, requestId),
          command: { toolCallId, effective: { data } },
        }),
      (requestId) =>
        clients.calls.recordResult({ ...of(run, requestId), command: { toolCallId, result } }),
    ];
    for (const send of sends) {
      const refusal = await expectNothingWritten(tight, run.sessionId, send);
      expect(refusal).toMatchObject({ code: Code.ResourceExhausted, reason: "BODY_TOO_LARGE" });
    }
    await tight.stop();
  });
});
