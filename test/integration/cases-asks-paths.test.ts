import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { ActorKind, ActorSchema, type Actor } from "../../gen/toolmark/v1/origin_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import {
  ReceiptPath,
  ReceiptSchema,
  SpendState,
  Verdict,
  type Receipt,
} from "../../gen/toolmark/v1/receipt_pb.js";
import {
  ReviewAssessment,
  ReviewDisposition,
  ReviewInspection,
  ReviewJob,
} from "../../gen/toolmark/v1/review_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { sha256 } from "../../src/domain/sha256.js";
import {
  allReceipts,
  answerTo,
  openAsk,
  settle,
  showAsk,
  startCall,
  withdraw,
} from "../support/asking.js";
import {
  acceptCall,
  allEvents,
  bytes,
  given,
  newCall,
  of,
  openRun,
  readCall,
  type OpenRun,
} from "../support/conversation.js";
import type { Clients } from "../support/service.js";
import { startWatchedService, type WatchedService } from "../support/watched-service.js";
import {
  Callers,
  MovableClock,
  principal,
  TWO_WIRES,
  type OneOfTwoWires,
} from "./cases-asks-fixture.js";

const ARGUMENTS = '{"url":"https://example.org"}';
const TOOL = "http_request";
const WAIT_MS = 3_600_000;
const PERSON = create(ActorSchema, { subject: "ann", kind: ActorKind.PRINCIPAL });
const HARNESS = create(ActorSchema, { subject: "harness", kind: ActorKind.PRINCIPAL });
const SYSTEM = create(ActorSchema, { subject: "", kind: ActorKind.SYSTEM });

/** What a receipt says that depends on how its ask was settled. */
interface Said {
  readonly verdict: Verdict;
  readonly path: ReceiptPath;
  readonly actor: Actor;
  readonly reason: string;
  readonly rule?: string;
  readonly hookId?: string;
}

interface Scene {
  readonly harness: Clients;
  readonly person: Clients;
  readonly run: OpenRun;
  readonly ask: Ask;
}

interface Way {
  readonly name: string;
  readonly verdict: Verdict;
  readonly state: AskState;
  readonly call: ToolCallState;
  /** Settles the ask, and tells what the receipt must say. */
  settle(scene: Scene): Promise<Said>;
}

const DECISIONS = [
  { verdict: Verdict.DENY, call: ToolCallState.DENIED },
  { verdict: Verdict.ALLOW_ONCE, call: ToolCallState.ACCEPTED },
  { verdict: Verdict.ALLOW_ALWAYS, call: ToolCallState.ACCEPTED },
];

let service: WatchedService;
let callers: Callers;
let clock: MovableClock;

/** A way for each thing that can be decided. */
function decisions(
  name: string,
  decide: (scene: Scene, verdict: Verdict) => Promise<Omit<Said, "verdict">>,
): Way[] {
  return DECISIONS.map(({ verdict, call }) => ({
    name: `${name} ${Verdict[verdict]}`,
    verdict,
    state: AskState.ANSWERED,
    call,
    settle: async (scene) => ({ verdict, ...(await decide(scene, verdict)) }),
  }));
}

