import { describe, expect, test } from "vitest";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { isRefusal } from "../../src/domain/refusal.js";
import { cursorScope, decodeEventCursor, encodeEventCursor } from "../../src/watch/event-cursor.js";

const WATCH = {
  storeId: "sto_1",
  generation: 3n,
  session: { tenant: "acme", sessionId: "ses_1" },
  includeDescendants: false,
};
const SCOPE = scopeOf();

function scopeOf(changed: Partial<typeof WATCH> = {}) {
  const watch = { ...WATCH, ...changed };
  return cursorScope(watch, watch.session, watch.includeDescendants);
}

const PLACE = { position: 123_456_789n, sequence: 42n };
const LAST = 1_000_000_000n;

function reasonOf(text: string, scope = SCOPE, last = LAST): ErrorReason | undefined {
  const place = decodeEventCursor(text, scope, last);
  return isRefusal(place) ? place.reason : undefined;
}

describe("a cursor of events", () => {
  const cursor = encodeEventCursor(PLACE, SCOPE);

  test("is the place that it was made of", () => {
    expect(decodeEventCursor(cursor, SCOPE, LAST)).toEqual(PLACE);
  });

  test.each<[string, Partial<typeof WATCH>]>([
    ["another store", { storeId: "sto_2" }],
    ["another tenant", { session: { tenant: "other", sessionId: "ses_1" } }],
    ["another session", { session: { tenant: "acme", sessionId: "ses_2" } }],
    ["a watch with descendants", { includeDescendants: true }],
  ])("of %s is malformed", (_what, changed) => {
    expect(reasonOf(cursor, scopeOf(changed))).toBe(ErrorReason.CURSOR_MALFORMED);
  });

  test("of a log that was replaced is expired", () => {
    expect(reasonOf(cursor, scopeOf({ generation: 4n }))).toBe(ErrorReason.CURSOR_EXPIRED);
  });

  test("of a place behind the log is malformed", () => {
    expect(reasonOf(cursor, SCOPE, PLACE.position - 1n)).toBe(ErrorReason.CURSOR_MALFORMED);
  });

  test("with any bit flipped is malformed", () => {
    const bytes = Buffer.from(cursor, "base64url");
    for (let bit = 0; bit < bytes.length * 8; bit += 1) {
      const damaged = Buffer.from(bytes);
      damaged[bit >> 3] = (damaged[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      expect(reasonOf(damaged.toString("base64url"))).toBe(ErrorReason.CURSOR_MALFORMED);
    }
  });

  test("in another spelling, cut or longer is malformed", () => {
    for (const text of [`${cursor}=`, ` ${cursor}`, cursor.slice(1), `${cursor}AA`, "", "%"]) {
      expect(reasonOf(text)).toBe(ErrorReason.CURSOR_MALFORMED);
    }
  });
});
