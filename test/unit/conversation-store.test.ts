import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { AuthorizationSchema } from "../../gen/toolmark/v1/authorization_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { Conversation, type EvidenceView } from "../../src/client/index.js";
import type { RevisedRecord } from "../../src/domain/merge-law.js";
import {
  CALL,
  OTHER,
  SESSION,
  askOf,
  callOf,
  eventOf,
  hookOf,
  receiptOf,
  reviewOf,
} from "../support/conversation-records.js";

function conversationOf(...records: readonly RevisedRecord[]): Conversation {
  const conversation = new Conversation(SESSION);
  for (const record of records) conversation.apply(eventOf(record));
  return conversation;
}

const standing = (conversation: Conversation): string[] =>
  conversation.evidence().map(({ key, attachment, conflict }: EvidenceView) => {
    const [kind = "", id = ""] = key.split("/");
    return [kind, id, attachment, conflict ?? ""].join(" ").trim();
  });

describe("7.1 the record store", () => {
  test("a repeated event is a duplicate, also after the record was updated", () => {
    const conversation = conversationOf(callOf(1n), hookOf(2n, { text: "a" }));
    conversation.apply(eventOf(hookOf(3n, { text: "b" })));
    const { revision } = conversation;
    conversation.apply(eventOf(hookOf(2n, { text: "a" })));
    conversation.apply(eventOf(hookOf(3n, { text: "b" })));
    expect(conversation.revision).toBe(revision);
    expect(standing(conversation)).toEqual(["hook hk_1 ATTACHED"]);
  });

  test.each([
    ["equal revision, another payload", hookOf(2n, { text: "other" })],
    ["a higher revision of another origin", hookOf(9n, { origin: { sessionId: OTHER } })],
    ["a higher revision about another call", hookOf(9n, { toolCallId: "tc_2" })],
  ])("%s is a conflict that changes nothing and is idempotent on replay", (_why, contradiction) => {
    const accepted = hookOf(2n, { text: "accepted" });
    const conversation = conversationOf(callOf(1n), accepted);
    const before = conversation.cards();
    conversation.apply(eventOf(contradiction));
    const once = conversation.view();
    conversation.apply(eventOf(contradiction));
    expect(conversation.view()).toEqual(once);
    expect(conversation.cards()).toEqual(before);
    expect(standing(conversation)).toEqual([
      "hook hk_1 ATTACHED",
      "hook hk_1 STANDALONE contradiction",
    ]);
    expect(conversation.notices().map(({ about, severity }) => [about, severity])).toEqual([
      ["hook", "info"],
      ["conflict", "warning"],
    ]);
  });

  test("a record without a revision cannot overwrite one that has one", () => {
    const old = hookOf(0n, { text: "old" });
    delete old.revision;
    const conversation = conversationOf(callOf(1n), hookOf(2n), old);
    expect(standing(conversation)).toContain("hook hk_1 STANDALONE contradiction");
    expect(conversation.cards()[0]?.hooks).toEqual([hookOf(2n)]);
  });

  test("conflicts stand in an order that does not depend on arrival", () => {
    const bad = ["b", "a", "c"].map((text) => hookOf(2n, { text }));
    const forwards = conversationOf(callOf(1n), hookOf(2n), ...bad);
    const backwards = conversationOf(callOf(1n), hookOf(2n), ...bad.reverse());
    expect(forwards.evidence()).toEqual(backwards.evidence());
    expect(forwards.evidence()).toHaveLength(4);
  });

  test("records are of one kind each: equal ids of two kinds are two records", () => {
    const conversation = conversationOf(callOf(1n), hookOf(2n, { hookId: "x" }));
    conversation.apply(eventOf(askOf(3n, { askId: "x" })));
    expect(standing(conversation)).toEqual(["hook x ATTACHED", "ask x ATTACHED"]);
  });
});

