/** How much of the full counts a run does. */
const FACTOR = { short: 1 / 20, ci: 1 / 5, long: 1 };
export type TestScale = keyof typeof FACTOR;

function isTestScale(name: string): name is TestScale {
  return Object.hasOwn(FACTOR, name);
}

/** The scale that TEST_SCALE names; `short` if it is not set. */
export function testScale(name = process.env["TEST_SCALE"] ?? "short"): TestScale {
  if (isTestScale(name)) return name;
  throw new Error(`TEST_SCALE is ${name}; known are ${Object.keys(FACTOR).join(", ")}`);
}

/** A count that is promised in full, cut to the scale of this run, never to nothing. */
export function scaled(fullCount: number, scale = testScale()): number {
  return Math.max(1, Math.ceil(fullCount * FACTOR[scale]));
}
