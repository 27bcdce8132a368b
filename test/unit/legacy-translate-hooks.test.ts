import { describe, expect, test } from "vitest";
import { HookDecision, type Hook } from "../../gen/toolmark/v1/hook_pb.js";
import {
  ReviewAssessment,
  ReviewDisposition,
  ReviewInspection,
  ReviewJob,
} from "../../gen/toolmark/v1/review_pb.js";
import { attachmentOf } from "../../src/domain/attachment.js";
import type { Translation } from "../../src/legacy/translation.js";
import {
  call,
  hook,
  review,
  start,
  translated,
  translatedBoth,
  type Line,
} from "../support/old-log-events.js";
import { recordsOf } from "../support/translations.js";

const REVIEW = "old-1:a:action";
const { EXECUTE, ASK_ACTION } = ReviewDisposition;

/** The review of the call `a` that lets it be carried out. */
const final = (of: object = {}, more: object = {}) =>
  review("a", { Disposition: "execute", ...of }, more);
/** An event that cannot be told from a repeated one. */
const nameless = { RunID: "" };

/** Each hook as its review, or that it has none of its own, what it says, and the number of its call. */
function shape(translation: Translation): string[] {
  const calls = recordsOf(translation, "toolCall");
  return recordsOf(translation, "hook").map((record) => {
    const at = calls.findIndex(({ toolCallId }) => toolCallId === record.toolCallId);
    const id = record.hookId.startsWith("hkl_") ? "own" : record.hookId;
    const { review: of, decision, text } = record;
    const says = of ? ReviewDisposition[of.disposition] : HookDecision[decision];
    return [id, says, text, at === -1 ? "alone" : `call ${at}`].filter(Boolean).join(" ");
  });
}

