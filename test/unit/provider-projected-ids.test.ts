import * as fc from "fast-check";
import { describe, expect, it } from "vitest";

import { projectedCallDigest } from "../../src/domain/identity.js";
import { anthropicMessages } from "../../src/provider/anthropic-messages.js";
import { gemini } from "../../src/provider/gemini.js";
import { mistral } from "../../src/provider/mistral.js";
import { openaiChat } from "../../src/provider/openai-chat.js";
import { openaiResponses } from "../../src/provider/openai-responses.js";
import { ProjectedIds } from "../../src/provider/projected-ids.js";
import type { IdRule } from "../../src/provider/wire.js";
import { propertyOptions, seededTitle } from "../support/seed.js";

const RULES = {
  "OpenAI Responses": openaiResponses.ids,
  "OpenAI Chat Completions": openaiChat.ids,
  "Anthropic Messages": anthropicMessages.ids,
  Gemini: gemini.ids,
  Mistral: mistral.ids,
} satisfies Record<string, IdRule>;

function idsOf(rule: IdRule, native: readonly (string | undefined)[]): (string | undefined)[] {
  const ids = new ProjectedIds(rule);
  return native.map((id, index) => ids.idOf(`tc_${index}`, id));
}

describe("The id of a call in a request", () => {
  it.each([
    ["OpenAI Responses", "a".repeat(64), "a".repeat(65)],
    ["OpenAI Chat Completions", "a".repeat(40), "a".repeat(41)],
    ["OpenAI Chat Completions", "functions.Bash:0", "a\u0000"],
    ["Anthropic Messages", "toolu_0-A", "functions.Bash:0"],
    ["Mistral", "Ah0BFgzqX", "Ah0BFgzqX1"],
    ["Mistral", "000000000", "aaaa_aaaa"],
  ] as const)("of %s is the provider's own if it fits: %j, not %j", (name, fitting, other) => {
    const [kept, derived] = idsOf(RULES[name], [fitting, other]);

    expect(kept).toBe(fitting);
    expect(derived).not.toBe(other);
  });

  it.each([
    ["OpenAI Responses", /^call_[0-9a-z]{26}$/],
    ["OpenAI Chat Completions", /^call_[0-9a-z]{26}$/],
    ["Anthropic Messages", /^call_[0-9a-z]{26}$/],
    ["Mistral", /^[0-9A-Za-z]{9}$/],
  ] as const)("of %s is derived if there is none", (name, form) => {
    const ids = idsOf(RULES[name], [undefined, "", ""]);

    for (const id of ids) expect(id).toMatch(form);
    expect(new Set(ids).size).toBe(3);
  });

  it("is the provider's own only for the first call that has it", () => {
    const [first, second, third] = idsOf(RULES["Anthropic Messages"], ["a", "a", "b"]);

    expect([first, third]).toEqual(["a", "b"]);
    expect(second).toMatch(/^call_/);
  });

  it("of a call that came over the wire itself may be longer than other providers' may", () => {
    const ids = new ProjectedIds(RULES["OpenAI Chat Completions"]);
    const native = "tool_insert_level_with_spaces_3ZiChYzj8xER8HixJe7W";

    expect(ids.idOf("tc_0", native, true)).toBe(native);
    expect(ids.idOf("tc_1", `${native}2`, false)).toMatch(/^call_/);
    expect(ids.idOf("tc_2", "a".repeat(65), true)).toMatch(/^call_/);
  });

  it("is another one if an earlier call has taken the derived one as its own", () => {
    const rule = RULES["OpenAI Responses"];
    const taken = rule.derive!(projectedCallDigest("tc_1", 0n));

    expect(idsOf(rule, [taken, undefined])).toEqual([
      taken,
      rule.derive!(projectedCallDigest("tc_1", 1n)),
    ]);
  });

  it("of a provider that does without is none where its own cannot be used", () => {
    expect(idsOf({ fits: (id) => id !== "no", derive: undefined }, ["a", "a", "no", ""])).toEqual([
      "a",
      ...[undefined, undefined, undefined],
    ]);
  });

  const hostile = fc.oneof(
    fc.constantFrom(undefined, "", "functions.Bash:0", "functions.Bash_0", "call_1", "AAAAAAAAA"),
    fc.string({ unit: "binary", maxLength: 512 }),
    fc.string({ unit: fc.constantFrom("a", "B", "_"), minLength: 1, maxLength: 70 }),
  );
  const calls = fc.array(fc.tuple(hostile, fc.boolean()), { maxLength: 30 });

  it.each(Object.entries(RULES))(
    seededTitle("of %s fits, comes once, and is not changed by calls after it"),
    (_, rule: IdRule) => {
      fc.assert(
        fc.property(calls, fc.nat(), (all, cut) => {
          const project = (some: typeof all) => {
            const ids = new ProjectedIds(rule);
            return some.map(([id, isOwn], index) => ids.idOf(`tc_${index}`, id, isOwn));
          };
          const ids = project(all);

          const given = ids.filter((id) => id !== undefined);
          expect(new Set(given).size).toBe(given.length);
          expect(rule.derive === undefined || given.length === all.length).toBe(true);
          for (const [index, id] of ids.entries()) {
            if (id === undefined) continue;
            const fits = all[index]![1] ? (rule.fitsOwn ?? rule.fits) : rule.fits;
            expect(fits(id)).toBe(true);
            expect(id).not.toContain("tc_");
          }
          const some = all.slice(0, cut % (all.length + 1));
          expect(project(some)).toEqual(ids.slice(0, some.length));
        }),
        propertyOptions(1_000),
      );
    },
  );
});
