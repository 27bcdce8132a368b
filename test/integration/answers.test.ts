import { toJson, type JsonValue, type MessageInitShape } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { AnswerAskRequestSchema } from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import {
  ReceiptPath,
  ReceiptSchema,
  SpendState,
  Verdict,
  type Receipt,
} from "../../gen/toolmark/v1/receipt_pb.js";
import { Ran, ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { allReceipts, answerTo, openAsk, showAsk } from "../support/asking.js";
import { acceptCall, allEvents, given, openRun, readCall } from "../support/conversation.js";
import { writtenTo } from "../support/nothing-written.js";
import { refused, type Refused } from "../support/refused.js";
import { seededRandom, seededTitle } from "../support/seed.js";
import { startTestService, WIRES, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

const ANSWERS = 1000;

type AnswerInit = MessageInitShape<typeof AnswerAskRequestSchema>;

let folder: StoreFolder;
let service: TestService;

beforeAll(async () => {
  folder = await makeStoreFolder();
  service = await startTestService({ store: folder.store });
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

async function restart(): Promise<void> {
  await service.stop();
  service = await startTestService({ store: folder.store });
}

/** Answers to an ask as it was shown: half of them denials, in no order. */
function answersTo(shown: Parameters<typeof answerTo>[0], random: () => number): AnswerInit[] {
  const verdicts = Array.from({ length: ANSWERS }, (_, at) => ({
    verdict: at % 2 === 0 ? Verdict.DENY : Verdict.ALLOW_ONCE,
    place: random(),
  }));
  verdicts.sort((left, right) => left.place - right.place);
  return verdicts.map(({ verdict }) => answerTo(shown, verdict));
}

/** What became of answers that were sent at once. */
interface Race {
  readonly ask: Ask;
  readonly before: number;
  readonly won: readonly { readonly request: AnswerInit; readonly receipt: Receipt }[];
  readonly lost: readonly { readonly request: AnswerInit; readonly refusal: Refused }[];
}

/** Answers one ask a thousand times at once over four connections. */
async function race(random: () => number): Promise<Race> {
  const callers = WIRES.map((wire) => service.clients(wire));
  const clients = service.clients();
  const run = await openRun(clients);
  const { sessionId } = run;
  const { askId } = await openAsk(clients, run, (await acceptCall(clients, run)).toolCallId);
  const shown = await showAsk(clients, sessionId, askId);
  const before = (await allEvents(clients, sessionId)).length;
  const requests = answersTo(shown, random);
  const sent = requests.map((request, at) =>
    given(callers[at % callers.length], "caller").approvals.answerAsk(request),
  );
  const outcomes = await Promise.allSettled(sent);
  const won: { request: AnswerInit; receipt: Receipt }[] = [];
  const lost: { request: AnswerInit; refusal: Refused }[] = [];
  for (const [at, outcome] of outcomes.entries()) {
    const request = given(requests[at], "request");
    if (outcome.status === "fulfilled") {
      won.push({ request, receipt: given(outcome.value.receipt, "receipt") });
    } else lost.push({ request, refusal: await refused(given(sent[at], "answer")) });
  }
  return { ask: shown.ask, before, won, lost };
}

/** What a verdict makes of the call and of the allow, and how the log tells it. */
function meaningOf(verdict: Verdict) {
  return verdict === Verdict.DENY
    ? {
        call: { state: ToolCallState.DENIED, ran: Ran.NO },
        spendState: SpendState.UNSPECIFIED,
        kinds: ["RECEIPT_WRITTEN", "ASK_ANSWERED", "TOOL_CALL_ENDED"],
      }
    : {
        call: { state: ToolCallState.ACCEPTED, ran: Ran.UNKNOWN },
        spendState: SpendState.UNSPENT,
        kinds: ["RECEIPT_WRITTEN", "ASK_ANSWERED", "TOOL_CALL_READY"],
      };
}

/** The records tell of the winner alone. */
async function expectToTellOf(
  clients: Clients,
  { ask, before }: Race,
  { request, receipt }: Race["won"][number],
): Promise<void> {
  const { sessionId } = given(ask.origin, "origin");
  const meaning = meaningOf(receipt.verdict);
  expect(receipt).toMatchObject({
    ...{ askId: ask.askId, toolCallId: ask.toolCallId, verdict: request.verdict },
    ...{ path: ReceiptPath.HUMAN, spendState: meaning.spendState },
  });
  expect(hexOf(receipt.presentedSha256)).toBe(hexOf(given(ask.presented, "body").sha256));
  const receipts = await allReceipts(clients, sessionId);
  expect(receipts.map(jsonOf)).toEqual([jsonOf(receipt)]);
  const written = (await allEvents(clients, sessionId)).slice(before);
  expect(written.map(({ kind }) => kind)).toEqual(meaning.kinds);
  const settled = { state: AskState.ANSWERED, receiptId: receipt.receiptId };
  const after = await showAsk(clients, sessionId, ask.askId);
  expect(after).toMatchObject({ ask: settled, answerToken: "" });
  expect(await readCall(clients, sessionId, ask.toolCallId)).toMatchObject(meaning.call);
}

/** Sent again over every wire the winner's answer gets the first reply, and nothing is written. */
async function expectRetries({ request, receipt }: Race["won"][number]): Promise<void> {
  const sessionId = given(receipt.origin, "origin").sessionId;
  const before = await writtenTo(service, service.clients(), sessionId);
  for (const wire of WIRES) {
    const reply = await service.clients(wire).approvals.answerAsk(request);
    expect(jsonOf(given(reply.receipt, "receipt"))).toEqual(jsonOf(receipt));
  }
  expect(await writtenTo(service, service.clients(), sessionId)).toEqual(before);
}

describe(`${ANSWERS} answers to one ask at once, half of them denials`, () => {
  const outcome: { race?: Race } = {};
  const raced = (): Race => given(outcome.race, "race");
  const winner = () => given(raced().won[0], "winner");

  beforeAll(async () => {
    outcome.race = await race(seededRandom("answers"));
  });

  test(seededTitle("have one winner, and make one receipt"), async () => {
    expect(raced().won.length).toBe(1);
    await expectToTellOf(service.clients(), raced(), winner());
  });

  test("and all others are told which receipt won", () => {
    expect(raced().lost.length).toBe(ANSWERS - 1);
    const [first] = raced().lost.map(({ refusal }) => refusal);
    expect(first).toMatchObject({
      code: Code.FailedPrecondition,
      reason: "ASK_NOT_OPEN",
      metadata: { ask_id: raced().ask.askId, receipt_id: winner().receipt.receiptId },
    });
    expect(raced().lost.filter(({ refusal }) => !equal(refusal, first))).toEqual([]);
  });

  test("and the winner's answer gets the same reply again, at once and after a restart", async () => {
    await expectRetries(winner());
    await restart();
    await expectRetries(winner());
    await expectToTellOf(service.clients(), raced(), winner());
  });

  test("and a loser's answer is refused again after the restart, with nothing written", async () => {
    const { request, refusal } = given(raced().lost[0], "loser");
    const { sessionId } = given(raced().ask.origin, "origin");
    const before = await writtenTo(service, service.clients(), sessionId);
    for (const wire of WIRES) {
      const again = service.clients(wire).approvals.answerAsk(request);
      expect(await refused(again)).toEqual(refusal);
    }
    expect(await writtenTo(service, service.clients(), sessionId)).toEqual(before);
  });

  test("and the winner's request id is used up for any other answer", async () => {
    const { request } = winner();
    const other = { ...request, reason: "another reason" };
    const refusal = await refused(service.clients().approvals.answerAsk(other));
    expect(refusal).toMatchObject({ code: Code.AlreadyExists, reason: "REQUEST_ID_REUSED" });
  });
});

function jsonOf(receipt: Receipt): JsonValue {
  return toJson(ReceiptSchema, receipt);
}

function hexOf(data: Uint8Array): string {
  return Buffer.from(data).toString("hex");
}

function equal(left: Refused, right: Refused | undefined): boolean {
  return JSON.stringify(left) === JSON.stringify(right);
}
