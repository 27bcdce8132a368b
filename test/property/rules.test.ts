import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { refuse } from "../../src/domain/refusal.js";
import { RULE_MUTANTS } from "../mutants/rule-mutants.js";
import { histories, ruleStep } from "../support/ledger-steps.js";
import { answerFaults, faultsOfRules } from "../support/rules-machine.js";
import { propertyOptions, seededTitle } from "../support/seed.js";

const STEPS_MAX = 60;
const FULL_RUNS = 20_000;

/** Enough for each mistake; the same in every run, so that none is found by luck. */
const MUTANT_RUNS = { numRuns: 10_000, seed: 1, endOnFailure: true };

describe("the rules", () => {
  test(seededTitle("P12: keep what they promise of asks, receipts, starts and results"), () => {
    const property = fc.property(histories(ruleStep, STEPS_MAX), (steps) => {
      expect(faultsOfRules(steps, {})).toEqual([]);
    });
    fc.assert(property, propertyOptions(FULL_RUNS));
  });

  const mutants = RULE_MUTANTS.map((mutant) => [mutant.name, mutant] as const);
  test.each(mutants)("or are found out: those that %s", (_, { fault, bent }) => {
    const property = fc.property(histories(ruleStep, STEPS_MAX), (steps) => {
      return !faultsOfRules(steps, bent).some((text) => fault.test(text));
    });
    expect(fc.check(property, MUTANT_RUNS).failed).toBe(true);
  });

  test("or are found out: those that take a wrong answer", () => {
    const refused = refuse(ErrorReason.ANSWER_MISMATCH, "review_id is not that of the ask");
    expect(answerFaults(false, [])).toEqual(["a wrong or late answer was accepted"]);
    expect(answerFaults(false, refused)).toEqual([]);
    expect(answerFaults(true, [])).toEqual([]);
  });
});
