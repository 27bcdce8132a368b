import { once } from "node:events";
import { connect } from "node:net";
import { create, fromJsonString, toBinary, toJsonString } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { Code, type ConnectError } from "@connectrpc/connect";
import type { Http2SessionManager } from "@connectrpc/connect-node";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  AcceptTurnRequestSchema,
  AcceptTurnResponseSchema,
  CallService,
} from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { PublishHookResponseSchema } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import type { Store } from "../../src/ledger/store-port.js";
import {
  acceptCall,
  allEvents,
  bytes,
  freshRequestId,
  given,
  of,
  openRun,
  publishHook,
  type OpenRun,
} from "../support/conversation.js";
import { FaultyStore } from "../support/faulty-store.js";
import { HeldStore } from "../support/held-store.js";
import { expectNothingWritten } from "../support/nothing-written.js";
import { refused } from "../support/refused.js";
import { scaled } from "../support/scale.js";
import {
  clientsOf,
  startTestService,
  transportOf,
  type Clients,
  type TestService,
} from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { pathOf, RawGrpcClient, until } from "./listeners-fixture.js";

let folder: StoreFolder;
let service: TestService;
let store: HeldStore;

beforeEach(async () => {
  folder = await makeStoreFolder();
  await start();
});

afterEach(async () => {
  await service.stop();
  await folder.remove();
});

async function start(): Promise<void> {
  let held: HeldStore | undefined;
  service = await startTestService({
    store: folder.store,
    wrapStore: (inner) => (held = new HeldStore(inner)),
  });
  store = given(held, "store");
}

async function restart(): Promise<void> {
  await service.stop();
  await start();
}

describe("duplicates of one request that are sent at once", () => {
  const COPIES = scaled(1000);

  /** What is wrong with the outcome of many copies, over four connections and two wires, one line each. */
  async function duplicateFaults(target: TestService): Promise<string[]> {
    const callers = (["grpc", "connect-json"] as const).flatMap((wire) => [
      target.clients(wire),
      target.clients(wire),
    ]);
    const [first] = callers;
    const run = await openRun(given(first, "client"));
    const { toolCallId } = await acceptCall(given(first, "client"), run);
    const before = await allEvents(given(first, "client"), run.sessionId);
    const requestId = freshRequestId();
    const send = async (clients: Clients): Promise<string> => {
      const hook = await publishHook(clients, run, toolCallId, requestId);
      const reply = create(PublishHookResponseSchema, { hook });
      return Buffer.from(toBinary(PublishHookResponseSchema, reply)).toString("base64");
    };
    const copies = Array.from({ length: COPIES }, (_, at) => given(callers[at % 4], "client"));
    const replies = await Promise.all(copies.map(send));
    replies.push(await send(given(first, "client")));
    const kinds = new Set(replies).size;
    const events = (await allEvents(given(first, "client"), run.sessionId)).length - before.length;
    return [
      ...(kinds === 1 ? [] : [`${kinds} different replies`]),
      ...(events === 1 ? [] : [`${events} events`]),
    ];
  }

  test("are one event with equal replies", async () => {
    expect(await duplicateFaults(service)).toEqual([]);
  });

  test("and a store that forgets requests is reported", async () => {
    const forgetful = await startTestService({ wrapStore: (inner) => new ForgetfulStore(inner) });
    expect(await duplicateFaults(forgetful)).toEqual([
      expect.stringMatching(/different replies/),
      expect.stringMatching(/events/),
    ]);
    await forgetful.stop();
  });

  test("in different sessions are different requests", async () => {
    const clients = service.clients();
    const [one, two] = await Promise.all([openRun(clients), openRun(clients)]);
    const requestId = freshRequestId();
    const hooks = await Promise.all([
      publishHook(clients, one, undefined, requestId),
      publishHook(clients, two, undefined, requestId),
    ]);
    expect(hooks[0].hookId).not.toBe(hooks[1].hookId);
  });
});

