import { toJsonString } from "@bufbuild/protobuf";
import type { Http2SessionManager } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import { EventSchema } from "../../gen/toolmark/v1/event_pb.js";
import { WatchEventsResponseSchema } from "../../gen/toolmark/v1/history_service_pb.js";
import { RunOutcome } from "../../gen/toolmark/v1/run_pb.js";
import {
  answer,
  openAsk,
  publishReview,
  reviewOf,
  settleAuthorization,
  park,
} from "../support/asking.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import {
  acceptTurn,
  allEvents,
  bytes,
  complete,
  endRun,
  given,
  of,
  openRun,
  publishHook,
  type OpenRun,
} from "../support/conversation.js";
import { fork } from "../support/forking.js";
import { clientsHeardBy, Heard } from "../support/heard.js";
import { privateValuesOf } from "../support/private-values.js";
import { readBack } from "../support/read-back.js";
import { isPublicValue, readRecordedExchanges } from "../support/recorded-exchanges.js";
import { readRecordedReplays } from "../support/recorded-replays.js";
import { refused } from "../support/refused.js";
import { ReplayedConversation } from "../support/replayed-conversation.js";
import {
  acceptResponse,
  project,
  readReplay,
  RESPONSE,
  say,
  WIRES,
  type SpokenWire,
} from "../support/replaying.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { readSse } from "../support/sse-reader.js";
import { storedValues } from "../support/stored-tables.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { allEntries } from "../support/transcript-account.js";
import { readWhole, upload } from "../support/uploading.js";
import { compactAll } from "./compaction-fixture.js";

const { OPENAI_RESPONSES, OPENAI_CHAT_COMPLETIONS, ANTHROPIC_MESSAGES, GEMINI, MISTRAL } =
  ProviderWire;
const PRIVATE_TABLE = "pairings";
/** Shorter values are found by chance. */
const SCANNED_LENGTH_MIN = 6;
const PUBLIC_ID = /\b[a-z]{2,6}_[0-9a-z]{26}\b/g;
const SETUP_TIMEOUT_MS = 120_000;

const RECORDED = readRecordedReplays();
if (RECORDED === undefined) {
  process.stdout.write("no recorded traffic: no ids of it are looked for\n");
}
const EXCHANGES = readRecordedExchanges() ?? [];

/** Ids that would break a reader of lines, of JSON or of a URL, each of a wire of its own. */
const HOSTILE: Readonly<Record<SpokenWire, readonly string[]>> = {
  [OPENAI_RESPONSES]: ["call_secret:0", 'call_"secret"\\1', "x".repeat(512)],
  [OPENAI_CHAT_COMPLETIONS]: ["functions.Secret:0", "geheim\u00fc/工具", "\ttab\nline secret"],
  [ANTHROPIC_MESSAGES]: ["toolu_secret/0", "toolu secret?a=b&c", "<toolu>%73ecret"],
  [GEMINI]: ["gemini secret 0", "gemini'secret';--", "\u0001gemini_secret"],
  [MISTRAL]: ["sEcReT001", "sEcReT002x", "mistral-secret-0"],
};

/** A response with sealed contents of every kind that its wire has. */
function sealedResponse(wire: SpokenWire): string {
  const calls = HOSTILE[wire].map((id, index) => ({ id, itemId: `fc_secret_item_${index}` }));
  const response = JSON.parse(RESPONSE[wire]("I look.", ...calls)) as Record<string, unknown>;
  const sealed = SEALED[wire];
  switch (wire) {
    case OPENAI_RESPONSES:
      return JSON.stringify({ ...response, output: [sealed, ...listOf(response["output"])] });
    case ANTHROPIC_MESSAGES:
      return JSON.stringify({ ...response, content: [sealed, ...listOf(response["content"])] });
    case GEMINI: {
      const [candidate] = listOf(response["candidates"]) as { content: { parts: unknown[] } }[];
      const parts = [sealed, ...given(candidate, "candidate").content.parts];
      return JSON.stringify({ candidates: [{ content: { role: "model", parts } }] });
    }
    default: {
      const [choice] = listOf(response["choices"]) as { message: object }[];
      return JSON.stringify({ choices: [{ message: { ...choice?.message, ...sealed } }] });
    }
  }
}

const SEALED: Readonly<Record<SpokenWire, object>> = {
  [OPENAI_RESPONSES]: {
    ...{ type: "reasoning", id: "rs_secret_item", encrypted_content: "sealed content 1" },
    summary: [{ type: "summary_text", text: "the thought of responses" }],
  },
  [OPENAI_CHAT_COMPLETIONS]: { reasoning_content: "the thought of chat" },
  [MISTRAL]: { reasoning_content: "the thought of mistral" },
  [ANTHROPIC_MESSAGES]: {
    ...{ type: "thinking", thinking: "the thought of anthropic", signature: "signature 2 ==" },
  },
  [GEMINI]: { thought: true, text: "the thought of gemini", thoughtSignature: "c2lnbmF0dXJl/3+" },
};

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : [];
}

