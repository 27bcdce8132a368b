import { describe, expect, it } from "vitest";

import { contentText, nativeJson } from "../../src/provider/content-text.js";
import { contentValue, isEmptyValue } from "../../src/provider/content-value.js";
import { bytesContent, textContent } from "../support/wire-samples.js";

const NATIVE = "application/vnd.toolmark.openai-chat+json";

describe("Content as text", () => {
  it.each([
    "",
    "text/plain",
    "text/markdown; charset=utf-8",
    "Text/HTML",
    "application/json",
    "application/problem+json",
    "image/svg+xml",
    "application/javascript",
  ])("of %j is its text, with U+FFFD for what is not UTF-8", (mediaType) => {
    expect(contentText(bytesContent([0x61, 0xff, 0x62], mediaType))).toBe("a\ufffdb");
    expect(contentText(textContent("\ufeffé", mediaType))).toBe("\ufeffé");
  });

  it("of another media type is its text, if it is one", () => {
    expect(contentText(textContent("plain", "application/octet-stream"))).toBe("plain");
    expect(contentText(bytesContent([0x89, 0xff], "image/png"))).toBe(
      "[image/png, 2 bytes, not shown as text]",
    );
  });
});

describe("Content in a wire's own JSON", () => {
  it("is taken as it is written, strictly", () => {
    const content = textContent(String.raw`[ {"text":"\ud800", "n":1.0} ]`, NATIVE);

    expect(nativeJson(content, NATIVE)).toBe(String.raw`[ {"text":"\ufffd", "n":1.0} ]`);
  });

  it.each([
    ["of another media type", textContent("[]", "application/json")],
    ["that is no JSON", textContent("[", NATIVE)],
    ["that is not UTF-8", bytesContent([0x22, 0xff, 0x22], NATIVE)],
  ])("is none for content %s", (_, content) => {
    expect(nativeJson(content, NATIVE)).toBeUndefined();
  });

  it.each([
    [textContent(` [{"type":"text"}] `, NATIVE), `[{"type":"text"}]`],
    [textContent(`"text"`, NATIVE), `"text"`],
    [textContent(`{"a":1}`, NATIVE), String.raw`"{\"a\":1}"`],
    [textContent(`[]`, "application/json"), `"[]"`],
    [textContent("said"), `"said"`],
  ])("is a content value if it is a text or a list, else text: %#", (content, expected) => {
    expect(contentValue(content, NATIVE)).toBe(expected);
  });

  it("is empty as an empty text or list", () => {
    expect([`""`, "[]", "[ ]", `" "`, "[0]"].map(isEmptyValue)).toEqual([
      ...[true, true, true],
      ...[false, false],
    ]);
  });
});
