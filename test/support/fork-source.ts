import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunOutcome } from "../../gen/toolmark/v1/run_pb.js";
import {
  answer,
  askAbout,
  openAsk,
  park,
  publishReview,
  reviewOf,
  settleAuthorization,
  startCall,
} from "./asking.js";
import {
  acceptCall,
  acceptTurn,
  amendCall,
  beginRun,
  complete,
  createSession,
  endRun,
  newCall,
  publishHook,
  recordMessage,
  type OpenRun,
} from "./conversation.js";
import type { Clients } from "./service.js";

/** A session with settled records of every kind, and after them a turn that still waits for everything. */
export interface ForkSource {
  readonly run: OpenRun;
  /** Settled calls. */
  readonly allowedId: string;
  readonly lateId: string;
  readonly askId: string;
  readonly receiptId: string;
  readonly authorizationId: string;
  readonly hookId: string;
  /** What a fork of the whole does not get. */
  readonly open: { readonly callIds: readonly string[]; readonly recordIds: readonly string[] };
}

const LARGE = "a long result ".repeat(1500);

export async function writeForkSource(clients: Clients): Promise<ForkSource> {
  const run = await beginRun(clients, await createSession(clients));
  await recordMessage(clients, run);
  await publishHook(clients, run);
  const settled = await writeSettled(clients, run);
  const next = await beginRun(clients, run.sessionId);
  await recordMessage(clients, next);
  return { run: next, ...settled, open: await writeOpen(clients, next) };
}

async function writeSettled(
  clients: Clients,
  run: OpenRun,
): Promise<Omit<ForkSource, "run" | "open">> {
  const calls = await acceptTurn(clients, run, [
    newCall("call_0"),
    newCall(undefined, "fetch"),
    newCall("call_1", "read", "no object"),
  ]);
  const [allowedId = "", amendedId = "", parkedId = ""] = calls.map((call) => call.toolCallId);
  const { hookId } = await publishHook(clients, run, allowedId);
  const review = await publishReview(clients, run, reviewOf(allowedId));
  const ask = await openAsk(clients, run, allowedId, { reviewId: review.hookId });
  const { receiptId } = await answer(clients, ask);
  await startCall(clients, run, allowedId);
  const { authorizationId } = await park(clients, run, parkedId);
  await settleAuthorization(clients, run, authorizationId, AuthorizationState.GRANTED);
  await amendCall(clients, run, amendedId, '{"url":"other"}');
  await complete(clients, run, amendedId, "small");
  await complete(clients, run, parkedId, "done");
  await complete(clients, run, allowedId, LARGE);
  await answer(clients, await askAbout(clients, run), Verdict.DENY);
  const late = await acceptCall(clients, run, newCall("call_late"));
  await startCall(clients, run, late.toolCallId);
  const interruptedToolCallIds = [late.toolCallId];
  await endRun(clients, run, { outcome: RunOutcome.INTERRUPTED, interruptedToolCallIds });
  await complete(clients, run, late.toolCallId, "too late");
  return {
    allowedId,
    lateId: late.toolCallId,
    askId: ask.askId,
    receiptId,
    authorizationId,
    hookId,
  };
}

async function writeOpen(clients: Clients, run: OpenRun): Promise<ForkSource["open"]> {
  const calls = await acceptTurn(
    clients,
    run,
    [1, 2, 3, 4].map((n) => newCall(`open_${n}`)),
  );
  const callIds = calls.map((call) => call.toolCallId);
  const [askedId = "", allowedId = "", doneId = "", parkedId = ""] = callIds;
  const ask = await openAsk(clients, run, askedId);
  const allowed = await openAsk(clients, run, allowedId);
  const receipt = await answer(clients, allowed);
  const { authorizationId } = await park(clients, run, parkedId);
  await complete(clients, run, doneId);
  const hook = await publishHook(clients, run, doneId);
  const recordIds = [ask.askId, allowed.askId, receipt.receiptId, authorizationId, hook.hookId];
  return { callIds, recordIds };
}
