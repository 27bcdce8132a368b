import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create, toJson } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { Http2SessionManager } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { AcceptTurnResponseSchema } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import { EventSchema } from "../../gen/toolmark/v1/event_pb.js";
import { HookSchema } from "../../gen/toolmark/v1/hook_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionSchema } from "../../gen/toolmark/v1/session_pb.js";
import {
  ToolCallSchema,
  ToolCallState,
  ToolResultKind,
  type ToolCall,
} from "../../gen/toolmark/v1/tool_call_pb.js";
import { clientsHeardBy, Heard } from "../support/heard.js";
import { readBack, type ReadBack } from "../support/read-back.js";
import {
  isPublicValue,
  readExchange,
  readRecordedExchanges,
  type RecordedExchange,
} from "../support/recorded-exchanges.js";
import { recordedFolder } from "../support/recorded-files.js";
import {
  ARGUMENTS_TYPE,
  playExchange,
  TEXT_TYPE,
  type PlayedCall,
  type PlayedSession,
} from "../support/recorded-session.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { storedValues } from "../support/stored-tables.js";

const WIRES = ["grpc", "connect-json"] as const;
const PLAYED_AT_ONCE = 8;
const PAGE_SIZE = 7;
/** Shorter values are found by chance. */
const SCANNED_BYTES_MIN = 5;
const SETUP_TIMEOUT_MS = 120_000;
const PRIVATE_TABLE = "pairings";

const exchanges = readRecordedExchanges();
if (exchanges === undefined) {
  process.stdout.write(
    `recorded exchanges: not sent to the service, there is no ${recordedFolder()}\n`,
  );
}

/** A service on a file, and clients that hear everything that it says. */
interface HeardService {
  readonly service: TestService;
  readonly clients: readonly Clients[];
  stop(): Promise<void>;
}

async function startHeard(path: string, heard: Heard): Promise<HeardService> {
  const service = await startTestService({ store: `sqlite:${path}` });
  const connections: Http2SessionManager[] = [];
  return {
    service,
    clients: WIRES.map((wire) => clientsHeardBy(heard, wire, service, connections)),
    stop: async () => {
      for (const connection of connections) connection.abort();
      await service.stop();
      heard.add("log", service.logged());
    },
  };
}

/** Works on all items, a few at a time; the results are in the order of the items. */
async function eachOf<Item, Result>(
  items: readonly Item[],
  work: (item: Item, index: number) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = [];
  const left = items.entries();
  const workOn = async (): Promise<void> => {
    for (const [index, item] of left) results[index] = await work(item, index);
  };
  await Promise.all(Array.from({ length: PLAYED_AT_ONCE }, workOn));
  return results;
}

function comparable({ session, calls, callsById, hooks, events, bodies }: ReadBack) {
  return {
    session: toJson(SessionSchema, session),
    calls: calls.map((call) => toJson(ToolCallSchema, call)),
    callsById: callsById.map((call) => toJson(ToolCallSchema, call)),
    hooks: hooks.map((hook) => toJson(HookSchema, hook)),
    events: events.map((event) => toJson(EventSchema, event)),
    bodies: [...bodies].map(([ref, bytes]) => [ref, bytes.toString("base64")]),
  };
}

/** The private values of an exchange, each once. */
function privateValues({ providerIds, opaqueValues }: RecordedExchange): string[] {
  return [...new Set([...providerIds, ...opaqueValues])];
}

/** Which values can be looked for, and how many cannot. */
function sortedValues(all: readonly RecordedExchange[]) {
  const scanned = new Set<string>();
  let shown = 0;
  let tooShort = 0;
  for (const exchange of all) {
    for (const value of privateValues(exchange)) {
      if (all.some((other) => isPublicValue(other, value))) shown += 1;
      else if (Buffer.byteLength(value) < SCANNED_BYTES_MIN) tooShort += 1;
      else scanned.add(value);
    }
  }
  return { scanned, shown, tooShort };
}

