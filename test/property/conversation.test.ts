import { isDeepStrictEqual } from "node:util";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import { Conversation, type ConversationView } from "../../src/client/index.js";
import type { ReducerRules } from "../../src/client/session-records.js";
import { attachmentOf } from "../../src/domain/attachment.js";
import { merge } from "../../src/domain/merge-law.js";
import { deliver, deliveries, inOrder, type Delivery } from "../support/conversation-delivery.js";
import { CHILD, ROOT } from "../support/conversation-log.js";
import { propertyOptions, seededTitle } from "../support/seed.js";

type MakeConversation = () => Conversation;
type Runs = ReturnType<typeof propertyOptions>;

function viewOf(make: MakeConversation, { log }: Delivery, all: Delivery["delivered"]) {
  const conversation = make();
  deliver(conversation, log, all);
  return conversation.view();
}

/** Any split, overlap, repetition and order ends in what the sorted log without repetition ends in. */
function checkConvergence(make: MakeConversation, runs: Runs): void {
  fc.assert(
    fc.property(deliveries, (delivery) => {
      const expected = viewOf(make, delivery, inOrder(delivery));
      const got = viewOf(make, delivery, delivery.delivered);
      if (!isDeepStrictEqual(got, expected)) expect(got).toEqual(expected);
      const { length } = expected.evidence.filter(({ conflict }) => conflict !== undefined);
      expect(length).toBe(0);
    }),
    runs,
  );
}

const idsIn = (events: readonly Event[], sessionId: string): Set<string> =>
  new Set(
    events.flatMap(({ sessionId: owner, record }) => {
      if (owner !== sessionId || record === undefined) return [];
      switch (record.record.case) {
        case "toolCall":
          return [record.record.value.toolCallId];
        case "hook":
          return [record.record.value.hookId];
        case "ask":
          return [record.record.value.askId];
        case "receipt":
          return [record.record.value.receiptId];
        case "authorization":
          return [record.record.value.authorizationId];
        default:
          return [];
      }
    }),
  );

function idsShown({ cards, evidence }: ConversationView, sessionId: string): Set<string> {
  const shownCards = cards.filter((card) => card.sessionId === sessionId);
  const own = evidence.filter((one) => one.sessionId === sessionId);
  return new Set([
    ...shownCards.map(({ call }) => call.toolCallId),
    ...own.map(({ key }) => key.slice(key.indexOf("/") + 1)),
  ]);
}

/** After each input everything that was given is shown, in its own session, and nothing that was shown is gone. */
function checkNothingIsLost(make: MakeConversation, runs: Runs): void {
  fc.assert(
    fc.property(deliveries, ({ log, delivered }) => {
      const conversation = make();
      const given: Event[] = [];
      const chunk = Math.ceil(delivered.length / 5);
      for (let at = 0; at < delivered.length; at += chunk) {
        const part = delivered.slice(at, at + chunk).filter(({ kind }) => kind !== "lists");
        deliver(conversation, log, part);
        for (const one of part) {
          const event = one.kind === "lists" ? undefined : log.events[one.index];
          if (event !== undefined) given.push(event);
        }
        const view = conversation.view();
        for (const id of [ROOT, CHILD]) expect(idsShown(view, id)).toEqual(idsIn(given, id));
        checkCards(view);
      }
      const { evidence } = conversation.view();
      expect(evidence.filter(({ attachment }) => attachment === "PENDING")).toEqual([]);
    }),
    runs,
  );
}

/** A card has exactly the evidence that names it and is attached, of its own session. */
function checkCards({ cards, evidence }: ConversationView): void {
  for (const { sessionId, call, hooks, asks, receipts, authorizations } of cards) {
    const on = [...hooks, ...asks.map(({ ask }) => ask), ...receipts, ...authorizations];
    const attached = evidence.filter(
      (one) =>
        one.sessionId === sessionId &&
        one.attachment === "ATTACHED" &&
        one.record.toolCallId === call.toolCallId,
    );
    expect(on).toEqual(attached.map(({ record }) => record));
    for (const { origin } of on) expect(origin?.sessionId).toBe(call.origin?.sessionId);
  }
}

/** The first call with the same tool gets what names no call that is known. */
class ByToolName extends Conversation {
  override apply(event: Event): void {
    const record = event.record?.record;
    if (record?.case !== "hook") {
      super.apply(event);
      return;
    }
    const { toolName } = record.value;
    const [card] = this.cards(event.sessionId).filter(({ call }) => call.toolName === toolName);
    const toolCallId = card?.call.toolCallId ?? record.value.toolCallId ?? "";
    const value = { ...record.value, toolCallId };
    const bent = { ...event.record, record: { case: "hook", value } };
    super.apply({ ...event, record: bent } as Event);
  }
}

const LAWFUL: ReducerRules = { merge, attachmentOf };

const withRules = (rules: Partial<ReducerRules>): Conversation =>
  new Conversation(ROOT, {}, { ...LAWFUL, ...rules });

const MUTANTS: Readonly<Record<string, MakeConversation>> = {
  "the last update wins": () => withRules({ merge: () => "advanced" }),
  "a lower revision wins": () =>
    withRules({
      merge: (current, incoming) => {
        const outcome = merge(current, incoming);
        if (outcome === "older") return "advanced";
        return outcome === "advanced" && current !== undefined ? "older" : outcome;
      },
    }),
  "what waits for its call is dropped": () =>
    withRules({
      attachmentOf: (evidence, calls) => {
        const attachment = attachmentOf(evidence, calls);
        return attachment === "PENDING" ? "STANDALONE" : attachment;
      },
    }),
  "evidence is attached by the name of the tool": () => new ByToolName(ROOT),
  "a child's events are taken as the root's": () => {
    const conversation = new Conversation(ROOT);
    const { apply } = conversation;
    conversation.apply = (event) => {
      apply.call(conversation, { ...event, sessionId: ROOT });
    };
    return conversation;
  },
};

describe("a conversation", () => {
  test(seededTitle("P9: any split, overlap, repetition and order ends in the same state"), () => {
    checkConvergence(() => new Conversation(ROOT), propertyOptions(10_000));
  });

  test(seededTitle("loses nothing that it was given, and puts it where it belongs"), () => {
    checkNothingIsLost(() => new Conversation(ROOT), propertyOptions(2_000));
  });

  test("is tried with everything that can be on a card", () => {
    const found = {
      review: 0,
      receipt: 0,
      handOver: 0,
      authorization: 0,
      parts: 0,
      team: 0,
      prompt: 0,
      bytes: 0,
    };
    for (const delivery of fc.sample(deliveries, { numRuns: 200, seed: 1 })) {
      const { cards, prompts } = viewOf(() => new Conversation(ROOT), delivery, delivery.delivered);
      found.prompt += prompts.length;
      for (const card of cards) {
        found.review += card.hooks.filter(({ review }) => review !== undefined).length;
        found.receipt += card.receipts.length;
        found.handOver += card.receipts.filter(({ reviewId }) => reviewId !== undefined).length;
        found.authorization += card.authorizations.length;
        found.parts += Number(card.provisional !== undefined);
        found.team += Number(card.kind === "team");
        found.bytes += Number(card.call.proposed?.data !== undefined);
      }
    }
    for (const [what, count] of Object.entries(found)) expect(count, what).toBeGreaterThan(10);
  });

  test.each(Object.entries(MUTANTS))("the properties catch one in which %s", (_name, make) => {
    const runs = { numRuns: 200, seed: 1, endOnFailure: true };
    expect(() => {
      checkConvergence(make, runs);
      checkNothingIsLost(make, runs);
    }).toThrow();
  });
});
