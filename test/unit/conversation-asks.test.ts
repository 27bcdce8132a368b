import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import { AskKind, AskProvenance, AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { Conversation, type Prompt } from "../../src/client/index.js";
import type { RevisedRecord } from "../../src/domain/merge-law.js";
import {
  OTHER,
  SESSION,
  askOf,
  callOf,
  eventOf,
  receiptOf,
  UNKNOWN,
} from "../support/conversation-records.js";

const { DENY, ALLOW_ONCE, ALLOW_ALWAYS, EXPIRED, WITHDRAWN } = Verdict;

function conversationOf(...records: readonly RevisedRecord[]): Conversation {
  const conversation = new Conversation(SESSION);
  for (const record of [callOf(1n), ...records]) conversation.apply(eventOf(record));
  return conversation;
}

const offersOf = (prompt: Prompt | undefined) => prompt?.offers.map(({ verdict }) => verdict);

describe("7.3 the queue of questions", () => {
  test("the first that was asked is the first, whatever order they come in", () => {
    const asks = [1, 2, 3].map((at) =>
      askOf(BigInt(at + 1), { askId: `ask_${9 - at}`, createTime: timestampFromMs(at) }),
    );
    const expected = ["ask_8", "ask_7", "ask_6"];
    for (const order of [asks, [...asks].reverse()]) {
      expect(
        conversationOf(...order)
          .prompts()
          .map(({ ask }) => ask.askId),
      ).toEqual(expected);
    }
  });

  test.each([
    ["visible", [askOf(2n)], 1],
    ["answered", [askOf(2n), askOf(3n, { state: AskState.ANSWERED })], 0],
    ["expired", [askOf(2n), askOf(3n, { state: AskState.EXPIRED })], 0],
    ["withdrawn", [askOf(2n), askOf(3n, { state: AskState.WITHDRAWN })], 0],
    ["superseded", [askOf(2n), askOf(3n, { state: AskState.SUPERSEDED })], 0],
    ["settled by a receipt", [askOf(2n), receiptOf(4n)], 0],
  ])("a known ask that is %s is dropped when it comes again", (_how, records, count) => {
    const conversation = conversationOf(...records);
    conversation.apply(eventOf(askOf(2n)));
    conversation.applySnapshot({ asks: [askOf(2n)] });
    expect(conversation.prompts()).toHaveLength(count);
  });

  test("a newer ask about the same arguments is a prompt of its own", () => {
    const superseded = askOf(3n, { state: AskState.SUPERSEDED, supersededByAskId: "ask_2" });
    const conversation = conversationOf(askOf(2n), superseded, askOf(4n, { askId: "ask_2" }));
    expect(conversation.prompts().map(({ ask }) => ask.askId)).toEqual(["ask_2"]);
  });

  test.each([
    [AskState.OPEN, "open"],
    [AskState.ANSWERED, "answered"],
    [AskState.EXPIRED, "expired"],
    [AskState.WITHDRAWN, "withdrawn"],
    [AskState.SUPERSEDED, "superseded"],
    [AskState.UNSPECIFIED, "unknown (0)"],
    [UNKNOWN, "unknown (99)"],
  ])("state %s is shown on the card as %s", (state, standing) => {
    const [card] = conversationOf(askOf(2n, { state })).cards();
    expect(card?.asks.map((view) => view.standing)).toEqual([standing]);
  });

  test.each([
    [DENY, "answered"],
    [EXPIRED, "expired"],
    [WITHDRAWN, "withdrawn"],
  ])("an open ask whose receipt of verdict %s came first is shown as %s", (verdict, standing) => {
    const [card] = conversationOf(askOf(2n), receiptOf(4n, { verdict })).cards();
    expect(card?.asks).toMatchObject([{ standing, isOpen: false, receipt: { verdict } }]);
  });
});

describe("7.3 what a prompt offers", () => {
  test("a root's ask offers what it allows, with texts", () => {
    const [prompt] = conversationOf(askOf(2n)).prompts();
    expect(prompt).toMatchObject({ isChild: false, sessionId: SESSION });
    expect(prompt?.offers).toEqual([
      { verdict: DENY, label: "Deny" },
      { verdict: ALLOW_ONCE, label: "Allow once" },
      { verdict: ALLOW_ALWAYS, label: "Allow always" },
    ]);
  });

  test("a child's ask never offers always, and names its own session", () => {
    const origin = { sessionId: OTHER };
    const conversation = conversationOf();
    conversation.apply(eventOf(askOf(2n, { origin }), { sessionId: OTHER }));
    const [prompt] = conversation.prompts();
    expect(prompt).toMatchObject({ isChild: true, sessionId: OTHER });
    expect(offersOf(prompt)).toEqual([DENY, ALLOW_ONCE]);
  });

  test("an ask with a delegation path is a child's, wherever it was read", () => {
    const path = [{ sessionId: SESSION, toolCallId: "tc_0" }];
    const [prompt] = conversationOf(askOf(2n, { delegationPath: path })).prompts();
    expect(offersOf(prompt)).toEqual([DENY, ALLOW_ONCE]);
  });

  test("the release of a result offers release once and withhold, and nothing else", () => {
    const [prompt] = conversationOf(askOf(2n, { kind: AskKind.RESULT_RELEASE })).prompts();
    expect(prompt?.offers).toEqual([
      { verdict: DENY, label: "Withhold" },
      { verdict: ALLOW_ONCE, label: "Release once" },
    ]);
  });

  test.each([AskProvenance.UNSPECIFIED, UNKNOWN])(
    "an ask of unknown provenance %s is shown and never offers an allow",
    (provenance) => {
      const [prompt] = conversationOf(askOf(2n, { provenance })).prompts();
      expect(offersOf(prompt)).toEqual([DENY]);
    },
  );

  test.each([AskKind.UNSPECIFIED, UNKNOWN])(
    "an ask of unknown kind %s is shown and never offers an allow",
    (kind) => {
      expect(offersOf(conversationOf(askOf(2n, { kind })).prompts()[0])).toEqual([DENY]);
    },
  );

  test("only what the ask allows is offered, each once, and no verdict of the service or unknown one", () => {
    const allowedVerdicts = [
      ALLOW_ONCE,
      ALLOW_ONCE,
      EXPIRED,
      WITHDRAWN,
      Verdict.UNSPECIFIED,
      UNKNOWN,
    ];
    const [prompt] = conversationOf(askOf(2n, { allowedVerdicts })).prompts();
    expect(offersOf(prompt)).toEqual([ALLOW_ONCE]);
  });

  test("an ask that stands alone is shown and offers nothing", () => {
    const [prompt] = conversationOf(askOf(2n, { origin: { sessionId: OTHER } })).prompts();
    expect(offersOf(prompt)).toEqual([]);
  });

  test("an ask whose call is not known yet can be answered", () => {
    const conversation = new Conversation(SESSION);
    conversation.applySnapshot({ asks: [askOf(2n)] });
    expect(offersOf(conversation.prompts()[0])).toEqual([DENY, ALLOW_ONCE, ALLOW_ALWAYS]);
  });
});
