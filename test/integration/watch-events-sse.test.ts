import { connect } from "node:http2";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { acceptCall, bytes, newCall, openRun, type OpenRun } from "../support/conversation.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { readSse, SseRefused, type SseItem } from "../support/sse-reader.js";

let service: TestService;
let clients: Clients;
let run: OpenRun;
let stop: AbortController;

beforeEach(async () => {
  service = await startTestService({ eventHeartbeatMs: 50 });
  clients = service.clients();
  run = await openRun(clients);
  stop = new AbortController();
});

afterEach(async () => {
  stop.abort();
  await service.stop();
});

type Message = Extract<SseItem, { kind: "message" }>;

function watch(query = "", lastEventId?: string): AsyncGenerator<SseItem, void> {
  const { httpAddress } = service;
  const { sessionId } = run;
  return readSse({ httpAddress, sessionId, query, lastEventId, signal: stop.signal });
}

/** Takes items until one is as wanted. */
async function until(
  items: AsyncGenerator<SseItem, void>,
  isLast: (item: SseItem) => boolean,
): Promise<SseItem[]> {
  const taken: SseItem[] = [];
  for (;;) {
    const next = await items.next();
    if (next.done === true) return taken;
    taken.push(next.value);
    if (isLast(next.value)) return taken;
  }
}

const isLive = (item: SseItem): boolean =>
  item.kind === "message" && item.message.phase === "live" && item.message.event === undefined;

function messagesOf(items: readonly SseItem[]): Message[] {
  return items.filter((item): item is Message => item.kind === "message");
}

function kindsOf(items: readonly SseItem[]): string[] {
  return messagesOf(items).map(({ message }) => message.event?.kind ?? message.phase);
}

describe("the event stream of a session", () => {
  test("gives what WatchEvents gives, with the cursor as the id", async () => {
    await acceptCall(clients, run, newCall("p1", "bash", '{"id":2512292042121000001}'));
    const seen = messagesOf(await until(watch(), isLive));
    const wanted = [];
    const { signal } = stop;
    for await (const message of clients.history.watchEvents(run, { signal })) {
      wanted.push(message);
      if (message.event === undefined) break;
    }
    expect(seen.map(({ message }) => message)).toEqual(wanted);
    expect(seen.map(({ id }) => id)).toEqual(wanted.map(({ cursor }) => cursor));
  });

  test("goes on after Last-Event-ID, and tells what is live", async () => {
    const first = watch();
    const before = messagesOf(await until(first, isLive));
    await first.return();
    await acceptCall(clients, run);
    const rest = watch("", before.at(0)?.id);
    expect(kindsOf(await until(rest, isLive))).toEqual([
      ...["RUN_BEGUN", "TURN_ACCEPTED", "TOOL_CALL_ACCEPTED", "live"],
    ]);
    await acceptCall(clients, run);
    const isCall = (item: SseItem): boolean => kindsOf([item])[0] === "TOOL_CALL_ACCEPTED";
    expect(kindsOf(await until(rest, isCall))).toContain("TOOL_CALL_ACCEPTED");
  });

  test("takes the cursor of the query for a first connection, and a header before it", async () => {
    const [first, second] = messagesOf(await until(watch(), isLive));
    const query = `?cursor=${first?.id}`;
    expect(kindsOf(await until(watch(query), isLive))).toEqual(["RUN_BEGUN", "live"]);
    expect(kindsOf(await until(watch(query, second?.id), isLive))).toEqual(["live"]);
  });

  test("sends heartbeats as comments, whose id is the cursor", async () => {
    const items = await until(watch(), ({ kind }) => kind === "heartbeat");
    expect(items.at(-1)).toEqual({ kind: "heartbeat", id: messagesOf(items).at(-1)?.id });
  });

  test("filters by kinds and takes in descendants by the query", async () => {
    await acceptCall(clients, run);
    const query = "?kinds=RUN_BEGUN&kinds=TURN_ACCEPTED&include_descendants=true";
    expect(kindsOf(await until(watch(query), isLive))).toEqual([
      ...["RUN_BEGUN", "TURN_ACCEPTED", "live"],
    ]);
  });

  test.each(["AAAA", "cursor of nobody"])("refuses the cursor %j in the stream", async (cursor) => {
    const [refused] = await until(watch("", cursor), () => true);
    expect(refused).toMatchObject({ kind: "refused", reason: "CURSOR_MALFORMED" });
  });

  test("ends with DRAINING when the server shuts down, after a cursor that goes on", async () => {
    const items = watch();
    await until(items, isLive);
    const draining = service.drain();
    const last = (await until(items, ({ kind }) => kind === "refused")).at(-1);
    expect(last).toMatchObject({ kind: "refused", reason: "DRAINING" });
    expect((await items.next()).done).toBe(true);
    await draining;
  });
});

describe("a stream that does not begin", () => {
  async function refusal(path: string, init: RequestInit = {}): Promise<Response> {
    return fetch(`http://${service.httpAddress}${path}`, init);
  }

  test("is refused with an HTTP status and a google.rpc.Status", async () => {
    const reply = await refusal("/v1/sessions/ses_unknown/events");
    expect(reply.status).toBe(404);
    expect(await reply.json()).toMatchObject({
      code: 5,
      details: [{ reason: "SESSION_NOT_FOUND", domain: "toolmark" }],
    });
  });

  test.each([
    ["?include_descendants=perhaps", "include_descendants"],
    ["?includeDescendants=true", "query"],
    ["?kinds=", "kinds[0]"],
  ])("names what is wrong with %s", async (query, field) => {
    const reply = await refusal(`/v1/sessions/${run.sessionId}/events${query}`);
    expect(reply.status).toBe(400);
    expect(await reply.json()).toMatchObject({ details: [{ metadata: { field } }] });
  });

  test("is for GET alone", async () => {
    const reply = await refusal(`/v1/sessions/${run.sessionId}/events`, { method: "POST" });
    expect([reply.status, reply.headers.get("allow")]).toEqual([405, "GET"]);
  });

  test("is not for pages of other sites", async () => {
    const headers = { origin: "http://elsewhere.example" };
    const reply = await refusal(`/v1/sessions/${run.sessionId}/events`, { headers });
    expect(reply.status).toBe(403);
  });

  test("of a session whose id is no UTF-8 is malformed", async () => {
    expect((await refusal("/v1/sessions/%ff/events")).status).toBe(400);
  });
});

test("the stream goes over HTTP/2 as well", async () => {
  const session = connect(`http://${service.httpAddress}`);
  const stream = session.request({ ":path": `/v1/sessions/${run.sessionId}/events` });
  const [headers] = (await once(stream, "response")) as [Record<string, string>];
  expect(headers["content-type"]).toBe("text/event-stream");
  const draining = service.drain();
  expect(await text(stream)).toContain("SESSION_CREATED");
  await draining;
  session.close();
});

test("an id and the text of a session that need escaping stay within their line", async () => {
  await acceptCall(clients, run, newCall("p1", "line\nbreak\r\n: and\u2028more"));
  const items = messagesOf(await until(watch("?kinds=TOOL_CALL_ACCEPTED"), isLive));
  const record = items[0]?.message.event?.record?.record;
  expect(record?.case === "toolCall" && record.value.toolName).toBe(
    "line\nbreak\r\n: and\u2028more",
  );
  expect(bytes("x")).toHaveLength(1);
});

test("an unknown session is SseRefused for the reader too", async () => {
  const items = readSse({ httpAddress: service.httpAddress, sessionId: "ses_unknown" });
  await expect(items.next()).rejects.toBeInstanceOf(SseRefused);
});
