import { randomInt } from "node:crypto";
import { scaled } from "./scale.js";

const SEED_LIMIT = 2 ** 31;

/** The seed that SEED names, or a new one. */
export function readSeed(text = process.env["SEED"]): number {
  if (text === undefined || text === "") return randomInt(SEED_LIMIT);
  const seed = Number(text);
  if (Number.isInteger(seed) && Math.abs(seed) <= SEED_LIMIT) return seed;
  throw new Error(`SEED is ${text}; it takes an integer of 32 bits`);
}

/** The seed of this run, the same in every test file. */
export const seed = readSeed();

/** Options of a fast-check property that is promised for `fullRuns` runs. Says how to replay. */
export function propertyOptions(fullRuns: number): { numRuns: number; seed: number } {
  const numRuns = scaled(fullRuns);
  process.stdout.write(
    `property: ${numRuns} of ${fullRuns} runs, replay by SEED=${seed} npm test\n`,
  );
  return { numRuns, seed };
}

/** A test title that names the seed. */
export function seededTitle(title: string): string {
  return `${title} [SEED=${seed}]`;
}

/** Numbers in [0, 1) from the seed of this run; equal labels give equal numbers. */
export function seededRandom(label: string): () => number {
  let state = seed;
  for (const character of label) {
    state = Math.imul(state ^ (character.codePointAt(0) ?? 0), 0x9e3779b1);
  }
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
