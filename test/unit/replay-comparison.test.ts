import { describe, expect, test } from "vitest";
import { parseLossless } from "../support/lossless-json.js";
import { canonicalText, withoutObserved } from "../support/replay-comparison.js";

const OURS =
  '{"type":"call","id":"a","args":"{\\"n\\":1.0}","content":[{"text":"x","logprobs":[]}]}';

function isSame(ours: string, theirs: string, ...changes: string[]): boolean {
  const sides = withoutObserved(parseLossless(ours), parseLossless(theirs), changes);
  return sides.ours === sides.theirs;
}

describe("a projected item is compared with what a client sent", () => {
  test("by its values, whatever the order of its members", () => {
    expect(isSame('{"a":1,"b":[true,null]}', '{"b":[true,null],"a":1}', "verbatim")).toBe(true);
  });

  test("but for what the client is known to have changed", () => {
    const theirs = '{"type":"call","args":"{ \\"n\\": 1.0 }","content":[{"text":"x"}],"more":2}';
    const known = ["-id", "-content[].logprobs([])", "+more", "~args(json re-encoded)"];
    expect(isSame(OURS, theirs, ...known)).toBe(true);
  });

  test.each([
    ["a member that is lost", OURS.replace('"id":"a",', "")],
    ["a member that is new", OURS.replace('"id"', '"more":1,"id"')],
    ["another text", OURS.replace('"x"', '"y"')],
    ["a number that was written anew", OURS.replace('"id":"a"', '"id":1')],
    ["an order that is another", '{"content":[2,1]}'],
  ])("%s is told", (_what, theirs) => {
    expect(isSame(OURS, theirs, "verbatim")).toBe(false);
  });

  test("numbers by their text", () => {
    expect(isSame('{"n":1.0}', '{"n":1}')).toBe(false);
    expect(canonicalText(parseLossless('{"n":2512292042121000001}'))).toBe(
      '{"n":2512292042121000001}',
    );
  });

  test("what is said to be written in another way must still say the same", () => {
    const theirs = '{"args":"{\\"n\\":2}"}';
    expect(() => isSame('{"args":"{\\"n\\":1}"}', theirs, "~args(json re-encoded)")).toThrow();
    const other = '{"sig":"ab+d"}';
    expect(() => isSame('{"sig":"ab-c"}', other, "~sig(base64 alphabet)")).toThrow();
  });
});