/** The private values that were sent and accepted. */
function acceptedValues(played: readonly PlayedSession[]): Set<string> {
  const ofCall = ({ recorded, hasProviderId }: PlayedCall): (string | undefined)[] => [
    hasProviderId ? recorded.providerCallId : undefined,
    recorded.providerItemId,
    recorded.opaque === undefined ? undefined : Buffer.from(recorded.opaque).toString(),
  ];
  const values = played.flatMap(({ calls }) => calls.flatMap(ofCall));
  return new Set(values.filter((value) => value !== undefined));
}

function leaks(heard: Heard, values: Iterable<string>): string[] {
  return [...values].flatMap((value) =>
    heard.placesOf(value).map((place) => `${JSON.stringify(value.slice(0, 40))} in ${place}`),
  );
}

function describeRecorded(all: readonly RecordedExchange[]): void {
  const heard = new Heard();
  const stored = new Heard();
  let folder = "";
  let played: readonly PlayedSession[] = [];
  let before: readonly ReadBack[] = [];
  let after: readonly ReadBack[] = [];
  let ended: readonly (readonly ToolCall[])[] = [];

  const readAll = ({ clients }: HeardService) =>
    // By the other wire than the one that wrote.
    eachOf(played, ({ sessionId }, index) =>
      readBack(clients[(index + 1) % clients.length]!, sessionId, PAGE_SIZE),
    );
  const callsOf = async ({ clients }: HeardService, sessionId: string) => {
    const { toolCalls } = await clients[0]!.history.listToolCalls({ sessionId, pageSize: 500 });
    return toolCalls;
  };
  const endRun = ({ clients }: HeardService, { sessionId, runId }: PlayedSession, index: number) =>
    clients[index % clients.length]!.runs.endRun({
      ...{ sessionId, runId, requestId: "end" },
      command: { outcome: RunOutcome.COMPLETED },
    });

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "recorded-"));
    const path = join(folder, "toolmark.db");
    const first = await startHeard(path, heard);
    played = await eachOf(all, (exchange, index) => {
      const gate = index % 4 < 2 ? StartGate.REQUIRED : StartGate.OFF;
      return playExchange(first.clients[index % first.clients.length]!, exchange, gate);
    });
    before = await readAll(first);
    await first.stop();
    const second = await startHeard(path, heard);
    after = await readAll(second);
    await eachOf(played, (session, index) => endRun(second, session, index));
    ended = await eachOf(played, ({ sessionId }) => callsOf(second, sessionId));
    await second.stop();
    for (const { table, value } of storedValues(path)) {
      (table === PRIVATE_TABLE ? stored : heard).add(`table ${table}`, value);
    }
  }, SETUP_TIMEOUT_MS);

  afterAll(async () => {
    await rm(folder, { recursive: true });
  });

  const sessions = () => played.map((session, index) => ({ session, read: before[index]! }));

  test("give as many calls as were recorded, in their order, to the byte", () => {
    for (const { session, read } of sessions()) {
      const expected = session.calls.map((call) => expectedCall(session, call));
      expect(session.calls).toHaveLength(session.exchange.calls.length);
      expect(read.calls.map((call) => seenCall(read, call))).toEqual(expected);
      expect(read.callsById).toEqual(read.calls);
    }
  });

  test("keep every message, to the byte", () => {
    for (const { session, read } of sessions()) {
      const messages = read.events.flatMap(({ record }) =>
        record?.record.case === "message" ? [record.record.value] : [],
      );
      expect(messages.map(({ content }) => seenBody(read, content))).toEqual(
        session.messages.map(({ text }) => ({ text, mediaType: TEXT_TYPE })),
      );
    }
  });

  test("have the hook of each call, in order", () => {
    for (const { session, read } of sessions()) {
      expect(read.hooks.map(({ hookId, toolCallId }) => [hookId, toolCallId])).toEqual(
        session.calls.map(({ hookId, toolCallId }) => [hookId, toolCallId]),
      );
    }
  });

  test("are a log without holes, with revisions that rise, of exactly what was sent", () => {
    for (const { session, read } of sessions()) {
      const { events } = read;
      expect(events.map(({ kind }) => kind)).toEqual(session.eventKinds);
      expect(events.map(({ sequence }) => sequence)).toEqual(
        events.map((_event, index) => BigInt(index + 1)),
      );
      const revisions = events.flatMap(({ revision }) => revision ?? []);
      const published = events.filter(({ record }) =>
        ["toolCall", "hook"].includes(record?.record.case ?? ""),
      );
      expect(revisions).toEqual(published.map((_event, index) => BigInt(index + 1)));
      const positions = events.map(({ position }) => position);
      expect(positions).toEqual([...new Set(positions)].sort((a, b) => Number(a - b)));
    }
  });

  test("give ids that are unique over all of them", () => {
    const ids = played.flatMap(({ sessionId, runId, calls }) => [
      ...[sessionId, runId],
      ...calls.flatMap(({ toolCallId, hookId }) => [toolCallId, hookId]),
    ]);
    expect(ids).not.toContain("");
    expect(new Set(ids).size).toBe(ids.length);
  });

  test("read equal after a restart", () => {
    expect(after.map(comparable)).toEqual(before.map(comparable));
  });

  test("go on after a restart: the end of the run gives each open call a result", () => {
    for (const [index, { calls }] of played.entries()) {
      for (const [at, call] of ended[index]!.entries()) {
        if (calls[at]?.result !== undefined) expect(call).toEqual(before[index]!.calls[at]);
        else expect(call.result?.kind).toBe(ToolResultKind.SYNTHETIC);
      }
    }
  });

  test("refuse what repeats an open provider id, unknown ids and used request ids", () => {
    const reasons = new Set(played.flatMap(({ provoked }) => provoked.map(({ reason }) => reason)));
    const expected = [
      "DUPLICATE_PROVIDER_CALL_ID",
      "HOOK_NOT_FOUND",
      "PAGE_TOKEN_INVALID",
      "PROVIDER_CALL_ID_OUTSTANDING",
      "REQUEST_ID_REUSED",
      "TOOL_CALL_NOT_FOUND",
    ];
    expect(expected.filter((reason) => !reasons.has(reason))).toEqual([]);
  });

  test("show no provider id and no opaque value in any reply, error, log line or table", () => {
    const { scanned, shown, tooShort } = sortedValues(all);
    process.stdout.write(`${report({ scanned: scanned.size, shown, tooShort })}\n`);
    expect(leaks(heard, scanned)).toEqual([]);
  });

  test("are looked through for enough values, by a search that finds them where they are", () => {
    const { scanned, shown, tooShort } = sortedValues(all);
    expect(scanned.size).toBeGreaterThan(shown + tooShort);
    const accepted = [...acceptedValues(played)].filter((value) => scanned.has(value));
    expect(accepted.length).toBeGreaterThan(0);
    expect(accepted.filter((value) => stored.placesOf(value).length === 0)).toEqual([]);
    const said = all.flatMap(({ calls }) => calls.map(({ toolName }) => toolName));
    expect(said.filter((toolName) => heard.placesOf(toolName).length < 4)).toEqual([]);
    expect(heard.placesOf("PROVIDER_CALL_ID_OUTSTANDING")).toContain("log");
  });

  function report(counts: { scanned: number; shown: number; tooShort: number }): string {
    const sum = (of: (session: PlayedSession) => number) =>
      played.reduce((total, session) => total + of(session), 0);
    const calls = sum((session) => session.calls.length);
    const results = sum((session) => session.calls.filter(({ result }) => result).length);
    return [
      `recorded exchanges: ${played.length} sent to the service`,
      `${calls} calls, ${results} results and ${sum(({ messages }) => messages.length)} messages`,
      `${sum(({ refusedTurns }) => refusedTurns)} turns refused for a repeated provider id`,
      `${sum(({ provoked }) => provoked.length)} refusals provoked`,
      `${counts.scanned} private values looked for in ${heard.sizeBytes} bytes`,
      `${counts.shown} skipped as shown by an exchange itself, ${counts.tooShort} as too short`,
    ].join(", ");
  }
}

