import { toJson } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { AwaitAskResponse } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { ReceiptPath, ReceiptSchema, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunOutcome } from "../../gen/toolmark/v1/run_pb.js";
import { CommitFeed } from "../../src/ledger/commit-feed.js";
import type { Store } from "../../src/ledger/store-port.js";
import {
  allReceipts,
  answer,
  answerTo,
  askAbout,
  openAsk,
  settle,
  showAsk,
  withdraw,
} from "../support/asking.js";
import {
  amendCall,
  endRun,
  given,
  openRun,
  publishHook,
  type OpenRun,
} from "../support/conversation.js";
import { FaultyStore } from "../support/faulty-store.js";
import { refused } from "../support/refused.js";
import { startTestService, WIRES, type Clients, type TestService } from "../support/service.js";
import { MovableClock } from "./cases-asks-fixture.js";
import { until } from "./listeners-fixture.js";

const HOUR_MS = 3_600_000;
const WAIT_MS = 60_000;
/** Much longer than an answer takes, much shorter than the wait. */
const PROMPT_MS = 10_000;
const WAITERS = 500;
/** The service itself listens for deadlines. */
const NOBODY = 1;

let clock: MovableClock;
let commits: CommitFeed;
let store: FaultyStore;
let service: TestService;
let clients: Clients;
let run: OpenRun;
let ask: Ask;

beforeEach(async () => {
  clock = new MovableClock();
  commits = new CommitFeed();
  service = await startTestService({
    ...{ commits, nowMs: clock.nowMs },
    wrapStore: (inner: Store) => {
      store = new FaultyStore(inner);
      return store;
    },
  });
  clients = service.clients();
  run = await openRun(clients);
  const expireTime = timestampFromMs(clock.nowMs() + HOUR_MS);
  ask = await askAbout(clients, run, { expireTime });
});

afterEach(async () => {
  await service.stop();
  expect(commits.subscribers).toBe(0);
});

const waiters = (): number => commits.subscribers - NOBODY;

/** Begins to wait for the ask, and returns once the service waits too. */
async function waitFor(
  by: Clients,
  waitMs = WAIT_MS,
): Promise<{ reply: Promise<AwaitAskResponse> }> {
  const before = waiters();
  const { sessionId } = run;
  const reply = by.calls.awaitAsk({ sessionId, askId: ask.askId, waitMs });
  // Whoever does not come so far as to look at it is told by the test's end.
  reply.catch(() => undefined);
  await until(() => waiters() === before + 1);
  return { reply };
}

interface Way {
  readonly name: string;
  readonly state: AskState;
  /** Absent if no receipt tells of it. */
  readonly receipt?: { readonly path: ReceiptPath; readonly verdict: Verdict };
  readonly settle: () => Promise<unknown>;
}

const RULE = { path: ReceiptPath.RULE, verdict: Verdict.DENY } as const;
const HOOK = { path: ReceiptPath.HOOK, verdict: Verdict.DENY } as const;
const WITHDRAWN = { path: ReceiptPath.SYSTEM, verdict: Verdict.WITHDRAWN } as const;

const WAYS: readonly Way[] = [
  {
    name: "a person's answer",
    state: AskState.ANSWERED,
    receipt: { path: ReceiptPath.HUMAN, verdict: Verdict.ALLOW_ALWAYS },
    settle: () => answer(clients, ask, Verdict.ALLOW_ALWAYS),
  },
  {
    name: "a rule",
    state: AskState.ANSWERED,
    receipt: RULE,
    settle: () => settle(clients, run, { askId: ask.askId, rule: "never", ...RULE }),
  },
  {
    name: "a hook",
    state: AskState.ANSWERED,
    receipt: HOOK,
    settle: async () => {
      const { hookId } = await publishHook(clients, run, ask.toolCallId);
      return settle(clients, run, { askId: ask.askId, hookId, ...HOOK });
    },
  },
  {
    name: "its withdrawal",
    state: AskState.WITHDRAWN,
    receipt: WITHDRAWN,
    settle: () => withdraw(clients, run, ask.askId),
  },
  {
    name: "the end of its run",
    state: AskState.WITHDRAWN,
    receipt: WITHDRAWN,
    settle: () => endRun(clients, run, { outcome: RunOutcome.COMPLETED }),
  },
  {
    name: "its deadline",
    state: AskState.EXPIRED,
    receipt: { path: ReceiptPath.TIMEOUT, verdict: Verdict.EXPIRED },
    settle: async () => {
      clock.aheadMs += HOUR_MS;
    },
  },
  {
    name: "a newer ask",
    state: AskState.SUPERSEDED,
    settle: () => openAsk(clients, run, ask.toolCallId),
  },
  {
    name: "amended arguments",
    state: AskState.SUPERSEDED,
    settle: () => amendCall(clients, run, ask.toolCallId, "{}"),
  },
];