/** A session with a record of every kind about the calls of a response. */
async function playHostile(clients: Clients, wire: SpokenWire): Promise<OpenRun> {
  const run = await openRun(clients);
  const { sessionId } = run;
  await say(clients, run, "go");
  const response = sealedResponse(wire);
  const { toolCalls } = await acceptResponse(clients, run, wire, response, {
    ...{ provider: "a-provider", model: "a-model" },
  });
  await provoke(clients, run, wire, response);
  const [first = "", second = "", third = ""] = toolCalls.map(({ toolCallId }) => toolCallId);
  await publishHook(clients, run, first);
  await publishReview(clients, run, reviewOf(first));
  await answer(clients, await openAsk(clients, run, first));
  await complete(clients, run, first, "done one");
  const { authorizationId } = await park(clients, run, second, { deferredToolCallIds: [third] });
  await settleAuthorization(clients, run, authorizationId, AuthorizationState.GRANTED);
  await complete(clients, run, second, "done two");
  await endRun(clients, run, { outcome: RunOutcome.COMPLETED });
  await fork(clients, sessionId);
  return run;
}

/** Errors about responses that cannot be accepted, and about ids that are the provider's. */
async function provoke(
  clients: Clients,
  run: OpenRun,
  wire: SpokenWire,
  response: string,
): Promise<void> {
  const { sessionId } = run;
  const [secret = ""] = HOSTILE[wire];
  const twice = RESPONSE[wire]("", { id: secret }, { id: secret });
  const wrong = response.replaceAll('"name":"bash"', `"name":{"${secret}":1}`);
  const reasons = [];
  for (const each of [response, twice, wrong]) {
    reasons.push((await refused(acceptResponse(clients, run, wire, each))).reason);
  }
  expect(reasons).toEqual([
    ...["PROVIDER_CALL_ID_OUTSTANDING", "DUPLICATE_PROVIDER_CALL_ID", "PROVIDER_PAYLOAD_INVALID"],
  ]);
  await refused(clients.history.getToolCall({ sessionId, toolCallId: secret }));
  await refused(clients.history.getHook({ sessionId, hookId: secret }));
  await refused(clients.history.listEvents({ sessionId, pageToken: secret }));
  await refused(readWhole(clients, sessionId, secret));
  const uploaded = await upload(clients, sessionId, bytes(wrong), { private: true });
  const command = { wire, payload: { bodyRef: uploaded.bodyRef } };
  await refused(clients.replays.acceptProviderTurn({ ...of(run), command }));
  await refused(readWhole(clients, sessionId, uploaded.bodyRef));
}

/** Everything that anybody may read of a session. */
async function readAll(heard: Heard, service: TestService, clients: Clients, sessionId: string) {
  const { httpAddress } = service;
  await readBack(clients, sessionId, 7);
  await allEntries((pageToken) => clients.history.getTranscript({ sessionId, pageToken }));
  await clients.sessions.verifySession({ sessionId });
  const stopping = new AbortController();
  const { signal } = stopping;
  for await (const { event } of clients.history.watchEvents({ sessionId }, { signal })) {
    if (event === undefined) break;
  }
  for await (const item of readSse({ httpAddress, sessionId, signal })) {
    if (item.kind !== "message") continue;
    heard.addMessage(WatchEventsResponseSchema, item.message);
    if (item.message.event === undefined) break;
  }
  stopping.abort();
}