describe("7.1 attachment", () => {
  test("evidence waits for its call, and then stands on the card in the order that it was published in", () => {
    const conversation = conversationOf(hookOf(2n), hookOf(3n, { hookId: "hk_2" }), askOf(4n));
    expect(standing(conversation)).toEqual([
      "hook hk_1 PENDING",
      "hook hk_2 PENDING",
      "ask ask_1 PENDING",
    ]);
    conversation.apply(eventOf(callOf(1n)));
    const [card] = conversation.cards();
    expect(card?.hooks.map(({ hookId }) => hookId)).toEqual(["hk_1", "hk_2"]);
    expect(card?.asks).toHaveLength(1);
    expect(standing(conversation).every((line) => line.endsWith("ATTACHED"))).toBe(true);
  });

  const noCall = hookOf(2n);
  delete noCall.toolCallId;
  test.each([
    ["without a call", noCall],
    ["with an empty call", hookOf(2n, { toolCallId: "" })],
    ["of another origin", hookOf(2n, { origin: { sessionId: OTHER } })],
    ["whose review has another id", reviewOf(2n, { reviewId: "rv_2" })],
  ])("a hook record %s stands alone, whenever its call comes", (_which, hook) => {
    for (const records of [
      [callOf(1n), hook],
      [hook, callOf(1n)],
    ]) {
      const conversation = conversationOf(...records);
      const [evidence, ...more] = conversation.evidence();
      expect(more).toEqual([]);
      expect(evidence?.attachment).toBe("STANDALONE");
      expect(conversation.cards()[0]?.hooks).toEqual([]);
      expect(conversation.notices()).toHaveLength(1);
    }
  });

  test.each([
    ["names another ask", receiptOf(4n, { askId: "ask_2" })],
    ["names a review that the ask does not", receiptOf(4n, { reviewId: "rv_1" })],
    ["is of another origin", receiptOf(4n, { origin: { sessionId: OTHER } })],
    ["is about another call than its ask", receiptOf(4n, { toolCallId: "tc_2" })],
  ])("a receipt that %s settles nothing and stands alone", (_how, receipt) => {
    const calls = [callOf(1n), callOf(1n, { toolCallId: "tc_2" })];
    const asks = [askOf(2n), askOf(3n, { askId: "ask_2", toolCallId: "tc_2" })];
    const conversation = conversationOf(...calls, ...asks, receipt);
    expect(standing(conversation)).toContain("receipt rcp_1 STANDALONE");
    expect(conversation.prompts()).toHaveLength(2);
    expect(conversationOf(receipt, ...asks, ...calls).view()).toEqual(conversation.view());
  });

  test("a receipt waits for its ask", () => {
    const conversation = conversationOf(callOf(1n), receiptOf(3n));
    expect(standing(conversation)).toEqual(["receipt rcp_1 PENDING"]);
    conversation.apply(eventOf(askOf(2n)));
    expect(standing(conversation)).toEqual(["ask ask_1 ATTACHED", "receipt rcp_1 ATTACHED"]);
    expect(conversation.prompts()).toEqual([]);
  });

  test("nothing is bound anew: after another call with the id, what is bound stays and more stands alone", () => {
    const conversation = conversationOf(callOf(1n), hookOf(2n));
    conversation.apply(eventOf(callOf(3n, { origin: { sessionId: OTHER } })));
    conversation.apply(eventOf(hookOf(4n, { hookId: "hk_2" })));
    conversation.apply(eventOf(hookOf(2n)));
    expect(standing(conversation)).toEqual([
      "hook hk_1 ATTACHED",
      "hook hk_2 STANDALONE",
      "toolCall tc_1 STANDALONE contradiction",
    ]);
    expect(conversation.cards()).toHaveLength(1);
  });

  test("a child's records never stand on a card of the root, with equal ids and calls either", () => {
    const conversation = conversationOf(callOf(1n));
    const origin = { sessionId: OTHER };
    for (const record of [hookOf(2n, { origin }), askOf(3n, { origin })]) {
      conversation.apply(eventOf(record, { sessionId: OTHER }));
    }
    expect(conversation.cards()[0]?.hooks).toEqual([]);
    expect(conversation.evidence()).toEqual([]);
    expect(conversation.evidence(OTHER).map(({ attachment }) => attachment)).toEqual([
      "PENDING",
      "PENDING",
    ]);
  });

  test("a fork's copied records belong to each other, not to the source's", () => {
    const conversation = new Conversation("ses_fork");
    const hooks = [hookOf(2n)];
    conversation.applySnapshot({ toolCalls: [callOf(1n)], hooks });
    conversation.applySnapshot({ sessionId: SESSION, hooks });
    expect(conversation.cards()[0]?.hooks).toEqual(hooks);
    expect(conversation.evidence(SESSION)[0]?.attachment).toBe("PENDING");
  });
});