describe.each(WIRES)("whoever waits for an ask over %s", (wire) => {
  test.each(WAYS)("is answered as soon as it is settled by $name", async (way) => {
    const waiting = await waitFor(service.clients(wire));
    const beganMs = performance.now();
    await way.settle();
    const reply = await waiting.reply;
    expect(performance.now() - beganMs).toBeLessThan(PROMPT_MS);
    expect(reply.ask).toMatchObject({ askId: ask.askId, state: way.state });
    const receipts = await allReceipts(clients, run.sessionId);
    expect(jsonOf(reply)).toEqual(receipts.map((receipt) => toJson(ReceiptSchema, receipt))[0]);
    if (way.receipt === undefined) expect(reply.receipt).toBeUndefined();
    else expect(reply.receipt).toMatchObject(way.receipt);
    expect(waiters()).toBe(0);
  });

  test("is told that it is still open when the wait is over", async () => {
    const { sessionId } = run;
    const reply = await service
      .clients(wire)
      .calls.awaitAsk({ sessionId, askId: ask.askId, waitMs: 50 });
    expect(reply.ask).toMatchObject({ askId: ask.askId, state: AskState.OPEN });
    expect(reply.receipt).toBeUndefined();
    expect(waiters()).toBe(0);
  });

  test("is told so at once when the server shuts down", async () => {
    const waiting = await waitFor(service.clients(wire));
    const beganMs = performance.now();
    const drained = service.drain();
    const reply = await waiting.reply;
    expect(performance.now() - beganMs).toBeLessThan(PROMPT_MS);
    expect(reply.ask).toMatchObject({ askId: ask.askId, state: AskState.OPEN });
    expect(reply.receipt).toBeUndefined();
    await drained;
    expect(commits.subscribers).toBe(0);
  });

  test("costs nothing any more when its deadline has passed", async () => {
    const { sessionId } = run;
    const reply = service
      .clients(wire)
      .calls.awaitAsk({ sessionId, askId: ask.askId }, { timeoutMs: 100 });
    expect((await refused(reply)).code).toBe(Code.DeadlineExceeded);
    await until(() => waiters() === 0);
  });

  test("costs nothing any more when it has gone away", async () => {
    const { sessionId } = run;
    const canceller = new AbortController();
    const { signal } = canceller;
    const reply = service.clients(wire).calls.awaitAsk({ sessionId, askId: ask.askId }, { signal });
    const refusal = refused(reply);
    await until(() => waiters() === 1);
    canceller.abort();
    expect((await refusal).code).toBe(Code.Canceled);
    await until(() => waiters() === 0);
  });

  test("is refused what is not there", async () => {
    const { sessionId } = run;
    const { calls } = service.clients(wire);
    const noAsk = calls.awaitAsk({ sessionId, askId: "ask_none" });
    expect(await refused(noAsk)).toMatchObject({ code: Code.NotFound, reason: "ASK_NOT_FOUND" });
    const noSession = calls.awaitAsk({ sessionId: "ses_none", askId: ask.askId });
    expect(await refused(noSession)).toMatchObject({
      code: Code.NotFound,
      reason: "SESSION_NOT_FOUND",
    });
    expect(waiters()).toBe(0);
  });
});

function jsonOf({ receipt }: AwaitAskResponse) {
  return receipt === undefined ? undefined : toJson(ReceiptSchema, receipt);
}

test("an ask that is settled already is given at once", async () => {
  const receipt = await answer(clients, ask, Verdict.DENY);
  const { sessionId } = run;
  for (const wire of WIRES) {
    const { calls } = service.clients(wire);
    const reply = await calls.awaitAsk({ sessionId, askId: ask.askId, waitMs: WAIT_MS });
    expect(jsonOf(reply)).toEqual(toJson(ReceiptSchema, receipt));
  }
});

test("an answer whose commit failed is given if it is stored all the same", async () => {
  const waiting = await waitFor(clients);
  const request = answerTo(await showAsk(clients, run.sessionId, ask.askId));
  store.failNext = "after";
  const refusal = await refused(clients.approvals.answerAsk(request));
  expect(refusal.reason).toBe("COMMIT_UNCERTAIN");
  const reply = await waiting.reply;
  const { receipt } = await clients.approvals.answerAsk(request);
  expect(jsonOf(reply)).toEqual(toJson(ReceiptSchema, given(receipt, "receipt")));
});

test(`${WAITERS} who wait for one ask all get its receipt`, async () => {
  const callers = Array.from({ length: 12 }, (_, at) =>
    service.clients(WIRES[at % WIRES.length] ?? "grpc"),
  );
  const { sessionId } = run;
  const replies = Array.from({ length: WAITERS }, (_, at) =>
    given(callers[at % callers.length], "caller").calls.awaitAsk({
      ...{ sessionId, askId: ask.askId, waitMs: WAIT_MS },
    }),
  );
  await until(() => waiters() === WAITERS);
  const receipt = toJson(ReceiptSchema, await answer(clients, ask));
  for (const reply of await Promise.all(replies)) expect(jsonOf(reply)).toEqual(receipt);
  expect(waiters()).toBe(0);
  expect(await allReceipts(clients, sessionId)).toHaveLength(1);
});
