import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { toJson, type DescMessage, type JsonValue, type MessageShape } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  GetAskResponseSchema,
  GetReceiptResponseSchema,
} from "../../gen/toolmark/v1/approval_service_pb.js";
import {
  GetAuthorizationResponseSchema,
  GetToolCallResponseSchema,
  ListEventsResponseSchema,
  ListHooksResponseSchema,
  ListToolCallsResponseSchema,
  ReadBodyResponseSchema,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { GetSessionResponseSchema } from "../../gen/toolmark/v1/session_service_pb.js";
import { BUF, bufCurlClient, connectNodeClient, grpcJsClient } from "../support/any-clients.js";
import {
  doMainJob,
  readMainJob,
  type AnyClient,
  type JobDone,
  type ToldRefusal,
} from "../support/main-job.js";
import { runProcess } from "../support/run-process.js";
import { testScale } from "../support/scale.js";
import { startTestService, type TestService } from "../support/service.js";
import { ROOT } from "../support/source-tree.js";
import { TRANSPORTS } from "./listeners-fixture.js";

const PROCESS_TIMEOUT_MS = 120_000;

/** Where a test's client finds the service. */
interface Place {
  readonly service: TestService;
  /** The contracts, compiled once for all calls of `buf curl`. */
  readonly schema: string;
}

const transportsOf = TRANSPORTS.map(([name, transportTo]) => {
  const clientOf = ({ service: { stop: drain, ...rest } }: Place) =>
    connectNodeClient(transportTo({ ...rest, drain }));
  return [`connect-node, ${name}`, clientOf] as const;
});

type NamedClient = readonly [string, (place: Place) => AnyClient];

/** A process for each call: left out of the short run, which has two others like them. */
const SLOW_CLIENTS: readonly NamedClient[] = [
  [
    "buf curl, gRPC",
    ({ service: { grpcAddress }, schema }) =>
      bufCurlClient(grpcAddress, "--protocol", "grpc", "--schema", schema),
  ],
  [
    "buf curl, gRPC-Web",
    ({ service: { httpAddress }, schema }) =>
      bufCurlClient(httpAddress, "--protocol", "grpcweb", "--schema", schema),
  ],
];

/** Every client, by name. */
const CLIENTS: readonly NamedClient[] = [
  ...transportsOf,
  ["grpc-js", (place) => grpcJsClient(place.service.grpcAddress)],
  [
    "buf curl, gRPC by reflection",
    (place) => bufCurlClient(place.service.grpcAddress, "--protocol", "grpc"),
  ],
  ...(testScale() === "short" ? [] : SLOW_CLIENTS),
  [
    "buf curl, Connect",
    ({ service: { httpAddress }, schema }) => bufCurlClient(httpAddress, "--schema", schema),
  ],
];

/** What a client did and saw, without what differs from session to session. */
interface Account {
  readonly read: JsonValue;
  readonly refusal: ToldRefusal;
}

let folder = "";
let place: Place;
let expected: Account;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clients-"));
  const schema = join(folder, "schema.binpb");
  const built = await runProcess(BUF, ["build", "-o", schema], { cwd: ROOT });
  if (built.code !== 0) throw new Error(built.stderr);
  const service = await startTestService({ store: `sqlite:${join(folder, "toolmark.db")}` });
  place = { service, schema };
  expected = await accountOf(CLIENTS[0]![1](place));
});

afterAll(async () => {
  await place.service.stop();
  await rm(folder, { recursive: true });
});

async function accountOf(client: AnyClient): Promise<Account> {
  const job = await doMainJob(client);
  const read = await readMainJob(client, job);
  const list = <Desc extends DescMessage>(schema: Desc, messages: readonly MessageShape<Desc>[]) =>
    messages.map((message) => toJson(schema, message));
  const account = {
    refusal: job.refusal,
    read: [
      ...list(GetSessionResponseSchema, [read.session]),
      ...list(GetToolCallResponseSchema, read.calls),
      ...list(ListToolCallsResponseSchema, [read.listed]),
      ...list(ListHooksResponseSchema, [read.hooks]),
      ...list(ListEventsResponseSchema, [read.events]),
      ...list(ReadBodyResponseSchema, read.result),
      ...list(GetAskResponseSchema, [read.ask]),
      ...list(GetReceiptResponseSchema, [read.receipt]),
      ...list(GetAuthorizationResponseSchema, [read.authorization]),
    ],
  };
  return normalised(account, job);
}

const ID = /\b[a-z]{2,4}_[0-9a-z]{26}\b/g;
const TIME = /"\d{4}-\d\d-\d\dT[^"]*Z"/g;

/** Ids become numbers in the order in which they appear; times, positions and chains a word. */
function normalised(account: Account, { sessionId }: JobDone): Account {
  const numbers = new Map<string, number>([[sessionId, 0]]);
  const text = JSON.stringify(account)
    .replace(ID, (id) => {
      if (!numbers.has(id)) numbers.set(id, numbers.size);
      return `id ${numbers.get(id) ?? ""}`;
    })
    .replace(TIME, '"time"')
    .replace(/"position":"\d+"/g, '"position":"any"')
    .replace(/"chain":"[^"]+"/g, '"chain":"any"');
  return JSON.parse(text) as Account;
}

describe("the main job", () => {
  test("ends with a call that was amended, allowed and granted, and one that a hook blocked", () => {
    expect(expected.read).toMatchObject([
      { session: { title: "gr\u00fcezi", state: "SESSION_STATE_OPEN", highWater: "18" } },
      {
        toolCall: {
          toolName: "read_file",
          state: "TOOL_CALL_STATE_COMPLETED",
          ran: "RAN_YES",
          proposed: { data: base64('{ "path": "a.txt" }') },
          effective: { data: base64('{"path":"b.txt"}') },
          result: { isError: true, content: { data: base64("\u0000 any bytes \u2713") } },
        },
      },
      { toolCall: { toolName: "remove_file", state: "TOOL_CALL_STATE_BLOCKED", ran: "RAN_NO" } },
      { toolCalls: [{ toolName: "read_file" }, { toolName: "remove_file" }] },
      {
        hooks: [
          { decision: "HOOK_DECISION_BLOCKED", text: "never remove" },
          { hookName: "c", review: { disposition: "REVIEW_DISPOSITION_ASK_ACTION" } },
        ],
      },
      { events: expect.any(Array) as unknown },
      { chunk: base64("\u0000 any bytes \u2713") },
      { ask: { ask: { state: "ASK_STATE_ANSWERED", prompt: "May it?" } } },
      { receipt: { spendState: "SPEND_STATE_SPENT", reason: "gr\u00fcezi" } },
      { authorization: { state: "AUTHORIZATION_STATE_GRANTED" } },
    ]);
    expect(expected.refusal).toMatchObject({ code: 9, reason: "TOOL_CALL_ENDED" });
  });

  // At the same time: most of it is waiting for processes.
  test.concurrent.each(CLIENTS)(
    "is done alike by %s",
    { timeout: PROCESS_TIMEOUT_MS },
    async (_name, clientOf) => {
      const client = clientOf(place);
      expect(await accountOf(client)).toEqual(expected);
      client.close();
    },
  );

  test("is not done alike if a client drops a byte", async () => {
    const inner = CLIENTS[0]![1](place);
    const client: AnyClient = {
      ...inner,
      stream: async (method, request) => (await inner.stream(method, request)).slice(1),
    };
    expect(await accountOf(client)).not.toEqual(expected);
  });
});

function base64(text: string): string {
  return Buffer.from(text).toString("base64");
}
