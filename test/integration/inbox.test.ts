import { create, toJson, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import BetterSqlite from "better-sqlite3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  ApprovalService,
  ShownAskSchema,
  type ListAsksRequestSchema,
  type ListAsksResponse,
  type ShownAsk,
} from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskSchema, AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import type { Principal } from "../../src/domain/principal.js";
import {
  answer,
  answerTo,
  askAbout,
  askAboutEach,
  ASK_STATES,
  listedAsks,
  openAsk,
  showAsk,
  withdraw,
} from "../support/asking.js";
import {
  beginRun,
  freshRequestId,
  given,
  newCall,
  openRun,
  type OpenRun,
} from "../support/conversation.js";
import { refused } from "../support/refused.js";
import { startTestService, WIRES, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { startWatchedService } from "../support/watched-service.js";
import { Callers, principal, TWO_WIRES } from "./cases-asks-fixture.js";
import { pathOf } from "./listeners-fixture.js";
import { withoutTriggers } from "../support/without-triggers.js";

type Filter = Exclude<MessageInitShape<typeof ListAsksRequestSchema>, Message>;

const START_MS = 1_800_000_000_000;
const HOUR_MS = 3_600_000;
const KIB = 1024;
const MIB = 1024 * KIB;

/** A clock that stands until a test moves it. */
const clock = { nowMs: START_MS };
let folder: StoreFolder;
let service: TestService;
let clients: Clients;

async function start(): Promise<void> {
  service = await startTestService({ store: folder.store, nowMs: () => clock.nowMs });
  clients = service.clients();
}

beforeAll(async () => {
  folder = await makeStoreFolder();
  await start();
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

async function runOf(ownerSubject: string, by = clients): Promise<OpenRun> {
  const creation = { requestId: freshRequestId(), kind: SessionKind.MAIN, ownerSubject };
  const { session } = await by.sessions.createSession(creation);
  return beginRun(by, given(session, "session").sessionId, StartGate.OFF);
}

const idsOf = (asks: readonly ShownAsk[]): string[] => asks.map(({ ask }) => ask?.askId ?? "");

/** Every page of a list, as it came. */
async function pagesOf({ approvals }: Clients, filter: Filter): Promise<ListAsksResponse[]> {
  const pages: ListAsksResponse[] = [];
  let pageToken = "";
  do {
    const page = await approvals.listAsks({ ...filter, pageToken });
    pages.push(page);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return pages;
}

describe("a filter", () => {
  /** What is known of an ask beside the service. */
  interface Known {
    readonly askId: string;
    readonly sessionId: string;
    readonly owner: string;
    readonly tool: string;
    readonly createMs: number;
    readonly expireMs: number | undefined;
    readonly state: AskState;
  }

  const OWNERS = ["inbox ann", "inbox bob"] as const;
  const TOOLS = ["bash", "web_fetch"] as const;
  /** In the order of opening. */
  const known: Known[] = [];
  const sessionIds: string[] = [];

  async function settleAs(state: AskState, run: OpenRun, ask: Ask): Promise<string | undefined> {
    switch (state) {
      case AskState.ANSWERED:
        await answer(clients, ask);
        return undefined;
      case AskState.WITHDRAWN:
        await withdraw(clients, run, ask.askId);
        return undefined;
      case AskState.SUPERSEDED:
        return (await openAsk(clients, run, ask.toolCallId)).askId;
      default:
        return undefined;
    }
  }

  /** Opens one ask, an hour after the one before, and settles it unless it stays open or expires later. */
  async function add(run: OpenRun, owner: string, tool: string, state: AskState): Promise<void> {
    clock.nowMs += HOUR_MS;
    const { sessionId } = run;
    const about = { sessionId, owner, tool, createMs: clock.nowMs };
    const waitMs = { [AskState.EXPIRED]: HOUR_MS / 2, [AskState.OPEN]: 1000 * HOUR_MS };
    const expireMs =
      state in waitMs ? clock.nowMs + waitMs[state as keyof typeof waitMs] : undefined;
    const changed = expireMs === undefined ? {} : { expireTime: timestampFromMs(expireMs) };
    const ask = await askAbout(clients, run, changed, newCall(undefined, tool));
    known.push({ ...about, askId: ask.askId, expireMs, state });
    const newer = await settleAs(state, run, ask);
    if (newer === undefined) return;
    known.push({ ...about, askId: newer, expireMs: undefined, state: AskState.OPEN });
  }

  beforeAll(async () => {
    for (const owner of [...OWNERS, ...OWNERS]) {
      const run = await runOf(owner);
      sessionIds.push(run.sessionId);
      for (const tool of TOOLS) {
        for (const state of ASK_STATES) await add(run, owner, tool, state);
      }
    }
    clock.nowMs += HOUR_MS;
    const due = known.filter(({ state }) => state === AskState.EXPIRED).length;
    let expired = 0;
    while (expired < due) {
      expired = (await listedAsks(clients, { state: AskState.EXPIRED })).length;
    }
  });

  /** What a filter should give: the rules of the contract, once more. */
  function expected(filter: Filter): string[] {
    const msOf = (time: Filter["createdAfter"]): number | undefined =>
      time === undefined ? undefined : Number(time.seconds ?? 0n) * 1000;
    const [before, after, due] = [
      ...[filter.createdBefore, filter.createdAfter, filter.expiringBefore].map(msOf),
    ];
    const state = (filter.state ?? 0) === 0 ? AskState.OPEN : filter.state;
    return known
      .filter((ask) => ask.state === state)
      .filter(({ sessionId }) => (filter.sessionId ?? "") === "" || sessionId === filter.sessionId)
      .filter(({ owner }) => (filter.ownerSubject ?? "") === "" || owner === filter.ownerSubject)
      .filter(({ tool }) => (filter.toolName ?? "") === "" || tool === filter.toolName)
      .filter(({ createMs }) => before === undefined || createMs < before)
      .filter(({ createMs }) => after === undefined || createMs >= after)
      .filter(({ expireMs }) => due === undefined || (expireMs !== undefined && expireMs < due))
      .map(({ askId }) => askId);
  }

  /** Every combination of a choice for each field. */
  function combinations(choices: Readonly<Record<string, readonly unknown[]>>): Filter[] {
    let all: Record<string, unknown>[] = [{}];
    for (const [field, values] of Object.entries(choices)) {
      all = all.flatMap((one) =>
        values.map((value) => (value === undefined ? one : { ...one, [field]: value })),
      );
    }
    return all;
  }

  test("alone or with every other gives what matches, oldest first", async () => {
    const middle = given(known[Math.floor(known.length / 2)], "ask").createMs;
    const filters = combinations({
      state: [undefined, ...ASK_STATES],
      sessionId: [undefined, sessionIds[0]],
      ownerSubject: [undefined, OWNERS[0]],
      toolName: [undefined, TOOLS[1]],
      createdBefore: [undefined, timestampFromMs(middle)],
      createdAfter: [undefined, timestampFromMs(middle - 10 * HOUR_MS)],
      expiringBefore: [undefined, timestampFromMs(middle)],
    });
    const nobodys = { ownerSubject: "nobody" };
    const noTool = { toolName: "bas" };
    filters.push(nobodys, noTool, { sessionId: given(sessionIds[1], "session"), ...nobodys });
    expect(filters.length).toBe(387);
    const callers = TWO_WIRES.map((wire) => service.clients(wire));
    const wrong = await Promise.all(
      filters.map(async (filter, at) => {
        const asks = await listedAsks(given(callers[at % callers.length], "caller"), filter);
        const isRight = idsOf(asks).join() === expected(filter).join();
        return isRight ? [] : [{ filter, ids: idsOf(asks), expected: expected(filter) }];
      }),
    );
    expect(wrong.flat()).toEqual([]);
    expect(filters.filter((filter) => expected(filter).length > 0).length).toBeGreaterThan(100);
  });

  test("by time takes the very time for later, to the nanosecond", async () => {
    const { sessionId, createMs, askId } = given(
      known.find(({ state }) => state === AskState.OPEN),
      "open ask",
    );
    const at = timestampFromMs(createMs);
    const later = { seconds: at.seconds, nanos: at.nanos + 1 };
    const isGiven = async (filter: Filter): Promise<boolean> =>
      idsOf(await listedAsks(clients, { sessionId, ...filter })).includes(askId);
    expect(await isGiven({ createdBefore: at })).toBe(false);
    expect(await isGiven({ createdBefore: later })).toBe(true);
    expect(await isGiven({ createdAfter: at })).toBe(true);
    expect(await isGiven({ createdAfter: later })).toBe(false);
    const expireTime = timestampFromMs(createMs + 1000 * HOUR_MS);
    const expiresLater = { seconds: expireTime.seconds, nanos: expireTime.nanos + 1 };
    expect(await isGiven({ expiringBefore: expireTime })).toBe(false);
    expect(await isGiven({ expiringBefore: expiresLater })).toBe(true);
  });

  test("gives the same list, to the byte, on every wire and after a restart", async () => {
    const filter = { state: AskState.ANSWERED };
    const jsonOf = (shown: readonly ShownAsk[]) => shown.map((one) => toJson(ShownAskSchema, one));
    const before = jsonOf(await listedAsks(clients, filter));
    expect(before.length).toBe(8);
    await service.stop();
    await start();
    for (const wire of WIRES) {
      expect(jsonOf(await listedAsks(service.clients(wire), filter))).toEqual(before);
    }
  });

  test("of an unknown session is refused", async () => {
    const list = clients.approvals.listAsks({ sessionId: "ses_none" });
    const refusal = { code: Code.NotFound, reason: "SESSION_NOT_FOUND" };
    expect(await refused(list)).toMatchObject(refusal);
  });
});

describe("a page", () => {
  test("has as many asks as are wanted, and the pages together have each ask once", async () => {
    const ownerSubject = "counted";
    const run = await runOf(ownerSubject);
    const calls = Array.from({ length: 70 }, () => newCall());
    const ids = (await askAboutEach(clients, run, calls)).map(({ askId }) => askId);
    for (const [pageSize, sizes] of [
      [7, Array.from({ length: 10 }, () => 7)],
      [0, [50, 20]],
      [69, [69, 1]],
      [70, [70]],
      [4_294_967_295, [70]],
    ] as const) {
      const pages = await pagesOf(clients, { ownerSubject, pageSize });
      expect(pages.map(({ asks }) => asks.length)).toEqual(sizes);
      expect(idsOf(pages.flatMap(({ asks }) => asks))).toEqual(ids);
    }
  });

  test("larger than the server's limit is lowered to it", async () => {
    const limited = await startTestService({ flags: ["--limit-page-size", "20"] });
    const by = limited.clients();
    await askAboutEach(
      by,
      await openRun(by),
      Array.from({ length: 45 }, () => newCall()),
    );
    for (const pageSize of [0, 21, 500]) {
      const pages = await pagesOf(by, { pageSize });
      expect(pages.map(({ asks }) => asks.length)).toEqual([20, 20, 5]);
    }
    await limited.stop();
  });

  test("is never above 1 MiB in JSON, however large the asks in it are", async () => {
    const ownerSubject = "large";
    const run = await runOf(ownerSubject);
    // Control characters: JSON spells each in six bytes.
    const text = "\u0001".repeat(16 * KIB);
    const large = newCall(undefined, "write_file", "\u0001".repeat(64 * KIB));
    const calls = Array.from({ length: 6 }, () => large);
    const wordy = await askAboutEach(clients, run, calls, { display: text, prompt: text });
    const plain = await askAboutEach(clients, run, calls);
    const ids: string[] = [];
    let pageToken = "";
    do {
      const reply = await fetch(
        `http://${service.httpAddress}${pathOf(ApprovalService.method.listAsks)}`,
        {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ ownerSubject, pageSize: 500, pageToken }),
        },
      );
      const body = await reply.text();
      expect({ status: reply.status, fits: body.length <= MIB }).toEqual({
        status: 200,
        fits: true,
      });
      const page = JSON.parse(body) as {
        readonly asks: readonly { readonly ask: { readonly askId: string } }[];
        readonly nextPageToken?: string;
      };
      ids.push(...page.asks.map(({ ask }) => ask.askId));
      pageToken = page.nextPageToken ?? "";
    } while (pageToken !== "");
    expect(ids).toEqual([...wordy, ...plain].map(({ askId }) => askId));
  });

  test("has the bytes that are presented up to the limit, and a reference to larger ones", async () => {
    const ownerSubject = "presented";
    const run = await runOf(ownerSubject);
    const most = "x".repeat(64 * KIB);
    await askAbout(clients, run, {}, newCall(undefined, "bash", most));
    await askAbout(clients, run, {}, newCall(undefined, "bash", `${most}y`));
    for (const wire of WIRES) {
      const asks = await listedAsks(service.clients(wire), { ownerSubject });
      const [small, large] = asks.map(({ ask }) => given(ask.presented, "body"));
      expect(Buffer.from(given(small?.data, "data")).toString()).toBe(most);
      expect(large).toMatchObject({ sizeBytes: BigInt(most.length + 1) });
      expect(large?.data).toBeUndefined();
      const chunks: Uint8Array[] = [];
      const body = { sessionId: run.sessionId, bodyRef: large?.bodyRef ?? "" };
      for await (const { chunk } of clients.history.readBody(body)) chunks.push(chunk);
      expect(Buffer.concat(chunks).toString()).toBe(`${most}y`);
    }
  });
});

describe("a page token", () => {
  const ownerSubject = "tokens";
  let run: OpenRun;
  let ids: string[];

  beforeAll(async () => {
    run = await runOf(ownerSubject);
    const calls = Array.from({ length: 3 }, () => newCall());
    ids = (await askAboutEach(clients, run, calls)).map(({ askId }) => askId);
  });

  const base = (): Filter => ({ ownerSubject, sessionId: run.sessionId, pageSize: 1 });

  const CHANGES: readonly (readonly [string, Filter])[] = [
    ["session", { sessionId: "" }],
    ["descendants", { includeDescendants: true }],
    ["state", { state: AskState.ANSWERED }],
    ["owner", { ownerSubject: "" }],
    ["tool", { toolName: "bash" }],
    ["time of opening", { createdBefore: timestampFromMs(2 * START_MS) }],
    ["time before the opening", { createdAfter: timestampFromMs(1) }],
    ["deadline", { expiringBefore: timestampFromMs(2 * START_MS) }],
  ];

  test.each(CHANGES)("of another %s is refused", async (_, change) => {
    const { nextPageToken: pageToken } = await clients.approvals.listAsks(base());
    for (const wire of WIRES) {
      const { approvals } = service.clients(wire);
      const list = approvals.listAsks({ ...base(), ...change, pageToken });
      const refusal = { code: Code.InvalidArgument, reason: "PAGE_TOKEN_INVALID" };
      expect(await refused(list)).toMatchObject(refusal);
    }
  });

  test("of another list, cut short or changed is refused", async () => {
    const { nextPageToken } = await clients.approvals.listAsks(base());
    const { sessionId } = run;
    const calls = await clients.history.listToolCalls({ sessionId, pageSize: 1 });
    const changed = `${nextPageToken.startsWith("A") ? "B" : "A"}${nextPageToken.slice(1)}`;
    const tokens = [calls.nextPageToken, nextPageToken.slice(0, -1), changed, `${nextPageToken}A`];
    for (const pageToken of [...tokens, "%", nextPageToken.toLowerCase()]) {
      const list = clients.approvals.listAsks({ ...base(), pageToken });
      expect(await refused(list)).toMatchObject({ reason: "PAGE_TOKEN_INVALID" });
    }
  });

  test("works with another page size, on another wire and after a restart", async () => {
    const { nextPageToken: pageToken } = await clients.approvals.listAsks(base());
    await service.stop();
    await start();
    for (const wire of WIRES) {
      const { approvals } = service.clients(wire);
      const page = await approvals.listAsks({ ...base(), pageSize: 2, pageToken });
      expect(idsOf(page.asks)).toEqual(ids.slice(1));
      expect(page.nextPageToken).toBe("");
    }
  });
});

describe.each(TWO_WIRES)("what a caller sees of the inbox over %s", (wire) => {
  const other = (roles: Principal["roles"]): Principal => {
    return { tenant: "other", subject: "ann", roles };
  };
  const principals = {
    harness: principal("harness", { engine: "own" }),
    rival: principal("rival", { engine: "own" }),
    "engine of all": principal("engine of all", { engine: "tenant" }),
    ann: principal("ann", { approver: "own" }),
    bob: principal("bob", { approver: "own" }),
    "approver of all": principal("head", { approver: "tenant" }),
    "reader of all": principal("auditor", { reader: "tenant" }),
    "reader of all who approves own": principal("ann", { reader: "tenant", approver: "own" }),
    admin: principal("admin", { admin: "tenant" }),
    "own reader": principal("ann", { reader: "own" }),
    stranger: principal("stranger", { approver: "own", reader: "own" }),
    foreigner: other({ engine: "tenant", approver: "tenant", reader: "tenant", admin: "tenant" }),
    nobody: principal("ann", {}),
  };
  type Name = keyof typeof principals;

  let watched: TestService;
  let callers: Callers;
  const runs: Record<"ann" | "bob", OpenRun> = {
    ann: { sessionId: "", runId: "" },
    bob: { sessionId: "", runId: "" },
  };

  beforeAll(async () => {
    watched = await startWatchedService({ principals });
    callers = new Callers(watched);
    for (const [owner, by] of [
      ["ann", "harness"],
      ["bob", "rival"],
    ] as const) {
      // Only a program with the whole tenant may create for others, so the owner is named by it.
      runs[owner] = await runOf(owner, callers.as(by, wire));
      await askAbout(callers.as(by, wire), runs[owner]);
    }
  });

  afterAll(async () => {
    callers.disconnect();
    await watched.stop();
  });

  /** The owners of the asks that a caller is shown, each with `!` if a token is shown too. */
  async function seen(name: Name): Promise<string[]> {
    const asks = await listedAsks(callers.as(name, wire), {});
    return asks.map(({ ask, answerToken }) => {
      const isAnns = given(ask.origin, "origin").sessionId === runs.ann.sessionId;
      return `${isAnns ? "ann" : "bob"}${answerToken === "" ? "" : "!"}`;
    });
  }

  const SIGHTS: readonly (readonly [Name, readonly string[]])[] = [
    ["harness", ["ann"]],
    ["rival", ["bob"]],
    ["engine of all", ["ann", "bob"]],
    ["ann", ["ann!"]],
    ["bob", ["bob!"]],
    ["approver of all", ["ann!", "bob!"]],
    ["reader of all", ["ann", "bob"]],
    ["reader of all who approves own", ["ann!", "bob"]],
    ["admin", ["ann", "bob"]],
    ["own reader", ["ann"]],
    ["stranger", []],
    ["foreigner", []],
  ];

  test.each(SIGHTS)("is right for: %s", async (name, expected) => {
    expect(await seen(name)).toEqual(expected);
    const owned = await listedAsks(callers.as(name, wire), { ownerSubject: "bob" });
    expect(owned.length).toBe(expected.filter((one) => one.startsWith("bob")).length);
  });

  test.each(SIGHTS)("is found by session alike for: %s", async (name, expected) => {
    const { approvals } = callers.as(name, wire);
    for (const owner of ["ann", "bob"] as const) {
      const list = approvals.listAsks({ sessionId: runs[owner].sessionId });
      if (expected.some((one) => one.startsWith(owner))) {
        expect((await list).asks.length).toBe(1);
      } else {
        expect(await refused(list)).toMatchObject({ reason: "SESSION_NOT_FOUND" });
      }
    }
  });

  test("is nothing without a role", async () => {
    const list = callers.as("nobody", wire).approvals.listAsks({});
    expect((await refused(list)).code).toBe(Code.PermissionDenied);
  });

  test("goes on for the same sight only: a page token of another caller is refused", async () => {
    const head = callers.as("approver of all", wire).approvals;
    const { nextPageToken: pageToken } = await head.listAsks({ pageSize: 1 });
    expect(pageToken).not.toBe("");
    for (const name of ["ann", "bob", "harness", "stranger", "foreigner"] as const) {
      const list = callers.as(name, wire).approvals.listAsks({ pageToken });
      expect(await refused(list)).toMatchObject({ reason: "PAGE_TOKEN_INVALID" });
    }
  });

  test("can be answered with the token that is shown, and with no other", async () => {
    const shown = await showAsk(callers.as("ann", wire), runs.ann.sessionId, await idOf("ann"));
    const request = answerTo(shown);
    const foreign = callers.as("bob", wire).approvals.answerAsk(request);
    expect(await refused(foreign)).toMatchObject({ reason: "SESSION_NOT_FOUND" });
    const { receipt } = await callers.as("ann", wire).approvals.answerAsk(request);
    expect(receipt).toMatchObject({ actor: { subject: "ann" } });
    expect(await seen("approver of all")).toEqual(["bob!"]);
  });

  async function idOf(owner: "ann" | "bob"): Promise<string> {
    const [ask] = await listedAsks(callers.as("engine of all", wire), { ownerSubject: owner });
    return given(ask, "ask").ask.askId;
  }
});

describe("an ask whose row is damaged", () => {
  let damagedFolder: StoreFolder;
  let damagedService: TestService;
  let asks: Ask[];
  let others: Ask[];
  let run: OpenRun;

  /** Zeroes the last event of an ask behind the service's back, past the triggers that would refuse it. */
  function damage(path: string, askId: string): void {
    const database = new BetterSqlite(path);
    withoutTriggers(database, () => {
      const { changes } = database
        .prepare(
          `UPDATE events SET payload = zeroblob(length(payload))
           WHERE position = (SELECT last_position FROM asks WHERE ask_id = ?)`,
        )
        .run(askId);
      expect(changes).toBe(1);
    });
    database.close();
  }

  beforeAll(async () => {
    damagedFolder = await makeStoreFolder();
    const { store } = damagedFolder;
    const sound = await startTestService({ store });
    const by = sound.clients();
    run = await openRun(by);
    const calls = Array.from({ length: 3 }, () => newCall());
    asks = await askAboutEach(by, run, calls);
    others = await askAboutEach(by, await openRun(by), calls);
    await sound.stop();
    damage(damagedFolder.path, given(asks[1], "ask").askId);
    damagedService = await startTestService({ store });
  });

  afterAll(async () => {
    await damagedService.stop();
    await damagedFolder.remove();
  });

  test.each(WIRES)(
    "is bare among those of all sessions, and hides no other, over %s",
    async (wire) => {
      const listed = await listedAsks(damagedService.clients(wire), {});
      expect(idsOf(listed)).toEqual([...asks, ...others].map(({ askId }) => askId));
      const { askId, toolCallId } = given(asks[1], "ask");
      const bare = { askId, toolCallId, origin: run };
      const origin = { sessionId: run.sessionId };
      expect(toJson(AskSchema, given(listed[1], "ask").ask)).toEqual(
        toJson(AskSchema, create(AskSchema, { ...bare, origin })),
      );
      const tokens = listed.map(({ answerToken }) => answerToken !== "");
      expect(tokens).toEqual([true, false, true, true, true, true]);
    },
  );

  test("is in no other's way when pages are small, and can be filtered", async () => {
    const by = damagedService.clients();
    const pages = await pagesOf(by, { pageSize: 1 });
    expect(pages.map(({ asks: page }) => page.length)).toEqual([1, 1, 1, 1, 1, 1]);
    expect(await listedAsks(by, { toolName: "bash" })).toHaveLength(6);
    expect(await listedAsks(by, { toolName: "other" })).toEqual([]);
  });

  test("is refused within its session, alone or in a list, and other sessions are not", async () => {
    const damaged = { code: Code.DataLoss, reason: "DATA_DAMAGED" };
    const { sessionId } = run;
    const { askId } = given(asks[1], "ask");
    for (const wire of WIRES) {
      const { approvals } = damagedService.clients(wire);
      expect(await refused(approvals.listAsks({ sessionId }))).toMatchObject(damaged);
      expect(await refused(approvals.getAsk({ sessionId, askId }))).toMatchObject(damaged);
      const other = given(given(others[0], "ask").origin, "origin").sessionId;
      expect((await approvals.listAsks({ sessionId: other })).asks).toHaveLength(3);
    }
  });
});