describe("an equal message in another encoding is a retry", () => {
  const path = pathOf(CallService.method.acceptTurn);
  const ARGUMENTS = bytes('{"a":"\u00e9\u{1f600}","b":[1]}');
  const command = {
    provider: "provider",
    model: "model",
    calls: [
      {
        toolName: "read",
        arguments: { data: ARGUMENTS, mediaType: "application/json" },
        pairing: { providerCallId: "call_0", opaque: Uint8Array.from([0xfb, 0xff, 0]) },
      },
      { toolName: "write", arguments: { data: new Uint8Array(0) } },
    ],
  };

  /** The message with the fields of every message in falling order, and one field given twice: the last counts. */
  function permuted({ sessionId, runId, requestId }: OpenRun & { requestId: string }): Uint8Array {
    const text = (writer: BinaryWriter, field: number, value: string) =>
      writer.tag(field, WireType.LengthDelimited).string(value);
    const part = (writer: BinaryWriter, field: number, value: Uint8Array) =>
      writer.tag(field, WireType.LengthDelimited).bytes(value);
    const body = part(text(new BinaryWriter(), 4, "application/json"), 1, ARGUMENTS).finish();
    const opaque = part(new BinaryWriter(), 3, Uint8Array.from([0xfb, 0xff, 0]));
    const pairing = text(opaque, 1, "call_0").finish();
    const first = part(part(new BinaryWriter(), 3, pairing), 2, body);
    const empty = part(new BinaryWriter(), 1, new Uint8Array(0)).finish();
    const second = part(new BinaryWriter(), 2, empty);
    const turn = part(
      part(new BinaryWriter(), 3, text(first, 1, "read").finish()),
      ...([3, text(second, 1, "write").finish()] as const),
    );
    const inner = text(text(turn, 2, "model"), 1, "provider").finish();
    const head = text(part(new BinaryWriter(), 4, inner), 3, "overwritten by what follows");
    return text(text(text(head, 3, requestId), 2, runId), 1, sessionId).finish();
  }

  /** The message in JSON as another program might write it: other names, other order, other base64, other escapes. */
  function otherJson({ sessionId, runId, requestId }: OpenRun & { requestId: string }): string {
    const data = Buffer.from(ARGUMENTS).toString("base64url");
    const pairing = `{"opaque":"-_8A","provider_call_id":"call_\\u0030"}`;
    const body = `{"media_type":"application\\/json","data":"${data}"}`;
    const first = `{"pairing":${pairing},"arguments":${body},"tool_name":"read"}`;
    const second = `{"arguments":{"data":"","sizeBytes":"0"},"toolName":"write","pairing":null}`;
    const turn = `{ "calls" : [ ${first}, ${second} ], "model":"model", "provider":"provider" }`;
    return `{"command":${turn},"request_id":"${requestId}",
      "run_id":"${runId}","session_id":"${sessionId}"}`;
  }

  async function asJson(text: string): Promise<Uint8Array> {
    const headers = { "content-type": "application/json" };
    const url = `http://${service.httpAddress}${path}`;
    const reply = await fetch(url, { method: "POST", headers, body: text });
    const answer = await reply.text();
    expect(`${reply.status} ${answer}`).toMatch(/^200 /);
    return toBinary(AcceptTurnResponseSchema, fromJsonString(AcceptTurnResponseSchema, answer));
  }

  async function asBinary(message: Uint8Array): Promise<Uint8Array> {
    const client = new RawGrpcClient({ ...service, drain: () => service.stop() });
    const reply = await client.unary(path, message);
    client.close();
    if (!Buffer.isBuffer(reply)) throw new Error(JSON.stringify(reply));
    return reply;
  }

  test.each(["JSON first", "binary first"])("%s", async (order) => {
    const clients = service.clients();
    const run = await openRun(clients);
    const head = of(run);
    const request = create(AcceptTurnRequestSchema, { ...head, command });
    const sends = [
      () => asBinary(toBinary(AcceptTurnRequestSchema, request)),
      () => asBinary(permuted(head)),
      () => asJson(toJsonString(AcceptTurnRequestSchema, request)),
      () => asJson(otherJson(head)),
    ];
    if (order === "JSON first") sends.reverse();
    expect(hexOf(permuted(head))).not.toBe(hexOf(toBinary(AcceptTurnRequestSchema, request)));

    const replies: string[] = [];
    for (const send of sends) replies.push(hexOf(await send()));
    await restart();
    for (const send of sends) replies.push(hexOf(await send()));
    expect(new Set(replies).size).toBe(1);
    expect((await allEvents(service.clients(), run.sessionId)).length).toBe(5);
  });

  test("while one byte more is another message", async () => {
    const run = await openRun(service.clients());
    const head = of(run);
    await asBinary(permuted(head));
    const calls = [...command.calls, { toolName: "write", arguments: { data: bytes("") } }];
    const more = { ...head, command: { ...command, calls } };
    const refusal = await expectNothingWritten(service, run.sessionId, () =>
      service.clients().calls.acceptTurn(more),
    );
    expect(refusal).toMatchObject({ code: Code.AlreadyExists, reason: "REQUEST_ID_REUSED" });
  });
});