function expectedCall(session: PlayedSession, { recorded, toolCallId, result }: PlayedCall) {
  const proposed = { text: Buffer.from(recorded.arguments).toString(), mediaType: ARGUMENTS_TYPE };
  return {
    toolCallId,
    origin: session.sessionId,
    runId: session.runId,
    toolName: recorded.toolName,
    proposed,
    effective: proposed,
    isCompleted: result !== undefined,
    result: result && {
      content: { text: Buffer.from(result.content).toString(), mediaType: TEXT_TYPE },
      isError: result.isError,
      kind: ToolResultKind.CANONICAL,
    },
  };
}

function seenCall(
  read: ReadBack,
  call: ReadBack["calls"][number],
): ReturnType<typeof expectedCall> {
  const { result } = call;
  return {
    toolCallId: call.toolCallId,
    origin: call.origin?.sessionId ?? "",
    runId: call.runId,
    toolName: call.toolName,
    proposed: seenBody(read, call.proposed),
    effective: seenBody(read, call.effective),
    isCompleted: call.state === ToolCallState.COMPLETED,
    result: result && {
      content: seenBody(read, result.content),
      isError: result.isError,
      kind: result.kind,
    },
  };
}

/** A body as ReadBody gives it, which is what its record carries if it carries it. */
function seenBody({ bodies }: ReadBack, body: Body | undefined) {
  const bytes = bodies.get(body?.bodyRef ?? "");
  if (body === undefined || bytes === undefined) throw new Error("a body is missing");
  expect(body.sizeBytes).toBe(BigInt(bytes.length));
  if (body.data !== undefined) expect(bytes.equals(body.data)).toBe(true);
  return { text: bytes.toString(), mediaType: body.mediaType };
}

