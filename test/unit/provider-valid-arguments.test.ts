import * as fc from "fast-check";
import { describe, expect, it } from "vitest";

import { validArguments } from "../../src/provider/valid-arguments.js";
import { propertyOptions, seededTitle } from "../support/seed.js";

describe("Arguments for a provider", () => {
  it.each([`{}`, `{ "n" : 2512292042121000001, "x": 1.0 }`, ` {"a":{"b":[]}}\n`])(
    "are %j as written, being a JSON object",
    (args) => {
      expect(validArguments(args)).toBe(args);
      expect(validArguments(Buffer.from(args))).toBe(args);
    },
  );

  it.each(["", " ", "\n\t"])("are an empty object for %j", (args) => {
    expect(validArguments(args)).toBe("{}");
    expect(validArguments(Buffer.from(args))).toBe("{}");
  });

  it.each([
    [`{"path":"/a`, String.raw`{"invalid_arguments":"{\"path\":\"/a"}`],
    ["[1]", `{"invalid_arguments":"[1]"}`],
    ["null", `{"invalid_arguments":"null"}`],
    [`"{}"`, String.raw`{"invalid_arguments":"\"{}\""}`],
    ["{} {}", `{"invalid_arguments":"{} {}"}`],
    ["{'a':1}", `{"invalid_arguments":"{'a':1}"}`],
    ["\ufeff{}", `{"invalid_arguments":"\ufeff{}"}`],
  ])("tell of %j, which is no JSON object", (args, expected) => {
    expect(validArguments(args)).toBe(expected);
    expect(validArguments(Buffer.from(args))).toBe(expected);
  });

  it("tell of bytes that are not UTF-8", () => {
    const args = Buffer.concat([Buffer.from(`{"a":"`), Buffer.from([0xff]), Buffer.from(`"}`)]);

    expect(validArguments(args)).toBe(
      String.raw`{"invalid_arguments":"{\"a\":\"` + "\ufffd" + String.raw`\"}"}`,
    );
  });

  it("have no surrogate without its mate", () => {
    expect(validArguments(String.raw`{"a":"\ud800"}`)).toBe(String.raw`{"a":"\ufffd"}`);
    expect(validArguments(`{"a":"\ud800"}`)).toBe(`{"a":"\ufffd"}`);
    expect(validArguments("\ud800")).toBe(`{"invalid_arguments":"\ufffd"}`);
  });

  it(seededTitle("are a JSON object of well-formed text, whatever the model wrote"), () => {
    const texts = fc.oneof(fc.string({ unit: "binary" }), fc.json());
    fc.assert(
      fc.property(fc.oneof(texts, fc.uint8Array()), (args) => {
        const valid = validArguments(args);
        const value: unknown = JSON.parse(valid);

        expect(value).toBeTypeOf("object");
        expect(Array.isArray(value) || value === null).toBe(false);
        expect(valid.isWellFormed()).toBe(true);
        expect(validArguments(valid)).toBe(valid);
      }),
      propertyOptions(2_000),
    );
  });
});
