import { describe, expect, it } from "vitest";

import { jsonString, strictJson } from "../../src/provider/strict-json.js";

describe("Strict JSON", () => {
  it.each([
    String.raw`{"a":1.0,"b":"\u0041\n"}`,
    String.raw`"\ud83d\ude00"`,
    String.raw`"\uD83D\uDE00 and \\ud800"`,
    String.raw`"\\\\ud800"`,
    `"\u{1f600}"`,
  ])("is %s as it is written", (json) => {
    expect(strictJson(json)).toBe(json);
  });

  it.each([
    [String.raw`"\ud800"`, String.raw`"\ufffd"`],
    [String.raw`"\uDFFF!"`, String.raw`"\ufffd!"`],
    [String.raw`"\ud83d\u0041"`, String.raw`"\ufffd\u0041"`],
    [String.raw`"\ud83d\ud83d\ude00"`, String.raw`"\ufffd\ud83d\ude00"`],
    [String.raw`"\ude00\ud83d"`, String.raw`"\ufffd\ufffd"`],
    [String.raw`"\\\ud800"`, String.raw`"\\\ufffd"`],
    [String.raw`{"\ud800":["\udc00"]}`, String.raw`{"\ufffd":["\ufffd"]}`],
    [`"\ud800"`, `"\ufffd"`],
  ])("has U+FFFD for surrogates without a mate: %j becomes %j", (json, expected) => {
    expect(strictJson(json)).toBe(expected);
  });

  it.each([
    [`a "quoted"\n`, String.raw`"a \"quoted\"\n"`],
    ["\ud800x", `"\ufffdx"`],
    ["\u{1f600}", `"\u{1f600}"`],
  ])("writes the text %j as %s", (text, expected) => {
    expect(jsonString(text)).toBe(expected);
  });
});
