import { create, equals } from "@bufbuild/protobuf";
import { timestampFromMs, type Timestamp } from "@bufbuild/protobuf/wkt";
import { beforeEach, describe, expect, test } from "vitest";
import {
  ListAsksRequestSchema,
  type ListAsksRequest,
  type ShownAsk,
} from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskKind, AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { ReceiptSchema, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import type { Caller } from "../../src/domain/principal.js";
import { isRefusal, type Refusal } from "../../src/domain/refusal.js";
import type { Viewer } from "../../src/ledger/ask-reader.js";
import type { Page } from "../../src/ledger/page.js";
import type { EventRow, IndexedAsk } from "../../src/ledger/store-port.js";
import { APPROVER, AskingLedger, type AskingRun } from "../support/asking-ledger.js";
import { TENANT_CALLER } from "../support/outside-world.js";

const OWN = (subject: string): Caller => ({ tenant: "default", subject, scope: "own" });
const FOREIGN: Caller = { tenant: "other", subject: "tester", scope: "tenant" };

let asking: AskingLedger;
let run: AskingRun;

beforeEach(async () => {
  asking = new AskingLedger({ inlineBodyBytes: 100 });
  run = await asking.run();
});

function served<T extends object>(value: T | Refusal): T {
  if (isRefusal(value)) throw new Error(value.message);
  return value;
}

async function shown(ask: Ask, viewer: Viewer = APPROVER): Promise<ShownAsk> {
  return served(await asking.asks.getAsk(viewer, run.sessionId, ask.askId));
}

function list(filter: Partial<ListAsksRequest> = {}, viewer: Viewer = APPROVER) {
  const request = create(ListAsksRequestSchema, filter as object);
  return asking.asks.listAsks(viewer, request, request);
}

async function listed(filter?: Partial<ListAsksRequest>, viewer?: Viewer): Promise<string[]> {
  return served(await list(filter, viewer)).items.map(({ ask }) => ask?.askId ?? "");
}

function reasonOf(reply: object): ErrorReason | undefined {
  return isRefusal(reply) ? reply.reason : undefined;
}

describe("an answer token", () => {
  test("is shown to whoever may answer, by every way to see the ask, and is the right one", async () => {
    const ask = await asking.ask(run);
    const session = { tenant: "default", sessionId: run.sessionId };
    const token = asking.options.tokens.tokenOf(session, ask);
    expect((await shown(ask)).answerToken).toBe(token);
    const { items } = served(await list());
    expect(items.map(({ answerToken }) => answerToken)).toEqual([token]);
  });

  test("is not shown without the approver role, nor to an approver of other sessions", async () => {
    const ask = await asking.ask(run);
    const reader: Viewer = { caller: TENANT_CALLER, approver: undefined };
    expect((await shown(ask, reader)).answerToken).toBe("");
    const stranger: Viewer = { caller: TENANT_CALLER, approver: OWN("stranger") };
    expect((await shown(ask, stranger)).answerToken).toBe("");
    const creator: Viewer = { caller: TENANT_CALLER, approver: OWN("tester") };
    expect((await shown(ask, creator)).answerToken).not.toBe("");
  });

  test("is not shown of an ask that is settled", async () => {
    const ask = await asking.ask(run);
    await asking.answer(run, ask);
    const after = await shown(ask);
    expect(after.ask?.state).toBe(AskState.ANSWERED);
    expect(after.answerToken).toBe("");
  });
});

describe("what an ask presents", () => {
  test.each([0, 2, 100])("is shown with its %i bytes up to the inline limit", async (bytes) => {
    const ask = await asking.ask(run, {}, { bytes });
    expect((await shown(ask)).ask?.presented?.data).toEqual(new Uint8Array(bytes));
    const { items } = served(await list());
    expect(items[0]?.ask?.presented?.data).toEqual(new Uint8Array(bytes));
  });

  test("is a reference above it", async () => {
    const ask = await asking.ask(run, {}, { bytes: 101 });
    const presented = (await shown(ask)).ask?.presented;
    expect(presented?.data).toBeUndefined();
    expect(presented?.bodyRef).not.toBe("");
    expect(presented?.sizeBytes).toBe(101n);
  });

  test("has no bytes if it is a held result", async () => {
    const first = await asking.ask(run);
    await asking.answer(run, first);
    const argumentsSha256 = first.presented?.sha256 ?? new Uint8Array();
    const start = { toolCallId: first.toolCallId, argumentsSha256 };
    await asking.command(run, { case: "startToolCall", value: start }, "toolCall");
    const held = { heldSha256: new Uint8Array(32), heldSizeBytes: 3n };
    const kind = AskKind.RESULT_RELEASE;
    const value = { toolCallId: first.toolCallId, kind, provenance: first.provenance, ...held };
    const ask = await asking.command(run, { case: "openAsk", value }, "ask");
    const presented = (await shown(ask)).ask?.presented;
    expect(presented?.data).toBeUndefined();
    expect(presented?.sizeBytes).toBe(3n);
  });
});

describe("a session that is not there, or not the caller's", () => {
  test.each([
    ["unknown", APPROVER.caller, "ses_none"],
    ["of another tenant", FOREIGN, undefined],
    ["of another owner", OWN("stranger"), undefined],
  ])("%s is not found by any read", async (_, caller, named) => {
    const { askId } = await asking.ask(run);
    const sessionId = named ?? run.sessionId;
    const viewer = { caller, approver: caller };
    const page = { pageSize: 0, pageToken: "" };
    const replies: object[] = [
      await asking.asks.getAsk(viewer, sessionId, askId),
      await list({ sessionId }, viewer),
      await asking.asks.scopeOf(caller, { sessionId, includeDescendants: false }),
      await asking.asks.askAndReceipt(caller, sessionId, askId),
      await asking.reader.getReceipt(caller, sessionId, "rcp_1"),
      await asking.reader.listReceipts(caller, sessionId, "", page),
      await asking.reader.getAuthorization(caller, sessionId, "aut_1"),
      await asking.reader.listAuthorizations(caller, sessionId, "", page),
      await asking.reader.getReview(caller, sessionId, "rv_1"),
    ];
    const expected = replies.map(() => ErrorReason.SESSION_NOT_FOUND);
    expect(replies.map(reasonOf)).toEqual(expected);
  });

  test("is left out of a list across sessions", async () => {
    const mine = await asking.run(OWN("me"));
    await asking.ask(run);
    const ask = await asking.ask(mine);
    expect(await listed({}, { caller: OWN("me"), approver: undefined })).toEqual([ask.askId]);
    expect(await listed({}, { caller: FOREIGN, approver: FOREIGN })).toEqual([]);
    expect(await listed()).toHaveLength(2);
  });
});

test("a record of another kind is no ask, receipt, authorization or review", async () => {
  const { askId, toolCallId } = await asking.ask(run);
  const { caller, sessionId } = run;
  const { asks, reader } = asking;
  expect(reasonOf(await asks.getAsk(APPROVER, sessionId, toolCallId))).toBe(
    ErrorReason.ASK_NOT_FOUND,
  );
  expect(reasonOf(await asks.askAndReceipt(caller, sessionId, "ask_none"))).toBe(
    ErrorReason.ASK_NOT_FOUND,
  );
  expect(reasonOf(await reader.getReceipt(caller, sessionId, askId))).toBe(
    ErrorReason.RECEIPT_NOT_FOUND,
  );
  expect(reasonOf(await reader.getAuthorization(caller, sessionId, askId))).toBe(
    ErrorReason.AUTHORIZATION_NOT_FOUND,
  );
  const hook = { phase: "session_start", decision: HookDecision.INFO };
  const { hookId } = await asking.command(run, { case: "publishHook", value: hook }, "hook");
  expect(reasonOf(await reader.getReview(caller, sessionId, hookId))).toBe(
    ErrorReason.HOOK_NOT_FOUND,
  );
});

test("an ask is given with its receipt once there is one", async () => {
  const { caller, sessionId } = run;
  const ask = await asking.ask(run);
  const before = served(await asking.asks.askAndReceipt(caller, sessionId, ask.askId));
  expect(before.receipt).toBeUndefined();
  const receipt = await asking.answer(run, ask, Verdict.DENY);
  const after = served(await asking.asks.askAndReceipt(caller, sessionId, ask.askId));
  expect(after.ask.state).toBe(AskState.ANSWERED);
  expect(after.receipt && equals(ReceiptSchema, after.receipt, receipt)).toBe(true);
  const read = served(await asking.reader.getReceipt(caller, sessionId, receipt.receiptId));
  expect(equals(ReceiptSchema, read, receipt)).toBe(true);
});

test("receipts are listed page by page, oldest first", async () => {
  const { caller, sessionId } = run;
  const expected: string[] = [];
  for (let count = 0; count < 3; count += 1) {
    const receipt = await asking.answer(run, await asking.ask(run), Verdict.DENY);
    expected.push(receipt.receiptId);
  }
  const read = async (pageToken: string) =>
    served(await asking.reader.listReceipts(caller, sessionId, "", { pageSize: 2, pageToken }));
  const first = await read("");
  const second = await read(first.nextPageToken);
  const ids = [...first.items, ...second.items].map(({ receiptId }) => receiptId);
  expect(ids).toEqual(expected);
  expect(second.nextPageToken).toBe("");
});

test("authorizations are read and listed", async () => {
  const { caller, sessionId } = run;
  const turn = { calls: [{ toolName: "mail", arguments: { data: new Uint8Array() } }] };
  const call = await asking.command(run, { case: "acceptTurn", value: turn }, "toolCall");
  const park = { toolCallId: call.toolCallId, displayName: "mail" };
  const parked = { case: "parkToolCall", value: park } as const;
  const { authorizationId } = await asking.command(run, parked, "authorization");
  const read = served(await asking.reader.getAuthorization(caller, sessionId, authorizationId));
  expect(read).toMatchObject({ authorizationId, displayName: "mail" });
  const page = { pageSize: 0, pageToken: "" };
  const { items } = served(await asking.reader.listAuthorizations(caller, sessionId, "", page));
  expect(items.map((item) => item.authorizationId)).toEqual([authorizationId]);
});

describe("a list of asks", () => {
  test("has the open ones unless another state is wanted", async () => {
    const [open, answered] = [await asking.ask(run), await asking.ask(run)];
    await asking.answer(run, answered);
    expect(await listed()).toEqual([open.askId]);
    expect(await listed({ state: AskState.OPEN })).toEqual([open.askId]);
    expect(await listed({ state: AskState.ANSWERED })).toEqual([answered.askId]);
    expect(await listed({ state: AskState.WITHDRAWN })).toEqual([]);
  });

  test("is filtered by session, owner and tool", async () => {
    const other = await asking.run(OWN("me"));
    const [first, second] = [
      await asking.ask(run),
      await asking.ask(other, {}, { toolName: "read" }),
    ];
    expect(await listed({ sessionId: run.sessionId })).toEqual([first.askId]);
    expect(await listed({ toolName: "read" })).toEqual([second.askId]);
    expect(await listed({ ownerSubject: "me" })).toEqual([second.askId]);
    expect(await listed({ ownerSubject: "me", toolName: "bash" })).toEqual([]);
  });

  test("is filtered by times to the nanosecond", async () => {
    const ask = await asking.ask(run, { expireTime: timestampFromMs(1_800_000_000_000) });
    const at = ask.createTime!;
    const shifted = (nanos: number): Timestamp => {
      const all = at.seconds * 1_000_000_000n + BigInt(at.nanos + nanos);
      const seconds = all / 1_000_000_000n;
      return { ...at, seconds, nanos: Number(all - seconds * 1_000_000_000n) };
    };
    const isListed = async (filter: Partial<ListAsksRequest>) => (await listed(filter)).length > 0;
    expect(await isListed({ createdBefore: at })).toBe(false);
    expect(await isListed({ createdBefore: shifted(1) })).toBe(true);
    expect(await isListed({ createdBefore: shifted(-1) })).toBe(false);
    expect(await isListed({ createdAfter: at })).toBe(true);
    expect(await isListed({ createdAfter: shifted(1) })).toBe(false);
    expect(await isListed({ createdAfter: shifted(-1) })).toBe(true);
    const expiry = timestampFromMs(1_800_000_000_000);
    expect(await isListed({ expiringBefore: expiry })).toBe(false);
    expect(await isListed({ expiringBefore: { ...expiry, nanos: 1 } })).toBe(true);
  });

  test("leaves out what never expires where a time of expiry is asked for", async () => {
    await asking.ask(run);
    const expiringBefore = { ...timestampFromMs(0), seconds: 253_402_300_799n };
    expect(await listed({ expiringBefore })).toEqual([]);
  });

  test("is given page by page, each ask once", async () => {
    const expected: string[] = [];
    for (let count = 0; count < 5; count += 1) expected.push((await asking.ask(run)).askId);
    const ids: string[] = [];
    let pageToken = "";
    do {
      const page: Page<ShownAsk> = served(await list({ pageSize: 2, pageToken }));
      ids.push(...page.items.map(({ ask }) => ask?.askId ?? ""));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    expect(ids).toEqual(expected);
  });

  test("has pages of bounded bytes", async () => {
    const prompt = "p".repeat(16_000);
    for (let count = 0; count < 15; count += 1) await asking.ask(run, { prompt });
    const page = served(await list({ pageSize: 15 }));
    expect(page.items.length).toBeLessThan(15);
    expect(page.items.length).toBeGreaterThan(5);
    expect(page.nextPageToken).not.toBe("");
  });

  const CHANGES: readonly (readonly [string, Partial<ListAsksRequest>])[] = [
    ["session", { sessionId: "" }],
    ["descendants", { includeDescendants: true }],
    ["state", { state: AskState.EXPIRED }],
    ["owner", { ownerSubject: "x" }],
    ["tool", { toolName: "x" }],
    ["created before", { createdBefore: timestampFromMs(1) }],
    ["created after", { createdAfter: timestampFromMs(1) }],
    ["expiring before", { expiringBefore: timestampFromMs(1) }],
  ];

  test.each(CHANGES)("takes no page token of another %s", async (_, change) => {
    await asking.ask(run);
    await asking.ask(run);
    const filter = { sessionId: run.sessionId, pageSize: 1 };
    const { nextPageToken: pageToken } = served(await list(filter));
    expect(reasonOf(await list({ ...filter, pageToken }))).toBeUndefined();
    expect(reasonOf(await list({ ...filter, ...change, pageToken }))).toBe(
      ErrorReason.PAGE_TOKEN_INVALID,
    );
  });

  test("takes no page token of a caller who sees other sessions", async () => {
    await asking.ask(run);
    await asking.ask(run);
    const { nextPageToken: pageToken } = served(await list({ pageSize: 1 }));
    const own = { caller: OWN("tester"), approver: undefined };
    expect(reasonOf(await list({ pageToken }, own))).toBe(ErrorReason.PAGE_TOKEN_INVALID);
    const colleague = { caller: { ...TENANT_CALLER, subject: "colleague" }, approver: undefined };
    expect(reasonOf(await list({ pageToken }, colleague))).toBeUndefined();
  });
});

describe("a damaged ask", () => {
  const flipped = (event: EventRow): EventRow => ({
    ...event,
    payload: event.payload?.map((byte, at) => (at === 5 ? byte ^ 1 : byte)),
  });
  const DAMAGES: readonly (readonly [
    string,
    (row: IndexedAsk, other: IndexedAsk) => IndexedAsk,
  ])[] = [
    ["with a changed bit", (row) => ({ ...row, event: row.event && flipped(row.event) })],
    ["without its row", (row) => ({ ...row, event: undefined })],
    ["that is another ask", (row, other) => ({ ...row, event: other.event })],
    [
      "that was erased",
      (row) => ({ ...row, event: row.event && { ...row.event, payload: undefined } }),
    ],
  ];

  async function damage(change: (typeof DAMAGES)[number][1]): Promise<Ask[]> {
    const asks = [await asking.ask(run), await asking.ask(run), await asking.ask(run)];
    const read = asking.store.listAsks;
    asking.store.listAsks = async (query) => {
      const rows = await read(query);
      const [first, second] = rows;
      return rows.map((row) => (row === second && first ? change(row, first) : row));
    };
    return asks;
  }

  test.each(DAMAGES)("%s is refused within its session", async (_, change) => {
    await damage(change);
    expect(reasonOf(await list({ sessionId: run.sessionId }))).toBe(ErrorReason.DATA_DAMAGED);
  });

  test.each(DAMAGES)("%s is shown bare across sessions, and hides no other", async (_, change) => {
    const asks = await damage(change);
    const { items } = served(await list());
    expect(items.map(({ ask }) => ask?.askId)).toEqual(asks.map(({ askId }) => askId));
    const [first, second, third] = items;
    expect(first?.answerToken).not.toBe("");
    expect(third?.answerToken).not.toBe("");
    expect(second?.answerToken).toBe("");
    expect(second?.ask).toMatchObject({
      origin: { sessionId: run.sessionId },
      toolCallId: asks[1]?.toolCallId,
      state: AskState.UNSPECIFIED,
      prompt: "",
    });
    expect(second?.ask?.presented).toBeUndefined();
  });

  test("whose bytes are not those of its digest counts as one", async () => {
    await asking.ask(run);
    const read = asking.store.readBody;
    asking.store.readBody = async (...args) => {
      const body = await read(...args);
      return body && { ...body, data: new Uint8Array([1]) };
    };
    expect(reasonOf(await list({ sessionId: run.sessionId }))).toBe(ErrorReason.DATA_DAMAGED);
    const { items } = served(await list());
    expect(items[0]?.ask?.presented).toBeUndefined();
    expect(items[0]?.answerToken).toBe("");
  });

  test("is refused when read alone, and so is one whose receipt is missing", async () => {
    const ask = await asking.ask(run);
    const receipt = await asking.answer(run, ask);
    const read = asking.store.findRecord;
    asking.store.findRecord = async (session, recordId) =>
      recordId === receipt.receiptId ? undefined : read(session, recordId);
    const { caller, sessionId } = run;
    expect(reasonOf(await asking.asks.askAndReceipt(caller, sessionId, ask.askId))).toBe(
      ErrorReason.DATA_DAMAGED,
    );
    asking.store.findRecord = async (...args) => {
      const found = await read(...args);
      return found && { ...found, event: undefined };
    };
    expect(reasonOf(await asking.asks.getAsk(APPROVER, sessionId, ask.askId))).toBe(
      ErrorReason.DATA_DAMAGED,
    );
  });
});