const cases: readonly (readonly [
  rule: string,
  lines: readonly Line[],
  shapes: readonly string[],
])[] = [
  [
    "1: without a run, each is a record, even if they are equal",
    [call("a"), hook("a", {}, nameless), hook("a", {}, nameless)],
    ["own INFO call 0", "own INFO call 0"],
  ],
  [
    "1: of seq 0, each is a record",
    [call("a"), hook("a", {}, { Seq: 0 }), hook("a", {}, { Seq: 0 })],
    ["own INFO call 0", "own INFO call 0"],
  ],
  [
    "2: the same again is dropped",
    [call("a"), hook("a", {}, { Seq: 7 }), hook("a", {}, { Seq: 7 })],
    ["own INFO call 0"],
  ],
  [
    "2: the same again is dropped though the record was updated since",
    [call("a"), review("a", {}, { Seq: 7 }), final({}, { Seq: 8 }), review("a", {}, { Seq: 7 })],
    [`${REVIEW} EXECUTE call 0`],
  ],
  [
    "2: what the record says now, under the number of what it said first, is a conflict",
    [call("a"), review("a", {}, { Seq: 7 }), final({}, { Seq: 8 }), final({}, { Seq: 7 })],
    [`${REVIEW} EXECUTE call 0`, "own EXECUTE alone"],
  ],
  [
    "2: another payload with the same run and seq is a conflict",
    [call("a"), hook("a", {}, { Seq: 7 }), hook("a", { Decision: "blocked" }, { Seq: 7 })],
    ["own INFO call 0", "own BLOCKED alone"],
  ],
  [
    "2: another text with the same run and seq is a conflict",
    [call("a"), hook("a", {}, { Seq: 7, Text: "x" }), hook("a", {}, { Seq: 7, Text: "y" })],
    ["own INFO x call 0", "own INFO y alone"],
  ],
  [
    "2: the same seq in another run is another event",
    [call("a"), hook("a", {}, { Seq: 7 }), hook("a", {}, { Seq: 7, RunID: "run-2" })],
    ["own INFO call 0", "own INFO call 0"],
  ],
  [
    "3: a review is updated in place",
    [call("a"), review("a"), final()],
    [`${REVIEW} EXECUTE call 0`],
  ],
  [
    "3a: an older seq of the run and review is a conflict",
    [call("a"), review("a", {}, { Seq: 9 }), final({}, { Seq: 5 })],
    [`${REVIEW} ASK_ACTION call 0`, "own EXECUTE alone"],
  ],
  [
    "3a: an older seq is told by the newest that was accepted, not by the first",
    [
      ...[call("a"), review("a", {}, { Seq: 5 }), final({}, { Seq: 9 })],
      review("a", { Disposition: "deny" }, { Seq: 7 }),
    ],
    [`${REVIEW} EXECUTE call 0`, "own DENY alone"],
  ],
  [
    "3a: a conflict does not make a later event stale",
    [
      ...[call("a"), review("a", {}, { Seq: 5 }), final({}, { Seq: 3 })],
      review("a", { Disposition: "deny" }, { Seq: 6 }),
    ],
    [`${REVIEW} DENY call 0`, "own EXECUTE alone"],
  ],
  [
    "3: of another run there is no older: what comes later wins",
    [call("a"), review("a", {}, { Seq: 9 }), final({}, { Seq: 5, RunID: "run-2" })],
    [`${REVIEW} EXECUTE call 0`],
  ],
  [
    "3b: without a source after one that has it is a conflict",
    [call("a"), review("a"), final({}, nameless)],
    [`${REVIEW} ASK_ACTION call 0`, "own EXECUTE alone"],
  ],
  [
    "3b: without a source after one that has none is an update",
    [call("a"), review("a", {}, nameless), final({}, nameless)],
    [`${REVIEW} EXECUTE call 0`],
  ],
  [
    "3b: with a source after one that has none is an update",
    [call("a"), review("a", {}, nameless), final()],
    [`${REVIEW} EXECUTE call 0`],
  ],
  [
    "3c: of another call is a conflict",
    [call("a"), call("b"), review("a"), review("b", { ReviewID: REVIEW })],
    [`${REVIEW} ASK_ACTION call 0`, "own ASK_ACTION alone"],
  ],
  [
    "3c: of no call after one of a call is a conflict",
    [call("a"), review("a"), review("", { ReviewID: REVIEW })],
    [`${REVIEW} ASK_ACTION call 0`, "own ASK_ACTION alone"],
  ],
  [
    "3d: of an id that two calls have by now is a conflict, and the first stays with its call",
    [call("a"), review("a"), start({ Turn: 2 }), call("a", { Turn: 2 }), final()],
    [`${REVIEW} ASK_ACTION call 0`, "own EXECUTE alone"],
  ],
  [
    "3: a record without a call may get one",
    [call("a"), review("", { ReviewID: REVIEW }), final()],
    [`${REVIEW} EXECUTE call 0`],
  ],
  [
    "a conflict that comes again is one",
    [
      ...[call("a"), hook("a", {}, { Seq: 7 })],
      ...[hook("a", { Phase: "x" }, { Seq: 7 }), hook("a", { Phase: "x" }, { Seq: 7 })],
      hook("a", { Phase: "y" }, { Seq: 7 }),
    ],
    ["own INFO call 0", "own INFO alone", "own INFO alone"],
  ],
  [
    "a conflict of a review that comes again is one",
    [call("a"), review("a", {}, { Seq: 9 }), final({}, { Seq: 5 }), final({}, { Seq: 5 })],
    [`${REVIEW} ASK_ACTION call 0`, "own EXECUTE alone"],
  ],
  [
    "a conflict without a source is another each time",
    [call("a"), review("a"), final({}, nameless), final({}, nameless)],
    [`${REVIEW} ASK_ACTION call 0`, "own EXECUTE alone", "own EXECUTE alone"],
  ],
  [
    "attachment: before its call it waits, and the order is that of arrival",
    [hook("b", {}, { Text: "1" }), hook("a", {}, { Text: "2" }), call("a"), call("b")],
    ["own INFO 1 call 1", "own INFO 2 call 0"],
  ],
  [
    "attachment: a review that waits is updated, and then attached",
    [review("a"), final(), call("a")],
    [`${REVIEW} EXECUTE call 0`],
  ],
  ["attachment: of a call that never comes", [hook("a"), call("b")], ["own INFO alone"]],
  ["attachment: of no call, beside one with an empty id", [call(""), hook("")], ["own INFO alone"]],
  [
    "attachment: it stays when the id comes again, and a later one stands alone",
    [
      ...[call("a"), hook("a", {}, { Text: "1" }), start({ Turn: 2 }), call("a", { Turn: 2 })],
      hook("a", {}, { Text: "2" }),
    ],
    ["own INFO 1 call 0", "own INFO 2 alone"],
  ],
  [
    "attachment: one that waited has the first call, whatever comes then",
    [hook("a"), call("a"), call("a")],
    ["own INFO call 0"],
  ],
  [
    "a child's review is never of a call here, by whatever id",
    [
      ...[call("a"), review("a", { ReviewID: "sub-1:a:action" }), review("a")],
      review("a", { ReviewID: "sub-1:a:action", Disposition: "execute" }),
    ],
    ["sub-1:a:action EXECUTE alone", `${REVIEW} ASK_ACTION call 0`],
  ],
  [
    "a review without a usable id is called by an id of its own",
    [call("a"), review("a", { ReviewID: "" }), review("a", { ReviewID: "x\ny" })],
    ["own ASK_ACTION call 0", "own ASK_ACTION call 0"],
  ],
  [
    "a review of an unusable id is still one review",
    [call("a"), review("a", { ReviewID: "x".repeat(513) }), final({ ReviewID: "x".repeat(513) })],
    ["own EXECUTE call 0"],
  ],
];

