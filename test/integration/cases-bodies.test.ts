import { createHash } from "node:crypto";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import { SessionService } from "../../gen/toolmark/v1/session_service_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { createMemoryDisk } from "../../src/store/memory/memory-disk.js";
import { createMemoryStore } from "../../src/store/memory/memory-store.js";
import { openSqliteStore } from "../../src/store/sqlite/sqlite-store.js";
import {
  acceptCall,
  allCalls,
  allEvents,
  bytes,
  given,
  of,
  openRun,
  publishHook,
  readCall,
  readSession,
} from "../support/conversation.js";
import { anythingElse, writtenTo } from "../support/nothing-written.js";
import { startTestService, WIRES, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { pathOf, RawGrpcClient } from "./listeners-fixture.js";

interface Sample {
  readonly what: string;
  readonly data: Uint8Array<ArrayBuffer>;
  readonly isJsonObject: boolean;
}

const NUMBERS = '{"id":2512292042121000001,"neg":-0,"f":1.0,"big":1e400}';

const B22: readonly Sample[] = [
  sample("an unterminated object", '{"command": "cd /x', false),
  sample("the empty string", "", false),
  sample("an array", "[1]", false),
];
const B77: readonly Sample[] = [
  sample("numbers that no double holds", NUMBERS, true),
  sample("the same with other spaces", ` ${NUMBERS}\n`, true),
];
const B78: readonly Sample[] = [
  sample("the JSON escape of a lone surrogate", String.raw`{"text":"a\ud800b"}`, true),
  {
    what: "the bytes of a lone surrogate",
    data: Uint8Array.from([...bytes('{"text":"'), 0xed, 0xa0, 0x80, ...bytes('"}')]),
    isJsonObject: false,
  },
  {
    what: "every byte",
    data: Uint8Array.from({ length: 256 }, (_, index) => index),
    isJsonObject: false,
  },
];

function sample(what: string, text: string, isJsonObject: boolean): Sample {
  return { what, data: bytes(text), isJsonObject };
}

let folder: StoreFolder;
let service: TestService;
let readers: readonly Clients[] = [];

beforeAll(async () => {
  folder = await makeStoreFolder();
  service = await startTestService({ store: folder.store });
  readers = WIRES.map((wire) => service.clients(wire));
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

const cases = [
  ...B22.map((one) => ["B22", one.what, one] as const),
  ...B77.map((one) => ["B77", one.what, one] as const),
  ...B78.map((one) => ["B78", one.what, one] as const),
];

describe.each(cases)("%s %s", (_case, _what, { data, isJsonObject }) => {
  test.each(WIRES)("is accepted, recorded and read over %s as the same bytes", async (wire) => {
    const clients = service.clients(wire);
    const run = await openRun(clients);
    const call = { toolName: "bash", arguments: { data, mediaType: "application/json" } };
    const { toolCallId } = await acceptCall(clients, run, call);
    const result = { case: "canonical" as const, value: { content: { data } } };
    await clients.calls.recordResult({ ...of(run), command: { toolCallId, result } });

    const sizeBytes = BigInt(data.length);
    const whole = { data: hexOf(data), sha256: sha256(data), sizeBytes, isJsonObject };
    for (const reader of readers) {
      const read = await readCall(reader, run.sessionId, toolCallId);
      const [listed] = await allCalls(reader, run.sessionId);
      for (const body of [...bodiesOf(read), ...bodiesOf(given(listed, "call"))]) {
        expect(shown(body)).toEqual(whole);
      }
      const { bodyRef } = given(read.effective, "body");
      expect(hexOf(await readBody(reader, run.sessionId, bodyRef))).toBe(whole.data);
      for (const body of await eventBodies(reader, run.sessionId)) {
        expect(shown(body)).toEqual({ ...whole, data: undefined });
      }
    }
  });

  test("may replace other arguments and is told from them", async () => {
    const clients = service.clients("connect-json");
    const run = await openRun(clients);
    const { toolCallId } = await acceptCall(clients, run);
    const command = { toolCallId, effective: { data } };
    await clients.calls.amendToolCall({ ...of(run), command });
    const amended = await readCall(clients, run.sessionId, toolCallId);
    expect(shown(given(amended.effective, "body"))).toMatchObject({
      data: hexOf(data),
      isJsonObject,
    });
    expect(hexOf(amended.proposed?.data)).toBe(hexOf(bytes('{"command":"ls"}')));
  });
});

test("the comparison sees bytes that were parsed, or decoded and encoded, again", () => {
  const decode = (data: Uint8Array): string => new TextDecoder().decode(data);
  const parsed = B77.map(({ data }) => bytes(JSON.stringify(JSON.parse(decode(data)))));
  expect(parsed.filter((data, index) => hexOf(data) === hexOf(B77[index]?.data))).toEqual([]);
  const [, ...binary] = B78;
  const encoded = binary.map(({ data }) => bytes(decode(data)));
  expect(encoded.filter((data, index) => hexOf(data) === hexOf(binary[index]?.data))).toEqual([]);
});

describe("B78 text that is not well-formed Unicode is refused with nothing written", () => {
  const { createSession } = SessionService.method;
  const url = () => `http://${service.httpAddress}${pathOf(createSession)}`;
  const binary = new BinaryWriter()
    .tag(1, WireType.LengthDelimited)
    .string("ill-formed")
    .tag(3, WireType.Varint)
    .int32(1)
    .tag(4, WireType.LengthDelimited)
    .bytes(Uint8Array.from([0x61, 0xed, 0xa0, 0x80, 0x62]))
    .finish();
  const json = (title: string) => `{"requestId":"ill-formed","kind":1,"title":"${title}"}`;
  const post = async (type: string, body: BodyInit) => {
    const headers = { "content-type": type };
    const reply = await fetch(url(), { method: "POST", headers, body });
    return { status: reply.status, text: await reply.text() };
  };
  /** Every listener decodes by the same rule, so all answer alike. */
  const wrong: [string, () => Promise<unknown>, unknown][] = [
    [
      "native gRPC",
      async () => {
        const client = new RawGrpcClient({ ...service, drain: () => service.stop() });
        const reply = await client.unary(pathOf(createSession), binary);
        client.close();
        return reply;
      },
      { code: "InvalidArgument", errorInfo: { reason: "REQUEST_UNDECODABLE" } },
    ],
    [
      "Connect binary",
      () => post("application/proto", Uint8Array.from(binary)),
      { status: 400, text: expect.stringContaining('"code":"invalid_argument"') as string },
    ],
    [
      "gRPC-Web",
      () => post("application/grpc-web+proto", frameOf(binary)),
      { status: 200, text: expect.stringContaining("grpc-status: 3") as string },
    ],
    [
      "Connect JSON, as an escape",
      () => post("application/json", json(String.raw`a\ud800b`)),
      { status: 400, text: expect.stringContaining('"code":"invalid_argument"') as string },
    ],
    [
      "Connect JSON, as bytes",
      () => post("application/json", Uint8Array.from(Buffer.from(json("a\xffb"), "latin1"))),
      { status: 400, text: expect.stringContaining('"code":"invalid_argument"') as string },
    ],
  ];

  test.each(wrong)("over %s", async (_wire, send, expected) => {
    const clients = service.clients();
    const { sessionId } = await openRun(clients);
    const before = await writtenTo(service, clients, sessionId);
    expect(await send()).toMatchObject(expected as object);
    expect(await writtenTo(service, clients, sessionId)).toEqual(before);
    await anythingElse(clients, sessionId)("ill-formed");
  });

  test("while the same request with well-formed text is accepted", async () => {
    const accepted = await post("application/json", json("a\u{1f600}b"));
    expect(accepted).toMatchObject({
      status: 200,
      text: expect.stringContaining("ses_") as string,
    });
  });
});

describe("B77 revisions above 2^53 survive the store and the JSON mapping", () => {
  const generation = 1n << 22n;
  const first = (1n << 54n) + 1n;

  test("in memory", async () => {
    const disk = createMemoryDisk(generation);
    await expectExact(() => startTestService({ wrapStore: () => createMemoryStore({ disk }) }));
  });

  test("in SQLite", async () => {
    const own = await makeStoreFolder();
    const store = await openSqliteStore({ path: own.path, storeId: "test", generation });
    await store.close();
    await expectExact(() => startTestService({ store: own.store }));
    await own.remove();
  });

  /** Loading a session lifts its revisions to those of the log's generation. */
  async function expectExact(start: () => Promise<TestService>): Promise<void> {
    let running = await start();
    const run = await openRun(running.clients());
    await running.stop();
    running = await start();
    const hooks = [1n, 2n, 3n].map(() => publishHook(running.clients("connect-json"), run));
    const revisions = (await Promise.all(hooks)).map(({ revision }) => given(revision, "revision"));
    expect(revisions.sort()).toEqual([first, first + 1n, first + 2n]);
    await running.stop();

    running = await start();
    for (const wire of WIRES) {
      const clients = running.clients(wire);
      const events = await allEvents(clients, run.sessionId);
      expect(events.flatMap(({ revision }) => revision ?? [])).toEqual(revisions);
      expect((await readSession(clients, run.sessionId)).highWater).toBe(first + 2n);
    }
    expect(await eventsAsJson(running, run.sessionId)).toContain(`"revision":"${first}"`);
    const next = await publishHook(running.clients("connect-json"), run);
    expect(next.revision).toBe(first + 3n);
    await running.stop();
  }
});

async function eventsAsJson({ httpAddress }: TestService, sessionId: string): Promise<string> {
  const path = "/toolmark.v1.HistoryService/ListEvents";
  const reply = await fetch(`http://${httpAddress}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ sessionId }),
  });
  return reply.text();
}

function bodiesOf(call: ToolCall): Body[] {
  return [call.proposed, call.effective, call.result?.content].map((body) => given(body, "body"));
}

async function eventBodies(clients: Clients, sessionId: string): Promise<Body[]> {
  const events = await allEvents(clients, sessionId);
  return events.flatMap(({ record }) => {
    if (record?.record.case !== "toolCall") return [];
    const { proposed, effective, result } = record.record.value;
    return [proposed, effective, result?.content].filter((body) => body !== undefined);
  });
}

async function readBody({ history }: Clients, sessionId: string, bodyRef: string): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const { chunk } of history.readBody({ sessionId, bodyRef })) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** A short message as gRPC-Web carries it. */
function frameOf(message: Uint8Array): Uint8Array<ArrayBuffer> {
  return Uint8Array.from([0, 0, 0, 0, message.length, ...message]);
}

function sha256(data: Uint8Array): string {
  return createHash("sha256").update(data).digest("hex");
}

function hexOf(data: Uint8Array | undefined): string | undefined {
  return data === undefined ? undefined : Buffer.from(data).toString("hex");
}

/** What a reader is told of a body. */
function shown({ data, sha256: digest, sizeBytes, isJsonObject }: Body) {
  return { data: hexOf(data), sha256: hexOf(digest), sizeBytes, isJsonObject };
}
