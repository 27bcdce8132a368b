import { create } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { AskSchema } from "../../gen/toolmark/v1/ask_pb.js";
import { HookSchema } from "../../gen/toolmark/v1/hook_pb.js";
import { ReceiptSchema } from "../../gen/toolmark/v1/receipt_pb.js";
import { ToolCallSchema, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { attachmentOf, type Attachment, type Evidence } from "../../src/domain/attachment.js";
import { reviewId } from "../../src/domain/identity.js";
import { propertyOptions, seededTitle } from "../support/seed.js";

type Wrong = "origin" | "call" | "record" | "none" | "no call";

interface Case {
  readonly calls: readonly ToolCall[];
  readonly evidence: Evidence;
  readonly wrong: Wrong;
}

function callOf(toolCallId: string, sessionId: string): ToolCall {
  return create(ToolCallSchema, { toolCallId, origin: { sessionId }, revision: 1n });
}

/** Evidence about the first of some calls that all look alike, with at most one wrong reference. */
const cases: fc.Arbitrary<Case> = fc
  .record({
    count: fc.integer({ min: 1, max: 5 }),
    kind: fc.constantFrom("hook" as const, "review" as const, "ask" as const, "receipt" as const),
    wrong: fc.constantFrom<Wrong>("origin", "call", "record", "none", "no call"),
  })
  .map(({ count, kind, wrong }) => {
    const calls = Array.from({ length: count }, (_, index) => callOf(`tc_${index}`, "ses_a"));
    const sessionId = wrong === "origin" ? "ses_b" : "ses_a";
    const toolCallId = wrong === "call" ? "tc_elsewhere" : "tc_0";
    const about = { origin: { sessionId }, toolCallId };
    const id = reviewId(toolCallId, "ACTION");
    switch (kind) {
      case "ask":
        return { calls, wrong, evidence: create(AskSchema, { askId: "ask_1", ...about }) };
      case "receipt":
        return { calls, wrong, evidence: create(ReceiptSchema, { receiptId: "rcp_1", ...about }) };
      case "review": {
        const review = { reviewId: wrong === "record" ? "rv_other" : id };
        return { calls, wrong, evidence: create(HookSchema, { hookId: id, review, ...about }) };
      }
      case "hook": {
        const origin = about.origin;
        const call = wrong === "no call" ? {} : { toolCallId };
        return { calls, wrong, evidence: create(HookSchema, { hookId: "hk_1", origin, ...call }) };
      }
    }
  });

function expected({ evidence, wrong }: Case): Attachment {
  if (wrong === "origin") return "STANDALONE";
  if (wrong === "call") return "PENDING";
  const isHook = evidence.$typeName === "toolmark.v1.Hook";
  if (wrong === "record" && isHook && evidence.review !== undefined) return "STANDALONE";
  if (wrong === "no call" && isHook && evidence.toolCallId === undefined) return "STANDALONE";
  return "ATTACHED";
}

type Rule = typeof attachmentOf;

function check(rule: Rule, runs: { numRuns: number; seed: number }): void {
  fc.assert(
    fc.property(cases, (given) => {
      expect(rule(given.evidence, given.calls)).toBe(expected(given));
    }),
    runs,
  );
}

const MUTANTS: Readonly<Record<string, Rule>> = {
  "origin is not compared": (evidence, calls) =>
    attachmentOf({ ...evidence, ...(calls[0]?.origin && { origin: calls[0].origin }) }, calls),
  "the only call is taken when the named one is missing": (evidence, calls) => {
    const [only] = calls;
    const decided = attachmentOf(evidence, calls);
    return decided === "PENDING" && only !== undefined ? "ATTACHED" : decided;
  },
  "a review's own id is not compared": (evidence, calls) =>
    evidence.$typeName === "toolmark.v1.Hook"
      ? attachmentOf({ ...evidence, review: undefined }, calls)
      : attachmentOf(evidence, calls),
  "everything is attached": () => "ATTACHED",
};

describe("P14: joins happen only on explicit matching references", () => {
  test(seededTitle("one wrong reference of origin, call or record never joins"), () => {
    check(attachmentOf, propertyOptions(10_000));
  });

  test.each(Object.entries(MUTANTS))("the property catches a rule by which %s", (_name, rule) => {
    expect(() => {
      check(rule, { numRuns: 1000, seed: 1 });
    }).toThrow();
  });

  test("two retained calls with the named id leave evidence standing alone", () => {
    const evidence = create(AskSchema, { origin: { sessionId: "ses_a" }, toolCallId: "tc_1" });
    const calls = [callOf("tc_1", "ses_a"), callOf("tc_1", "ses_b")];
    expect(attachmentOf(evidence, calls)).toBe("STANDALONE");
  });
});
