import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { chainAfter, commit, type ChainedEvent } from "../../src/domain/chain.js";
import { bodyRef, encodeIdBody, formatId, legacyId, reviewId } from "../../src/domain/identity.js";
import { isJsonObject } from "../../src/domain/json-object.js";
import { digestOf, sha256 } from "../../src/domain/sha256.js";
import { mintId } from "../../src/server/system.js";
import { propertyOptions, seededTitle } from "../support/seed.js";

const ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz";

/** The same encoding by arithmetic on one big number. */
function encodeByArithmetic(bytes: Uint8Array): string {
  let value = BigInt(`0x${Buffer.from(bytes).toString("hex")}`);
  let text = "";
  for (let index = 0; index < 26; index += 1) {
    text = ALPHABET.charAt(Number(value % 32n)) + text;
    value /= 32n;
  }
  return text;
}

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

describe("ids", () => {
  test(seededTitle("are 128 bits in lower-case base32, most significant first"), () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 16, maxLength: 16 }), (bytes) => {
        expect(encodeIdBody(bytes)).toBe(encodeByArithmetic(bytes));
      }),
      propertyOptions(10_000),
    );
  });

  test("name their kind", () => {
    expect(formatId("toolCall", new Uint8Array(16))).toBe(`tc_${"0".repeat(26)}`);
    expect(mintId("session")).toMatch(/^ses_[0-9a-hjkmnp-tv-z]{26}$/);
  });

  test("of one kind sort by the time of minting", () => {
    const ids = Array.from({ length: 100 }, () => mintId("hook").slice(0, 12));
    expect(ids.toSorted()).toEqual(ids);
  });

  test("of a review depend on call and job alone and are no hook's", () => {
    const ids = ["ACTION", "PERMISSION", "INBOUND"].map((job) => reviewId("tc_1", job));
    expect(new Set([...ids, reviewId("tc_2", "ACTION")]).size).toBe(4);
    expect(reviewId("tc_1", "ACTION")).toBe(ids[0]);
    for (const id of ids) expect(id).toMatch(/^rv_/);
  });

  test("derived from equal parts for different uses differ", () => {
    const bodies = [reviewId("a", "b"), legacyId("legacyToolCall", "a", "b")].map(
      (id) => id.split("_")[1],
    );
    expect(new Set(bodies).size).toBe(2);
  });

  test("derived from shifted parts differ", () => {
    expect(reviewId("ab", "c")).not.toBe(reviewId("a", "bc"));
  });

  test("of bodies depend on session and bytes", () => {
    const digest = sha256(new Uint8Array([1]));
    const refs = [bodyRef("ses_1", digest), bodyRef("ses_2", digest), bodyRef("ses_1", sha256())];
    expect(new Set(refs).size).toBe(3);
  });
});

describe("digests", () => {
  test("are SHA-256 of the concatenation, of any size", () => {
    const parts = [Buffer.from("a"), Buffer.from("bc"), Buffer.alloc(200_000, 7)];
    expect(hex(sha256(...parts))).toBe(hex(sha256(Buffer.concat(parts))));
    expect(hex(sha256(Buffer.from("abc")))).toBe(
      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    );
  });

  test("of fields are over each one's length and bytes", () => {
    const long = "é".repeat(70_000);
    const fields = ["a", 5n, undefined, new Uint8Array([9]), long];
    const sized = [Buffer.from("a"), Buffer.alloc(8), Buffer.alloc(0), Buffer.from([9])];
    sized[1]?.writeBigUInt64BE(5n);
    const bytes = [...sized, Buffer.from(long)].flatMap((part) => {
      const length = Buffer.alloc(4);
      length.writeUInt32BE(part.length);
      return [length, part];
    });
    expect(hex(digestOf(fields))).toBe(hex(sha256(Buffer.concat(bytes))));
  });

  const event: ChainedEvent = {
    sessionId: "ses_1",
    sequence: 3n,
    position: 9n,
    revision: 2n,
    kind: "HOOK_PUBLISHED",
    timeMs: 5,
    commitment: sha256(Buffer.from("x")),
    privateCommitment: undefined,
  };
  const others: readonly Partial<ChainedEvent>[] = [
    { sessionId: "ses_2" },
    { sequence: 4n },
    { position: 10n },
    { revision: undefined },
    { revision: 3n },
    { kind: "HOOK" },
    { timeMs: 6 },
    { commitment: sha256() },
    { privateCommitment: sha256() },
  ];
  test.each(others)("of the chain cover %o", (other) => {
    const before = sha256();
    expect(hex(chainAfter(before, event))).not.toBe(
      hex(chainAfter(before, { ...event, ...other })),
    );
    expect(hex(chainAfter(before, event))).not.toBe(hex(chainAfter(commit(before, before), event)));
  });
});

describe("a body is a JSON object", () => {
  const table: readonly [string, boolean][] = [
    ["{}", true],
    [' \n{"a": 1}\t', true],
    ['{"id":2512292042121000001,"neg":-0,"f":1.0,"big":1e400}', true],
    ['{"a":"\\ud800"}', true],
    ["[1]", false],
    ["", false],
    ["null", false],
    ['{"command": "cd /x', false],
    ["{} {}", false],
  ];
  test.each(table)("%j: %s", (text, expected) => {
    expect(isJsonObject(new TextEncoder().encode(text))).toBe(expected);
  });

  test("not if its bytes are not UTF-8 or begin with a byte order mark", () => {
    expect(isJsonObject(new Uint8Array([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]))).toBe(false);
    expect(isJsonObject(new Uint8Array([0xef, 0xbb, 0xbf, 0x7b, 0x7d]))).toBe(false);
  });
});
