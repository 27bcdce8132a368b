import { create, toBinary } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, test } from "vitest";
import { CallService } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import {
  CreateSessionRequestSchema,
  SessionService,
} from "../../gen/toolmark/v1/session_service_pb.js";
import { acceptCall, openRun, type OpenRun } from "../support/conversation.js";
import { anythingElse, writtenTo } from "../support/nothing-written.js";
import { startTestService, type TestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { grpcFrame, post } from "../support/wire-answer.js";
import { pathOf } from "./listeners-fixture.js";

const CREATE = pathOf(SessionService.method.createSession);
const REQUEST_ID = "undecoded";
const NONSENSE = Uint8Array.from([0xff, 0xff]);
const LARGE = new Uint8Array(4001);
const MESSAGE = toBinary(
  CreateSessionRequestSchema,
  create(CreateSessionRequestSchema, { requestId: REQUEST_ID, kind: SessionKind.MAIN }),
);
const GRPC = { "content-type": "application/grpc" };
const GRPC_WEB = { "content-type": "application/grpc-web+proto" };
const CONNECT = { "content-type": "application/proto" };
const JSON_TYPE = { "content-type": "application/json" };

let folder: StoreFolder;
let service: TestService;
let run: OpenRun;
let toolCallId = "";

beforeAll(async () => {
  folder = await makeStoreFolder();
  const flags = ["--limit-message-bytes", "4000"];
  service = await startTestService({ store: folder.store, flags });
  run = await openRun(service.clients());
  ({ toolCallId } = await acceptCall(service.clients(), run));
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

type Headers = Readonly<Record<string, string>>;

interface Wrong {
  readonly what: string;
  readonly headers: Headers;
  readonly path?: string;
  readonly body: () => Uint8Array;
  /** HTTP status, then the gRPC status or the Connect code, then the reason if there is one. */
  readonly answer: string;
}

const json = (text: string) => () => Buffer.from(text);
const NO_METHOD = `/${SessionService.typeName}/NoSuchMethod`;
const NO_SERVICE = "/toolmark.v1.NoSuchService/NoSuchMethod";

/** Errors that may be raised before a handler, as COMPATIBILITY.md lists them. */
const WRONG: readonly Wrong[] = [
  {
    what: "bytes that are no message, over gRPC",
    ...{ headers: GRPC, body: () => grpcFrame(NONSENSE) },
    answer: "200 3 REQUEST_UNDECODABLE",
  },
  {
    what: "bytes that are no message, over gRPC-Web",
    ...{ headers: GRPC_WEB, body: () => grpcFrame(NONSENSE) },
    answer: "200 3 REQUEST_UNDECODABLE",
  },
  {
    what: "bytes that are no message, over Connect",
    ...{ headers: CONNECT, body: () => NONSENSE },
    answer: "400 invalid_argument REQUEST_UNDECODABLE",
  },
  {
    what: "no JSON",
    headers: JSON_TYPE,
    body: json("{"),
    answer: "400 invalid_argument REQUEST_UNDECODABLE",
  },
  {
    what: "JSON with a field that is not known",
    ...{ headers: JSON_TYPE, body: json(`{"requestId":"${REQUEST_ID}","kind":1,"knid":2}`) },
    answer: "400 invalid_argument REQUEST_UNDECODABLE",
  },
  {
    what: "JSON with an enum value of another type",
    ...{ headers: JSON_TYPE, body: json(`{"requestId":"${REQUEST_ID}","kind":true}`) },
    answer: "400 invalid_argument REQUEST_UNDECODABLE",
  },
  {
    what: "JSON with an end that is not known, which must not pass for none",
    headers: JSON_TYPE,
    path: pathOf(CallService.method.recordResult),
    body: () => {
      const canonical = { content: { data: "eA==" }, end: "TOOL_CALL_STATE_BLOCKED_BY_HOOK" };
      const command = { toolCallId, canonical };
      return Buffer.from(JSON.stringify({ ...run, requestId: REQUEST_ID, command }));
    },
    answer: "400 invalid_argument REQUEST_UNDECODABLE",
  },
  {
    what: "a message above the limit, over gRPC",
    ...{ headers: GRPC, body: () => grpcFrame(LARGE) },
    answer: "200 8",
  },
  {
    what: "a message above the limit, over gRPC-Web",
    ...{ headers: GRPC_WEB, body: () => grpcFrame(LARGE) },
    answer: "200 8",
  },
  {
    what: "a message above the limit, over Connect",
    ...{ headers: CONNECT, body: () => LARGE },
    answer: "429 resource_exhausted",
  },
  {
    what: "a message above the limit, over Connect JSON",
    ...{ headers: JSON_TYPE, body: json(`{"title":"${"x".repeat(4001)}"}`) },
    answer: "429 resource_exhausted",
  },
  {
    what: "an unknown method, over gRPC",
    ...{ headers: GRPC, path: NO_METHOD, body: () => grpcFrame(MESSAGE) },
    answer: "200 12",
  },
  {
    what: "an unknown service, over gRPC",
    ...{ headers: GRPC, path: NO_SERVICE, body: () => grpcFrame(MESSAGE) },
    answer: "200 12",
  },
  {
    what: "an unknown method, over gRPC-Web",
    ...{ headers: GRPC_WEB, path: NO_METHOD, body: () => grpcFrame(MESSAGE) },
    answer: "404",
  },
  {
    what: "an unknown method, over Connect",
    ...{ headers: CONNECT, path: NO_METHOD, body: () => MESSAGE },
    answer: "404",
  },
  {
    what: "an unknown compression, over gRPC",
    headers: { ...GRPC, "grpc-encoding": "zstd" },
    body: () => Buffer.concat([Buffer.from([1]), grpcFrame(MESSAGE).subarray(1)]),
    answer: "200 12",
  },
  {
    what: "an unknown compression, over Connect",
    headers: { ...CONNECT, "content-encoding": "zstd" },
    body: () => MESSAGE,
    answer: "501 unimplemented",
  },
  {
    what: "an unknown content type, over gRPC",
    headers: { "content-type": "text/plain" },
    body: () => grpcFrame(MESSAGE),
    answer: "415",
  },
  {
    what: "an unknown content type, over Connect",
    headers: { "content-type": "text/plain; charset=utf-8" },
    body: () => MESSAGE,
    answer: "415",
  },
  {
    what: "no message, over gRPC",
    ...{ headers: GRPC, body: () => new Uint8Array(0) },
    answer: "200 12",
  },
  {
    what: "half a message, over gRPC",
    ...{ headers: GRPC, body: () => grpcFrame(MESSAGE).subarray(0, 9) },
    answer: "200 12",
  },
  {
    what: "a timeout that is no number, over Connect",
    headers: { ...CONNECT, "connect-timeout-ms": "soon" },
    body: () => MESSAGE,
    answer: "400 invalid_argument",
  },
];

test.each(WRONG)("$what: $answer, with nothing written", async ({ what, ...wrong }) => {
  const clients = service.clients();
  const before = await writtenTo(service, clients, run.sessionId);
  const address = what.endsWith(" gRPC") ? service.grpcAddress : service.httpAddress;
  expect(await answerOf(address, wrong.path ?? CREATE, wrong.headers, wrong.body())).toBe(
    wrong.answer,
  );
  expect(await writtenTo(service, clients, run.sessionId)).toEqual(before);
});

test("the request id of all of them is free, and the same message is accepted", async () => {
  const answers = [
    await answerOf(service.grpcAddress, CREATE, GRPC, grpcFrame(MESSAGE)),
    await answerOf(service.httpAddress, CREATE, GRPC_WEB, grpcFrame(MESSAGE)),
    await answerOf(service.httpAddress, CREATE, CONNECT, MESSAGE),
    await answerOf(
      service.httpAddress,
      CREATE,
      JSON_TYPE,
      json(`{"requestId":"${REQUEST_ID}","kind":"SESSION_KIND_MAIN"}`)(),
    ),
  ];
  expect(answers).toEqual(["200 0", "200 0", "200", "200"]);
  await anythingElse(service.clients(), run.sessionId)(REQUEST_ID);
});

/** HTTP status, gRPC status or Connect code, and the reason of an ErrorInfo, as far as there is each. */
async function answerOf(
  address: string,
  path: string,
  headers: Headers,
  body: Uint8Array,
): Promise<string> {
  const answer = await post(address, path, headers, body);
  const text = Buffer.from(answer.body, "hex").toString("latin1");
  const ends = { ...answer.headers, ...answer.trailers };
  const status = ends["grpc-status"] ?? /grpc-status: ?(\d+)/.exec(text)?.[1];
  const code = /"code":"(\w+)"/.exec(text)?.[1];
  const encoded = ends["grpc-status-details-bin"] ?? /details-bin: ?(\S+)/.exec(text)?.[1] ?? "";
  const details = Buffer.from(String(encoded), "base64");
  const reason = /google\.rpc\.ErrorInfo\W*([A-Z_]{4,})/.exec(details.toString("latin1"))?.[1];
  const parts = [ends[":status"], status ?? code, reason ?? /"reason":"(\w+)"/.exec(text)?.[1]];
  return parts.filter((part) => part !== undefined).join(" ");
}
