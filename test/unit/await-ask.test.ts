import { beforeEach, expect, test } from "vitest";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { isRefusal, refuse, type Refusal } from "../../src/domain/refusal.js";
import { AwaitAsk, type AwaitEnds } from "../../src/watch/await-ask.js";
import { AskingLedger, type AskingRun } from "../support/asking-ledger.js";
import { committedWrite, OPEN_ASK } from "../support/committed-write.js";

const GONE = refuse(ErrorReason.CALLER_GONE, "gone");

let asking: AskingLedger;
let run: AskingRun;
let nowMs: number;

beforeEach(async () => {
  asking = new AskingLedger();
  run = await asking.run();
  nowMs = 0;
});

class Ends implements AwaitEnds {
  aborted: Refusal | undefined;
  readonly gone = new AbortController();
  readonly drain = new AbortController();
  readonly signal = this.gone.signal;
  readonly draining = this.drain.signal;

  leave(): void {
    this.aborted = GONE;
    this.gone.abort(GONE);
  }
}

/** How the ask stood at the answer, with its receipt's id, or why there is none. */
async function awaited(askId: string, waitMs = 0, ends = new Ends(), clock = () => nowMs) {
  const { asks, options } = asking;
  const awaiting = new AwaitAsk({ asks, commits: options.commits, monotonicMs: clock });
  const { caller, sessionId } = run;
  const found = await awaiting.wait(caller, { sessionId, askId, waitMs }, ends);
  expect(options.commits.subscribers).toBe(0);
  return isRefusal(found) ? found.reason : [found.ask.state, found.receipt?.receiptId];
}

/** Tells of a change of the ask, as a commit of unknown outcome does. */
function ring(askId: string): void {
  const { tenant } = run.caller;
  const event = { ask: OPEN_ASK, askId };
  asking.options.commits.publish([committedWrite(tenant, run.sessionId, [event])]);
}

test("an ask that is settled is answered at once", async () => {
  const ask = await asking.ask(run);
  const { receiptId } = await asking.answer(run, ask);
  expect(await awaited(ask.askId)).toEqual([AskState.ANSWERED, receiptId]);
});

test("an ask that is settled meanwhile is answered then, whatever else is asked before", async () => {
  const ask = await asking.ask(run);
  const answer = awaited(ask.askId);
  await asking.ask(run);
  const { receiptId } = await asking.answer(run, ask);
  expect(await answer).toEqual([AskState.ANSWERED, receiptId]);
});

test("an ask is not read for what happens to others of its session", async () => {
  const ask = await asking.ask(run);
  const read = asking.store.findRecord;
  let reads = 0;
  asking.store.findRecord = async (session, recordId) => {
    if (recordId === ask.askId) reads += 1;
    return read(session, recordId);
  };
  const answer = awaited(ask.askId);
  for (let count = 0; count < 5; count += 1) await asking.answer(run, await asking.ask(run));
  expect(reads).toBe(1);
  const { receiptId } = await asking.answer(run, ask);
  expect(await answer).toEqual([AskState.ANSWERED, receiptId]);
  expect(reads).toBe(2);
});

test("an answer that is committed while the ask is read is not missed", async () => {
  const ask = await asking.ask(run);
  const read = asking.store.findRecord;
  let receiptId: string | undefined;
  asking.store.findRecord = async (...args) => {
    const found = await read(...args);
    asking.store.findRecord = read;
    ({ receiptId } = await asking.answer(run, ask));
    return found;
  };
  const state = await awaited(ask.askId);
  expect(state).toEqual([AskState.ANSWERED, receiptId]);
});

test("an ask that stays open is given when the wait is over", async () => {
  const ask = await asking.ask(run);
  expect(await awaited(ask.askId, 20)).toEqual([AskState.OPEN, undefined]);
});

test.each([
  ["the default", 0, 30_000],
  ["as asked for", 10_000, 10_000],
  ["lowered", 4_294_967_295, 60_000],
])("the wait is %s", async (_, waitMs, expectedMs) => {
  const ask = await asking.ask(run);
  const asked = awaited(ask.askId, waitMs);
  let isOver = false;
  void asked.then(() => {
    isOver = true;
  });
  nowMs = expectedMs - 5000;
  ring(ask.askId);
  await asking.ask(run);
  expect(isOver).toBe(false);
  nowMs = expectedMs;
  ring(ask.askId);
  expect(await asked).toEqual([AskState.OPEN, undefined]);
});

test("a shutdown is answered with the ask as it is", async () => {
  const ask = await asking.ask(run);
  const ends = new Ends();
  const answer = awaited(ask.askId, 0, ends);
  await asking.ask(run);
  ends.drain.abort();
  expect(await answer).toEqual([AskState.OPEN, undefined]);
  expect(await awaited(ask.askId, 0, ends)).toEqual([AskState.OPEN, undefined]);
});

test("a caller that goes away gets the reason", async () => {
  const ask = await asking.ask(run);
  const ends = new Ends();
  const answer = awaited(ask.askId, 0, ends);
  await asking.ask(run);
  ends.leave();
  expect(await answer).toBe(ErrorReason.CALLER_GONE);
});

test("an ask that is not there is not waited for", async () => {
  expect(await awaited("ask_none")).toBe(ErrorReason.ASK_NOT_FOUND);
  run = { ...run, caller: { ...run.caller, tenant: "other" } };
  expect(await awaited("ask_none")).toBe(ErrorReason.SESSION_NOT_FOUND);
});
