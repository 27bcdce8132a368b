import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { bodyOf } from "../../src/domain/decide/intake-body.js";
import { BodyUploads } from "../../src/ledger/body-uploads.js";
import { GrowingBytes } from "../../src/ledger/growing-bytes.js";
import { propertyOptions, seededTitle } from "../support/seed.js";

const MIB = 1024 * 1024;
const HOUR_MS = 3_600_000;
const SESSION = { tenant: "default", sessionId: "ses_1" };
const OTHER = { tenant: "other", sessionId: "ses_1" };

function uploadsAt(): { uploads: BodyUploads; clock: { nowMs: number } } {
  const clock = { nowMs: 1_000_000 };
  return { uploads: new BodyUploads(() => clock.nowMs), clock };
}

function body(text: string) {
  return bodyOf(SESSION.sessionId, new TextEncoder().encode(text));
}

describe("bytes that come in parts", () => {
  const parts = fc.array(fc.uint8Array({ maxLength: 20_000 }), { maxLength: 20 });

  test(seededTitle("are whole, and never take much more than they are"), () => {
    fc.assert(
      fc.property(parts, (given) => {
        const whole = Buffer.concat(given);
        const growing = new GrowingBytes(whole.length);
        for (const part of given) {
          const before = growing.capacityBytes;
          const growth = growing.growthFor(part.length);
          growing.append(part);
          expect(growing.capacityBytes).toBe(before + growth);
          expect(growing.capacityBytes).toBeLessThanOrEqual(whole.length);
        }
        expect(growing.sizeBytes).toBe(whole.length);
        expect(Buffer.compare(growing.whole(), whole)).toBe(0);
        expect(growing.capacityBytes).toBe(whole.length);
      }),
      propertyOptions(2000),
    );
  });

  test("keep no message alive: parts are copied", () => {
    const growing = new GrowingBytes(MIB);
    const part = Uint8Array.from([1, 2, 3]);
    growing.append(part);
    part.fill(0);
    expect([...growing.whole()]).toEqual([1, 2, 3]);
  });
});

describe("uploads", () => {
  test("are found by their own session alone", () => {
    const { uploads } = uploadsAt();
    const kept = body("a");
    expect(uploads.keep(SESSION, kept)).toBeUndefined();
    expect(uploads.find(SESSION, kept.bodyRef)).toBe(kept);
    expect(uploads.find(OTHER, kept.bodyRef)).toBeUndefined();
  });

  test("are dropped after an hour, which begins anew when they are uploaded again", () => {
    const { uploads, clock } = uploadsAt();
    const [first, second] = [body("a"), body("b")];
    uploads.keep(SESSION, first);
    uploads.keep(SESSION, second);
    clock.nowMs += HOUR_MS;
    uploads.keep(SESSION, first);
    expect(uploads.find(SESSION, second.bodyRef)).toBe(second);
    clock.nowMs += 1;
    expect(uploads.find(SESSION, second.bodyRef)).toBeUndefined();
    expect(uploads.find(SESSION, first.bodyRef)).toBe(first);
    expect(uploads.sizeBytes).toBe(1);
  });

  test("take 256 MiB together, unfinished ones included, and give back what they took", () => {
    const { uploads } = uploadsAt();
    const part = new Uint8Array(64 * MIB);
    const begun = [1, 2, 3, 4].map(() => uploads.begin(64 * MIB));
    for (const upload of begun) expect(uploads.append(upload, part)).toBeUndefined();
    expect(uploads.sizeBytes).toBe(256 * MIB);
    const fifth = uploads.begin(64 * MIB);
    expect(uploads.append(fifth, part.subarray(0, 1))?.reason).toBe(ErrorReason.QUOTA_EXCEEDED);
    expect(uploads.keep(SESSION, body("a"))?.reason).toBe(ErrorReason.QUOTA_EXCEEDED);
    for (const upload of begun) uploads.end(upload);
    expect(uploads.sizeBytes).toBe(0);
    expect(uploads.append(fifth, part.subarray(0, 1))).toBeUndefined();
    uploads.end(fifth);
    uploads.end(fifth);
    expect(uploads.sizeBytes).toBe(0);
  });

  test("take no byte above the size of a body", () => {
    const { uploads } = uploadsAt();
    const upload = uploads.begin(10);
    expect(uploads.append(upload, new Uint8Array(10))).toBeUndefined();
    const refusal = uploads.append(upload, new Uint8Array(1));
    expect(refusal).toMatchObject({
      reason: ErrorReason.BODY_TOO_LARGE,
      metadata: { field: "chunk", limit: "10" },
    });
  });

  test("that stall for an hour give way to others and cannot go on", () => {
    const { uploads, clock } = uploadsAt();
    const stalled = uploads.begin(MIB);
    uploads.append(stalled, new Uint8Array(1000));
    clock.nowMs += HOUR_MS + 1;
    const next = uploads.begin(MIB);
    expect(uploads.sizeBytes).toBe(0);
    const part = new Uint8Array(1);
    expect(uploads.append(stalled, part)?.reason).toBe(ErrorReason.QUOTA_EXCEEDED);
    expect(uploads.append(next, part)).toBeUndefined();
  });

  test("of a session are forgotten together", () => {
    const { uploads } = uploadsAt();
    const [first, second] = [body("a"), body("b")];
    uploads.keep(SESSION, first);
    uploads.keep(SESSION, second);
    uploads.keep(OTHER, first);
    uploads.forgetSession(SESSION);
    expect(uploads.find(SESSION, first.bodyRef)).toBeUndefined();
    expect(uploads.find(OTHER, first.bodyRef)).toBe(first);
    expect(uploads.sizeBytes).toBe(1);
  });
});