const WAYS: readonly Way[] = [
  ...decisions("HUMAN", async ({ person, run, ask }, verdict) => {
    const request = answerTo(await showAsk(person, run.sessionId, ask.askId), verdict);
    await person.approvals.answerAsk({ ...request, reason: "I looked" });
    return { path: ReceiptPath.HUMAN, reason: "I looked", actor: PERSON };
  }),
  ...decisions("RULE", async ({ harness, run, ask }, verdict) => {
    const said = {
      path: ReceiptPath.RULE,
      rule: "web: ask once",
      reason: "as configured",
    } as const;
    await settle(harness, run, { askId: ask.askId, verdict, ...said });
    return { ...said, actor: HARNESS };
  }),
  ...decisions("HOOK", async ({ harness, run, ask }, verdict) => {
    const { toolCallId } = ask;
    const decision = verdict === Verdict.DENY ? HookDecision.BLOCKED : HookDecision.INFO;
    const command = { toolCallId, phase: "pre_tool_use", decision };
    const { hook } = await harness.evidence.publishHook({ ...of(run), command });
    const { hookId } = given(hook, "hook");
    const said = { path: ReceiptPath.HOOK, hookId, reason: "" } as const;
    await settle(harness, run, { askId: ask.askId, verdict, ...said });
    return { ...said, actor: HARNESS };
  }),
  {
    name: "TIMEOUT EXPIRED",
    verdict: Verdict.EXPIRED,
    state: AskState.EXPIRED,
    call: ToolCallState.EXPIRED,
    settle: async ({ harness, run }) => {
      clock.aheadMs += WAIT_MS;
      let receipts: Receipt[] = [];
      while (receipts.length === 0) receipts = await allReceipts(harness, run.sessionId);
      const { EXPIRED: verdict } = Verdict;
      return { verdict, path: ReceiptPath.TIMEOUT, reason: "", actor: SYSTEM };
    },
  },
  {
    name: "SYSTEM WITHDRAWN",
    verdict: Verdict.WITHDRAWN,
    state: AskState.WITHDRAWN,
    call: ToolCallState.ACCEPTED,
    settle: async ({ harness, run, ask }) => {
      const { reason } = await withdraw(harness, run, ask.askId);
      const { WITHDRAWN: verdict } = Verdict;
      return { verdict, path: ReceiptPath.SYSTEM, reason, actor: HARNESS };
    },
  },
];

beforeAll(async () => {
  clock = new MovableClock();
  const principals = {
    ann: principal("ann", { approver: "tenant" }),
    harness: principal("harness", { engine: "own" }),
  };
  service = await startWatchedService({ principals, nowMs: clock.nowMs });
  callers = new Callers(service);
});

afterAll(async () => {
  callers.disconnect();
  await service.stop();
});

async function review(harness: Clients, run: OpenRun, toolCallId: string): Promise<string> {
  const outcome = {
    job: ReviewJob.ACTION,
    assessment: ReviewAssessment.UNRESOLVED,
    inspection: ReviewInspection.COMPLETE,
    disposition: ReviewDisposition.ASK_ACTION,
  };
  const command = { toolCallId, phase: "pre_tool_use", review: outcome };
  return given((await harness.evidence.publishReview({ ...of(run), command })).hook, "hook").hookId;
}

/** An open ask of a harness about one call, seen by it and by the person. */
async function openScene(wire: OneOfTwoWires, withReview: boolean): Promise<Scene> {
  const harness = callers.as("harness", wire);
  const person = callers.as("ann", wire);
  const run = await openRun(harness);
  const call = await acceptCall(harness, run, newCall("call_0", TOOL, ARGUMENTS));
  const reviewId = withReview ? await review(harness, run, call.toolCallId) : undefined;
  const expireTime = timestampFromMs(clock.nowMs() + WAIT_MS);
  const changed = reviewId === undefined ? {} : { reviewId };
  const ask = await openAsk(harness, run, call.toolCallId, { expireTime, ...changed });
  return { harness, person, run, ask };
}

function isAllow(verdict: Verdict): boolean {
  return verdict === Verdict.ALLOW_ONCE || verdict === Verdict.ALLOW_ALWAYS;
}

/** The receipt of an ask, whole. What the service chose is taken over from the one that is there. */
function receiptOf({ ask }: Scene, said: Said, there: Receipt): Receipt {
  const { receiptId, revision, answerTime } = there;
  return create(ReceiptSchema, {
    ...said,
    ...{ receiptId, revision: given(revision, "revision"), answerTime: given(answerTime, "time") },
    askId: ask.askId,
    origin: given(ask.origin, "origin"),
    toolCallId: ask.toolCallId,
    ...(ask.reviewId === undefined ? {} : { reviewId: ask.reviewId }),
    toolName: TOOL,
    presentedSha256: new Uint8Array(sha256(bytes(ARGUMENTS))),
    spendState: isAllow(said.verdict) ? SpendState.UNSPENT : SpendState.UNSPECIFIED,
  });
}