describe("a reply that is lost with its connection is told by a retry", () => {
  const HOOK = { phase: "session_start", decision: HookDecision.INFO };

  /** Each sends the request and kills its connection once the command is stored. */
  const losers: [string, (run: OpenRun, requestId: string) => Promise<void>][] = [
    [
      "grpc",
      async (run, requestId) => {
        const connections: Http2SessionManager[] = [];
        const { grpcAddress, httpAddress } = service;
        const own = clientsOf(transportOf("grpc", grpcAddress, httpAddress, connections));
        await own.info.getServerInfo({});
        const lost = own.evidence.publishHook({ ...of(run, requestId), command: HOOK });
        const failed = lost.catch((fault: unknown) => fault as ConnectError);
        await until(() => store.waiting === 1);
        for (const connection of connections) connection.abort();
        expect(await failed).toMatchObject({ code: Code.Canceled });
      },
    ],
    [
      "connect-json",
      async (run, requestId) => {
        const [host, port] = service.httpAddress.split(":");
        const socket = connect(Number(port), host);
        const command = { phase: HOOK.phase, decision: "HOOK_DECISION_INFO" };
        const body = JSON.stringify({ ...of(run, requestId), command });
        socket.write(
          `POST /toolmark.engine.v1.EvidenceService/PublishHook HTTP/1.1\r\nhost: localhost\r\n` +
            `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
        );
        await until(() => store.waiting === 1);
        socket.destroy();
        await once(socket, "close");
      },
    ],
  ];

  test.each(losers)("over %s, at once and after a restart", async (wire, lose) => {
    const run = await openRun(service.clients());
    const before = await allEvents(service.clients(), run.sessionId);
    const requestId = freshRequestId();
    store.hold();
    await lose(run, requestId);
    store.release();

    const retry = async () => {
      const clients = service.clients(wire as "grpc" | "connect-json");
      const request = { ...of(run, requestId), command: HOOK };
      return (await clients.evidence.publishHook(request)).hook;
    };
    const hook = await retry();
    await restart();
    expect(await retry()).toEqual(hook);
    const after = await allEvents(service.clients(), run.sessionId);
    expect(after.length).toBe(before.length + 1);
    expect(after.at(-1)?.record?.record.value).toEqual(hook);
  });
});

test("an id that was refused, in whatever encoding, is free after a restart too", async () => {
  const run = await openRun(service.clients());
  const requestId = freshRequestId();
  const twice = { calls: ["a", "a"].map((id) => ({ ...turnOf(id) })) };
  for (const wire of ["grpc", "connect-json"] as const) {
    const wrong = service.clients(wire).calls.acceptTurn({ ...of(run, requestId), command: twice });
    expect((await refused(wrong)).reason).toBe("DUPLICATE_PROVIDER_CALL_ID");
    await restart();
  }
  const once_ = { calls: [turnOf("a")] };
  await service.clients().calls.acceptTurn({ ...of(run, requestId), command: once_ });
});

function turnOf(providerCallId: string) {
  return { toolName: "bash", arguments: { data: bytes("{}") }, pairing: { providerCallId } };
}

/** A store that keeps no request. */
class ForgetfulStore extends FaultyStore {
  override commit: Store["commit"] = (writes) =>
    super.commit(writes.map((write) => ({ ...write, request: undefined })));
}

function hexOf(data: Uint8Array): string {
  return Buffer.from(data).toString("hex");
}