describe("G: hooks of a log (upstream-facts 7.1)", () => {
  test.each(cases)("%s", (_, lines, shapes) => {
    const translation = translated(start(), ...lines);
    expect(shape(translation)).toEqual(shapes);
    expect(new Set(recordsOf(translation, "hook").map(({ hookId }) => hookId)).size).toBe(
      shapes.length,
    );
  });

  test.each(cases)(
    "%s: beside a snapshot, it is the same and attached to nothing",
    (_, lines, shapes) => {
      const messages = [{ role: "assistant", tool_calls: [{ ID: "a", Name: "bash", Args: null }] }];
      const beside = shape(translatedBoth({ messages }, start(), ...lines));
      expect(beside).toEqual(shapes.map((each) => each.replace(/call \d$/, "alone")));
    },
  );

  test.each(cases)("%s: is shown where its record says", (_, lines) => {
    const translation = translated(start(), ...lines);
    const calls = recordsOf(translation, "toolCall");
    for (const record of recordsOf(translation, "hook")) {
      const isAttached = record.toolCallId !== undefined;
      expect(attachmentOf(record, calls)).toBe(isAttached ? "ATTACHED" : "STANDALONE");
      if (isAttached) expect(record.toolName).toBe("bash");
    }
  });
});

test("a review tells what it found, and not who checked", () => {
  const [told] = recordsOf(translated(start(), call("a"), review("a")), "hook");
  expect(told).toMatchObject({
    ...{ hookId: REVIEW, origin: { sessionId: "old-1" }, runId: "run-1", phase: "PreToolUse" },
    review: {
      ...{ reviewId: REVIEW, job: ReviewJob.ACTION, assessment: ReviewAssessment.UNRESOLVED },
      ...{ inspection: ReviewInspection.COMPLETE, disposition: ASK_ACTION, checker: "" },
      ...{ reasonCode: "authority_crossing", ruleId: "rule", ruleOrigin: "config" },
      ...{ concerns: [{ ref: "c1", category: "exfiltration" }], sources: [] },
    },
  });
  expect(told?.revision).toBeUndefined();
});

test("a conflict names the review that it contradicts", () => {
  const [, conflict] = recordsOf(
    translated(start(), call("a"), review("a"), final({}, nameless)),
    "hook",
  ) as [Hook, Hook];
  expect(conflict.review).toMatchObject({ reviewId: REVIEW, disposition: EXECUTE });
});

test("words that are not known stay unknown", () => {
  const [told] = recordsOf(
    translated(review("a", { Job: "x", Assessment: "x", Inspection: "x", Disposition: "x" })),
    "hook",
  );
  expect(told?.review).toMatchObject({ job: 0, assessment: 0, inspection: 0, disposition: 0 });
});