/** Of each path some asks name a review and some do not. */
const CASES = WAYS.map((way, index) => {
  const withReview = index % 2 === 1;
  return [`${way.name}${withReview ? " after a review" : ""}`, way, withReview] as const;
});

describe.each(TWO_WIRES)("over %s", (wire) => {
  test.each(CASES)("%s makes exactly this receipt", async (_name, way, withReview) => {
    const scene = await openScene(wire, withReview);
    const { harness, run, ask } = scene;
    const { sessionId } = run;
    const beforeMs = clock.nowMs();
    const said = await way.settle(scene);
    const receipts = await allReceipts(harness, sessionId);
    expect(receipts.length).toBe(1);
    const receipt = given(receipts[0], "receipt");
    expect(receipt).toEqual(receiptOf(scene, said, receipt));
    expect(receipt.receiptId).toMatch(/^rcp_[0-9a-z]{26}$/);
    const answeredMs = Number(given(receipt.answerTime, "time").seconds) * 1000 + 999;
    expect(answeredMs).toBeGreaterThanOrEqual(beforeMs);

    const { receiptId } = receipt;
    const got = await scene.person.approvals.getReceipt({ sessionId, receiptId });
    expect(got.receipt).toEqual(receipt);
    const shown = await showAsk(scene.person, sessionId, ask.askId);
    expect(shown).toMatchObject({ answerToken: "", ask: { state: way.state, receiptId } });
    const call = await readCall(harness, sessionId, ask.toolCallId);
    expect(ToolCallState[call.state]).toBe(ToolCallState[way.call]);
    const events = await allEvents(harness, sessionId);
    const written = events.find(({ kind }) => kind === "RECEIPT_WRITTEN");
    expect(written?.record?.record).toEqual({ case: "receipt", value: receipt });
    expect(written?.actor).toEqual(said.actor);
  });

  test("an allow is spent by the start, and nothing else of the receipt changes", async () => {
    const scene = await openScene(wire, false);
    const { harness, run } = scene;
    const [human] = WAYS.filter(({ verdict }) => verdict === Verdict.ALLOW_ONCE);
    await given(human, "way").settle(scene);
    const [unspent] = await allReceipts(harness, run.sessionId);
    await startCall(harness, run, scene.ask.toolCallId);
    const [spent] = await allReceipts(harness, run.sessionId);
    const { revision, ...rest } = given(spent, "receipt");
    expect(rest).toEqual({
      ...given(unspent, "receipt"),
      revision: undefined,
      spendState: SpendState.SPENT,
    });
    expect(revision).toBeGreaterThan(given(unspent?.revision, "revision"));
  });
});

test("the comparison of receipts sees each field", async () => {
  const scene = await openScene("grpc", true);
  const said = await given(WAYS[0], "way").settle(scene);
  const [receipt] = await allReceipts(scene.harness, scene.run.sessionId);
  const there = given(receipt, "receipt");
  const expected = receiptOf(scene, said, there);
  const others: Partial<Receipt>[] = [
    { verdict: Verdict.ALLOW_ONCE },
    { path: ReceiptPath.RULE },
    { rule: "a rule" },
    { hookId: "hk_1" },
    { actor: HARNESS },
    { reason: "" },
    { toolName: "bash" },
    { presentedSha256: new Uint8Array(32) },
    { spendState: SpendState.UNSPENT },
    { reviewId: "rv_1" },
  ];
  for (const other of others) expect({ ...there, ...other }).not.toEqual(expected);
});