describe("B50: two identical calls with evidence before and after each", () => {
  const calls = ["tc_1", "tc_2"].map((toolCallId, at) => callOf(BigInt(at + 1), { toolCallId }));
  const evidence = ["tc_1", "tc_2"].flatMap((toolCallId, at) =>
    ["pre_tool_use", "post_tool_use"].map((phase, half) =>
      hookOf(BigInt(3 + 2 * at + half), { hookId: `hk_${toolCallId}_${phase}`, toolCallId, phase }),
    ),
  );
  const orders = permutations(evidence);

  test("there are 24 interleavings", () => {
    expect(orders).toHaveLength(24);
  });

  test.each(["before", "after", "amid"])("each is told apart, calls %s the evidence", (when) => {
    for (const order of orders) {
      const [first, second, ...rest] = order;
      const amid = [first, second].flatMap((hook) => hook ?? []);
      const all = {
        before: [...calls, ...order],
        after: [...order, ...calls],
        amid: [...amid, ...calls, ...rest],
      }[when];
      const shown = conversationOf(...(all ?? [])).cards();
      expect(shown.map(({ hooks }) => hooks.map(({ hookId }) => hookId))).toEqual([
        ["hk_tc_1_pre_tool_use", "hk_tc_1_post_tool_use"],
        ["hk_tc_2_pre_tool_use", "hk_tc_2_post_tool_use"],
      ]);
    }
  });
});

function permutations<T>(all: readonly T[]): T[][] {
  if (all.length === 0) return [[]];
  return all.flatMap((one, at) => permutations(all.toSpliced(at, 1)).map((rest) => [one, ...rest]));
}

describe("a card's revision", () => {
  const authorization = create(AuthorizationSchema, {
    authorizationId: "aut_1",
    origin: { sessionId: SESSION },
    toolCallId: CALL,
    revision: 5n,
  });
  test.each<[string, RevisedRecord]>([
    ["the call's next state", callOf(6n, { state: ToolCallState.STARTED })],
    ["a hook record about it", hookOf(5n)],
    ["an update of one", hookOf(6n, { hookId: "hk_0" })],
    ["an ask about it", askOf(5n)],
    ["an authorization of it", authorization],
  ])("rises by %s, and not when that is repeated", (_what, record) => {
    const conversation = conversationOf(callOf(1n), hookOf(2n, { hookId: "hk_0" }));
    const before = conversation.card(CALL)?.revision ?? 0;
    conversation.apply(eventOf(record));
    const after = conversation.card(CALL)?.revision ?? 0;
    expect(after).toBeGreaterThan(before);
    conversation.apply(eventOf(record));
    expect(conversation.card(CALL)?.revision).toBe(after);
  });

  test.each<[string, RevisedRecord]>([
    ["an older update", hookOf(1n, { hookId: "hk_0", text: "older" })],
    ["a conflict", hookOf(2n, { hookId: "hk_0", text: "other" })],
    ["evidence about another call", hookOf(5n, { toolCallId: "tc_2" })],
    ["evidence of another origin", hookOf(5n, { origin: { sessionId: OTHER } })],
  ])("stays with %s", (_what, record) => {
    const conversation = conversationOf(callOf(1n), hookOf(2n, { hookId: "hk_0" }));
    const before = conversation.card(CALL)?.revision;
    conversation.apply(eventOf(record));
    expect(conversation.card(CALL)?.revision).toBe(before);
  });
});