test("recorded exchanges are there, or it was said that they are not", () => {
  expect(exchanges === undefined || exchanges.length > 0).toBe(true);
});

if (exchanges !== undefined) {
  describe("recorded exchanges", () => {
    describeRecorded(exchanges);
  });
}

describe("an exchange whose response repeats a provider id", () => {
  const call = (id: string, name: string) => ({ id, function: { name, arguments: "{}" } });
  const reply = (...calls: unknown[]) => ({ choices: [{ message: { tool_calls: calls } }] });
  const step = (response: unknown) => ({ request: { messages: [] }, response });
  const exchange = readExchange("repeated.json", {
    wire: "openai-chat",
    models: ["model"],
    calls_per_response: [3, 1],
    steps: [
      step(reply(call("call_0", "a"), call("call_1", "b"), call("call_0", "c"))),
      step(reply(call("call_1", "d"))),
    ],
  });

  test("is refused whole, and goes on without that id", async () => {
    const service = await startTestService();
    const played = await playExchange(service.clients(), exchange, StartGate.OFF);
    const read = await readBack(service.clients(), played.sessionId, PAGE_SIZE);
    await service.stop();
    expect(played.refusedTurns).toBe(2);
    expect(played.calls.map(({ hasProviderId }) => hasProviderId)).toEqual([
      ...[false, true, false],
      // Outstanding since the first turn.
      false,
    ]);
    expect(read.calls.map(({ toolName }) => toolName)).toEqual(["a", "b", "c", "d"]);
    expect(read.events.map(({ kind }) => kind)).toEqual(played.eventKinds);
  });
});

describe("the search for private values", () => {
  const value = 'call_"0"\u00fc0123456789';
  const call = (toolName: string, data = new Uint8Array()) => {
    return { toolCallId: "tc_1", toolName, proposed: { data } };
  };

  test.each([
    ["a tool name", call(`read_file ${value}`)],
    ["the bytes of a body", call("read_file", Buffer.from(value))],
  ])("finds a provider id that was put into %s of a reply", (_where, planted) => {
    const replies = new Heard();
    const reply = create(AcceptTurnResponseSchema);
    replies.addMessage(AcceptTurnResponseSchema, reply);
    expect(leaks(replies, [value])).toEqual([]);
    const leaking = create(AcceptTurnResponseSchema, { toolCalls: [planted] });
    replies.addMessage(AcceptTurnResponseSchema, leaking);
    expect(replies.placesOf(value)).toEqual([
      "AcceptTurnResponse in binary",
      "AcceptTurnResponse in JSON",
    ]);
  });

  test("finds it in the text and the details of an error", () => {
    const details = [{ desc: ErrorInfoSchema, value: { metadata: { provider: value } } }];
    const replies = new Heard();
    replies.addError(new ConnectError(`no ${value}`, Code.NotFound, undefined, details));
    expect(replies.placesOf(value)).toEqual(["text of an error", "detail of an error"]);
  });
});