describe("B20 ids", () => {
  /** What everybody may hear, and what only the harness may. */
  const heard = new Heard();
  const privately = new Heard();
  /** Every projection that was made, and every public id. */
  const projections: string[] = [];
  const publicIds = new Set<string>();
  const privateValues = new Set<string>();
  let folder: StoreFolder;

  async function playAll(clients: readonly Clients[]): Promise<string[]> {
    const sessionIds: string[] = [];
    const [first, second] = clients as [Clients, Clients];
    for (const wire of WIRES) {
      sessionIds.push((await playHostile(wire % 2 === 0 ? first : second, wire)).sessionId);
      for (const value of privateValuesOf(sealedResponse(wire))) privateValues.add(value);
    }
    sessionIds.push(await playMixed(first));
    for (const recorded of RECORDED ?? []) {
      const played = new ReplayedConversation(second, recorded);
      const exchange = EXCHANGES.find(({ file }) => file === recorded.file);
      for (const step of recorded.steps) {
        await played.request(step);
        await played.response(step);
        for (const value of privateValuesOf(step.response)) {
          if (exchange && !isPublicValue(exchange, value)) privateValues.add(value);
        }
      }
      sessionIds.push(played.sessionId);
    }
    return sessionIds;
  }

  /** Turns of every wire and of the harness in one session, some of them archived. */
  async function playMixed(clients: Clients): Promise<string> {
    const run = await openRun(clients);
    for (const wire of WIRES) {
      const { toolCalls } = await acceptResponse(clients, run, wire, sealedResponse(wire));
      for (const { toolCallId } of toolCalls) await complete(clients, run, toolCallId);
      if (wire === ANTHROPIC_MESSAGES) await compactAll(clients, run.sessionId);
    }
    const pairing = { providerCallId: "named secret", providerItemId: "fc_secret_named" };
    const call = { toolName: "bash", arguments: { data: bytes("{}") } };
    const opaque = bytes("opaque secret");
    const named = [{ ...call, pairing: { ...pairing, opaque } }, call];
    for (const { toolCallId } of await acceptTurn(clients, run, named)) {
      await publishHook(clients, run, toolCallId);
    }
    for (const value of [...Object.values(pairing), "opaque secret"]) privateValues.add(value);
    return run.sessionId;
  }

  async function projectAll(clients: Clients, sessionId: string): Promise<void> {
    for (const wire of WIRES) {
      for (const provider of [undefined, "a-provider", "another"]) {
        const { items, system } = await project(clients, sessionId, wire, provider);
        projections.push(items, system);
        privately.add("projections", items);
      }
    }
    for (const event of await allEvents(clients, sessionId)) {
      const text = toJsonString(EventSchema, event);
      for (const [id] of text.matchAll(PUBLIC_ID)) publicIds.add(id);
    }
    for (const { items } of await readReplay(clients, sessionId)) privately.add("kept", items);
  }

  beforeAll(async () => {
    folder = await makeStoreFolder();
    const service = await startTestService({ store: folder.store });
    const connections: Http2SessionManager[] = [];
    const listened = (["grpc", "connect-json"] as const).map((wire) =>
      clientsHeardBy(heard, wire, service, connections),
    );
    await playAll(listened);
    const plain = service.clients();
    const { sessions } = await plain.sessions.listSessions({ pageSize: 500 });
    for (const [index, { sessionId }] of sessions.entries()) {
      await readAll(heard, service, given(listened[index % 2], "clients"), sessionId);
      await projectAll(plain, sessionId);
    }
    await listened[0]?.sessions.listSessions({ pageSize: 500 });
    await listened[1]?.approvals.listAsks({});
    heard.add("metrics", await (await fetch(`http://${service.httpAddress}/metrics`)).text());
    for (const connection of connections) connection.abort();
    await service.stop();
    heard.add("log", service.logged());
    for (const { table, value } of storedValues(folder.path)) {
      (table === PRIVATE_TABLE ? privately : heard).add(`table ${table}`, value);
    }
  }, SETUP_TIMEOUT_MS);

  afterAll(() => folder.remove());

  const scanned = () => [...privateValues].filter(({ length }) => length >= SCANNED_LENGTH_MIN);

  test("B20 no id of the service is in any request to a provider", () => {
    const kinds = new Set([...publicIds].map((id) => id.slice(0, id.indexOf("_"))));
    expect([...kinds]).toEqual(
      expect.arrayContaining(["ses", "run", "trn", "msg", "tc", "hk", "rv", "ask", "rcp", "body"]),
    );
    const all = projections.join("\n");
    expect(projections.length).toBeGreaterThan(100);
    expect([...publicIds].filter((id) => all.includes(id))).toEqual([]);
  });

  test("B20 no id, signature, sealed content or thought of a provider is where anybody can read it", () => {
    const leaks = scanned().flatMap((value) =>
      heard.placesOf(value).map((place) => `${JSON.stringify(value.slice(0, 40))} in ${place}`),
    );
    process.stdout.write(
      `B20: ${scanned().length} private values looked for in ${heard.sizeBytes} bytes, ` +
        `${publicIds.size} public ids in ${projections.length} projections\n`,
    );
    expect(leaks).toEqual([]);
  });

  test("B20 the search finds them where they are, and what is public everywhere", () => {
    const hostile = WIRES.flatMap((wire) => [...privateValuesOf(sealedResponse(wire))]);
    // The id of a response itself is not kept at all.
    const kept = hostile.filter((value) => !/^(?:resp|msg|chatcmpl)/.test(value));
    expect(kept.filter((value) => !privately.placesOf(value).includes("kept"))).toEqual([]);
    const inTable = (value: string) =>
      privately.placesOf(value).some((place) => place === `table ${PRIVATE_TABLE}`);
    expect(kept.filter((value) => !inTable(value))).toEqual([]);
    const places = heard.placesOf("bash");
    for (const place of [
      "AcceptProviderTurnResponse",
      "WatchEventsResponse",
      "GetTranscriptResponse",
    ]) {
      expect(places).toContain(`${place} in JSON`);
    }
    expect(heard.placesOf("DUPLICATE_PROVIDER_CALL_ID")).toContain("log");
    expect(heard.placesOf("PROVIDER_PAYLOAD_INVALID")).toContain("detail of an error");
  });
});
