import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ReviewDetails, type ReviewDetailsBounds } from "../../src/ledger/review-details.js";
import type { SessionRef } from "../../src/ledger/store-port.js";
import { propertyOptions, seededTitle } from "../support/seed.js";

const SESSION = { tenant: "default", sessionId: "ses_1" };
const MIB = 1024 * 1024;

type Subject = Pick<Texts, "put" | "get">;

/** Details whose revisions do not matter. */
class Texts {
  readonly #details: ReviewDetails;

  constructor(bounds?: ReviewDetailsBounds) {
    this.#details = new ReviewDetails(bounds);
  }

  put(session: SessionRef, reviewId: string, text: string): void {
    this.#details.put(session, reviewId, { text, revision: 1n });
  }

  get(session: SessionRef, reviewId: string): string | undefined {
    return this.#details.get(session, reviewId)?.text;
  }
}

interface Write {
  readonly reviewId: string;
  readonly detail: string;
}

const BOUNDS: ReviewDetailsBounds = { entries: 3, totalBytes: 12 };
const writes: fc.Arbitrary<Write[]> = fc.array(
  fc.record({
    reviewId: fc.constantFrom("rev_1", "rev_2", "rev_3", "rev_4", "rev_5"),
    detail: fc.constantFrom("", "a", "abcd", "éé", "€€€", "twelve bytes", "thirteen byte"),
  }),
  { maxLength: 40 },
);

/** What is kept, told again from all writes: the newest of each review, as long as they fit. */
function keptOf(all: readonly Write[]): Map<string, string> {
  const newest = new Map<string, string>();
  const kept: Write[] = [];
  for (const write of all) {
    newest.delete(write.reviewId);
    newest.set(write.reviewId, write.detail);
    const sizeBytes = Buffer.byteLength(write.detail);
    if (sizeBytes > BOUNDS.totalBytes) newest.delete(write.reviewId);
    kept.splice(0, kept.length);
    let totalBytes = 0;
    for (const [reviewId, detail] of [...newest].reverse()) {
      totalBytes += Buffer.byteLength(detail);
      if (totalBytes > BOUNDS.totalBytes || kept.length === BOUNDS.entries) break;
      kept.unshift({ reviewId, detail });
    }
    newest.clear();
    for (const { reviewId, detail } of kept) newest.set(reviewId, detail);
  }
  return newest;
}

function difference(subject: Subject, all: readonly Write[]): string[] {
  for (const { reviewId, detail } of all) {
    subject.put(SESSION, reviewId, detail);
    subject.get(SESSION, "rev_1");
  }
  const kept = keptOf(all);
  return ["rev_1", "rev_2", "rev_3", "rev_4", "rev_5"].filter(
    (reviewId) => subject.get(SESSION, reviewId) !== kept.get(reviewId),
  );
}

/** Counts characters instead of bytes. */
function countingCharacters(): Subject {
  const details = new Texts(BOUNDS);
  const plain = (text: string): string => text.replace(/[^a-z ]/g, "x");
  const texts = new Map<string, string>();
  return {
    put: (session, reviewId, detail) => {
      details.put(session, reviewId, plain(detail));
      texts.set(reviewId, detail);
    },
    get: (session, reviewId) =>
      details.get(session, reviewId) === undefined ? undefined : texts.get(reviewId),
  };
}

/** Drops what was read longest ago. */
function keepingWhatIsRead(): Subject {
  const details = new Texts(BOUNDS);
  return {
    put: (session, reviewId, detail) => {
      details.put(session, reviewId, detail);
    },
    get: (session, reviewId) => {
      const detail = details.get(session, reviewId);
      if (detail !== undefined) details.put(session, reviewId, detail);
      return detail;
    },
  };
}

/** Keeps the text before one that is too large. */
function keepingOldText(): Subject {
  const details = new Texts(BOUNDS);
  return {
    put: (session, reviewId, detail) => {
      if (Buffer.byteLength(detail) <= BOUNDS.totalBytes) details.put(session, reviewId, detail);
    },
    get: (session, reviewId) => details.get(session, reviewId),
  };
}

describe("details of reviews", () => {
  test(seededTitle("are kept as the bounds say"), () => {
    fc.assert(
      fc.property(writes, (all) => {
        expect(difference(new Texts(BOUNDS), all)).toEqual([]);
      }),
      propertyOptions(4000),
    );
  });

  test.each([countingCharacters, keepingWhatIsRead, keepingOldText])(
    "or it is found out: %o",
    (makeWrong) => {
      const sound = (all: Write[]): boolean => difference(makeWrong(), all).length === 0;
      expect(fc.check(fc.property(writes, sound), { numRuns: 2000, seed: 1 }).failed).toBe(true);
    },
  );

  test("take 4096 entries by default", () => {
    const details = new Texts();
    for (let index = 0; index < 4096; index += 1) details.put(SESSION, `rev_${index}`, "x");
    expect(details.get(SESSION, "rev_0")).toBe("x");
    details.put(SESSION, "rev_4096", "x");
    expect(details.get(SESSION, "rev_0")).toBeUndefined();
    expect(details.get(SESSION, "rev_1")).toBe("x");
  });

  test("take 16 MiB by default", () => {
    const details = new Texts();
    const text = "é".repeat(4 * MIB);
    details.put(SESSION, "rev_1", text);
    details.put(SESSION, "rev_2", text);
    expect(details.get(SESSION, "rev_1")).toBe(text);
    details.put(SESSION, "rev_3", "x");
    expect(details.get(SESSION, "rev_1")).toBeUndefined();
    expect(details.get(SESSION, "rev_2")).toBe(text);
    details.put(SESSION, "rev_2", "x".repeat(16 * MIB + 1));
    expect(details.get(SESSION, "rev_2")).toBeUndefined();
    expect(details.get(SESSION, "rev_3")).toBe("x");
  });

  test("are apart by tenant, session and review", () => {
    const details = new Texts();
    const places: [tenant: string, sessionId: string, reviewId: string][] = [
      ["a", "b", "c"],
      ["ab", "", "c"],
      ["a", "bc", ""],
      ["", "ab", "c"],
      ["a", "b2:", "c"],
      ["other", "b", "c"],
    ];
    const put = ([tenant, sessionId, reviewId]: (typeof places)[number], text: string) => {
      details.put({ tenant, sessionId }, reviewId, text);
    };
    for (const [index, place] of places.entries()) put(place, `text ${index}`);
    expect(
      places.map(([tenant, sessionId, reviewId]) => details.get({ tenant, sessionId }, reviewId)),
    ).toEqual(places.map((_, index) => `text ${index}`));
  });
});
