import { createHash } from "node:crypto";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { groupFileNames, sessionIdOfStem, stemsOf } from "../../src/legacy/file-names.js";

const digest = (id: string): string => createHash("sha256").update(id).digest("hex").slice(0, 32);

describe("file names are grouped", () => {
  test("by stem, sorted, without what is no snapshot and no log", () => {
    const names = [
      ...["b.events.jsonl", "b.tools.jsonl", "b.session.json", "a.events.jsonl", "c.session.json"],
      ...["d.tools.jsonl", "b.session.json.tmp", "lock", ".json", ".events.jsonl", "E.json"],
    ];
    expect(groupFileNames(names)).toEqual([
      { stem: "E", snapshot: "E.json" },
      { stem: "a", log: "a.events.jsonl" },
      { stem: "b", snapshot: "b.session.json", log: "b.events.jsonl" },
      { stem: "c", snapshot: "c.session.json" },
    ]);
  });

  test.each([[false], [true]])(
    "with the longer suffix before the shorter (reversed: %s)",
    (isReversed) => {
      const names = ["a.json", "a.session.json", "b.jsonl", "a.jsonl", "b.json", "b.events.jsonl"];
      expect(groupFileNames(isReversed ? names.reverse() : names)).toEqual([
        { stem: "a", snapshot: "a.session.json", log: "a.jsonl" },
        { stem: "b", snapshot: "b.json", log: "b.events.jsonl" },
      ]);
    },
  );

  test("with dots in their stems", () => {
    expect(groupFileNames(["a.b.session.json", "a.session.session.json"])).toEqual([
      { stem: "a.b", snapshot: "a.b.session.json" },
      { stem: "a.session", snapshot: "a.session.session.json" },
    ]);
  });
});

describe("the stem of an id", () => {
  const LONG = "x".repeat(41);

  test.each([
    ["s-1", `sid-v1-s-1-${digest("s-1")}`],
    ["a/b c.d", `sid-v1-a_b_c_d-${digest("a/b c.d")}`],
    ["Ünïcode 🙂!", `sid-v1-_n_code___-${digest("Ünïcode 🙂!")}`],
    [LONG, `sid-v1-${"x".repeat(40)}-${digest(LONG)}`],
    ["", `sid-v1-id-${digest("")}`],
  ])("%j is the store's own, then the id as it is", (id, stem) => {
    expect(stemsOf(id)).toEqual([stem, id]);
  });

  test("is known by heart for one id", () => {
    expect(stemsOf("abc")[0]).toBe("sid-v1-abc-ba7816bf8f01cfea414140de5dae2223");
  });

  test("leads back to every id of which nothing was cut off or replaced", () => {
    const safe = fc.stringMatching(/^[A-Za-z0-9_-]{1,40}$/);
    fc.assert(
      fc.property(safe, (id) => {
        expect(sessionIdOfStem(stemsOf(id)[0] ?? "")).toBe(id);
      }),
    );
  });
});

describe("the id of a stem", () => {
  test.each([["s-1"], ["a b"], ["sid-v1-s-1"], [`sid-v1-s-1-${"g".repeat(32)}`]])(
    "%j is the stem itself",
    (stem) => {
      expect(sessionIdOfStem(stem)).toBe(stem);
    },
  );

  test.each([
    ["a replaced character", stemsOf("a/b")[0]],
    ["a cut off end", stemsOf("x".repeat(41))[0]],
    ["an id of nothing", stemsOf("")[0]],
    ["a control character", "a\nb"],
    ["nothing", ""],
    ["too long a text", "x".repeat(513)],
  ])("cannot be told from %s", (_what, stem = "") => {
    expect(sessionIdOfStem(stem)).toBeUndefined();
  });
});
