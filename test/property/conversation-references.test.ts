import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Event, EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import {
  Conversation,
  type ConversationView,
  type Evidence,
  type EvidenceView,
} from "../../src/client/index.js";
import { copyOf } from "../../src/client/revised-records.js";
import type { ReducerRules } from "../../src/client/session-records.js";
import { attachmentOf } from "../../src/domain/attachment.js";
import { merge, recordId } from "../../src/domain/merge-law.js";
import { CHILD, ROOT, recordedLogs } from "../support/conversation-log.js";
import { eventOf } from "../support/conversation-records.js";
import { propertyOptions, seededTitle } from "../support/seed.js";

/** Which reference is wrong: of a new record, or of an update of one that is known. */
const WRONG = ["origin", "call", "record", "update's origin", "update's call"] as const;
type Wrong = (typeof WRONG)[number];

interface Case {
  readonly events: readonly Event[];
  readonly bent: Evidence;
  /** After how many of the events it comes. */
  readonly at: number;
}

function evidenceIn(record: EventRecord["record"] | undefined): Evidence[] {
  switch (record?.case) {
    case "hook":
    case "ask":
    case "receipt":
    case "authorization":
      return [record.value];
    default:
      return [];
  }
}

const NEVER_USED = 1_000_000n;
const ELSEWHERE = { $typeName: "toolmark.v1.Origin", sessionId: CHILD } as const;

/** The same with another id. */
function renamed(evidence: Evidence): Evidence {
  const id = `${recordId(evidence)}x`;
  switch (evidence.$typeName) {
    case "toolmark.v1.Hook": {
      const { review } = evidence;
      return { ...evidence, hookId: id, ...(review && { review: { ...review, reviewId: id } }) };
    }
    case "toolmark.v1.Ask":
      return { ...evidence, askId: id };
    case "toolmark.v1.Receipt":
      return { ...evidence, receiptId: id };
    case "toolmark.v1.Authorization":
      return { ...evidence, authorizationId: id };
  }
}

/** With a wrong name of the record that it is of. Undefined: it names none. */
function misnamed(evidence: Evidence): Evidence | undefined {
  switch (evidence.$typeName) {
    case "toolmark.v1.Hook": {
      const { review } = evidence;
      return review && { ...evidence, review: { ...review, reviewId: "rv_elsewhere" } };
    }
    case "toolmark.v1.Receipt":
      return { ...evidence, askId: "ask_elsewhere" };
    default:
      return undefined;
  }
}

function bend(evidence: Evidence, wrong: Wrong): Evidence | undefined {
  const revision = NEVER_USED;
  switch (wrong) {
    case "origin":
      return { ...renamed(evidence), revision, origin: ELSEWHERE };
    case "call":
      return { ...renamed(evidence), revision, toolCallId: "tc_elsewhere" };
    case "record": {
      const bent = misnamed(renamed(evidence));
      return bent && { ...bent, revision };
    }
    case "update's origin":
      return { ...evidence, revision, origin: ELSEWHERE };
    case "update's call":
      return { ...evidence, revision, toolCallId: "tc_elsewhere" };
  }
}

const cases: fc.Arbitrary<Case> = fc
  .record({
    log: recordedLogs,
    wrong: fc.constantFrom(...WRONG),
    pick: fc.nat({ max: 1000 }),
    cut: fc.nat({ max: 1000 }),
  })
  .map(({ log, wrong, pick, cut }) => {
    const events = log.events.filter(({ sessionId }) => sessionId === ROOT);
    const all = events.flatMap(({ record }, at) =>
      evidenceIn(record?.record).flatMap((evidence) => {
        const bent = evidence.toolCallId === undefined ? undefined : bend(evidence, wrong);
        return bent === undefined ? [] : [{ bent, at }];
      }),
    );
    const chosen = all[pick % Math.max(1, all.length)];
    if (chosen === undefined) return undefined;
    // Of two accounts that contradict each other the first is kept: an update comes after what it updates.
    const first = wrong.startsWith("update") ? chosen.at + 1 : 0;
    return { events, bent: chosen.bent, at: first + (cut % (events.length - first + 1)) };
  })
  .filter((found) => found !== undefined);

function viewOf(rules: ReducerRules, events: readonly Event[]): ConversationView {
  const conversation = new Conversation(ROOT, {}, rules);
  for (const event of events) conversation.apply(event);
  return conversation.view();
}

/** It is shown, on no card, and changes nothing else. */
function check(rules: ReducerRules, runs: ReturnType<typeof propertyOptions>): void {
  fc.assert(
    fc.property(cases, ({ events, bent, at }) => {
      const event = eventOf(bent, { sessionId: ROOT, sequence: NEVER_USED });
      const given = [...events.slice(0, at), event, ...events.slice(at)];
      const expected = viewOf(rules, events);
      const got = viewOf(rules, [...given, event]);
      const isBent = ({ record }: EvidenceView) => record.revision === NEVER_USED;
      const shown = got.evidence.filter(isBent);
      // Digests of the service are Buffers; what is shown has plain bytes.
      expect(shown.map(({ record }) => record)).toEqual([copyOf(bent)]);
      const waits = bent.toolCallId === "tc_elsewhere" || isReceiptOfNoAsk(bent);
      const allowed = waits ? ["PENDING", "STANDALONE"] : ["STANDALONE"];
      expect(allowed).toContain(shown[0]?.attachment);
      expect(got.cards).toEqual(expected.cards);
      expect(got.evidence.filter((one) => !isBent(one))).toEqual(expected.evidence);
    }),
    runs,
  );
}

const isReceiptOfNoAsk = (evidence: Evidence): boolean =>
  evidence.$typeName === "toolmark.v1.Receipt" && evidence.askId === "ask_elsewhere";

const LAWFUL: ReducerRules = { merge, attachmentOf };

const MUTANTS: Readonly<Record<string, Partial<ReducerRules>>> = {
  "the origin of evidence is not compared": {
    attachmentOf: (evidence, calls) =>
      attachmentOf({ ...evidence, ...(calls[0]?.origin && { origin: calls[0].origin }) }, calls),
  },
  "an update may change origin and call": {
    merge: (current, incoming) => {
      const outcome = merge(current, incoming);
      return outcome === "conflict" && incoming.revision === NEVER_USED ? "advanced" : outcome;
    },
  },
  "a contradiction is dropped": {
    merge: (current, incoming) => {
      const outcome = merge(current, incoming);
      return outcome === "conflict" ? "older" : outcome;
    },
  },
};

describe("P14: joins happen only on explicit matching references", () => {
  test(seededTitle("one wrong reference of origin, call or record keeps evidence alone"), () => {
    check(LAWFUL, propertyOptions(10_000));
  });

  test.each(Object.entries(MUTANTS))(
    "the property catches a reducer by which %s",
    (_how, rules) => {
      expect(() => {
        check({ ...LAWFUL, ...rules }, { numRuns: 500, seed: 1 });
      }).toThrow();
    },
  );
});
