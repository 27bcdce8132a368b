import { expect, test } from "vitest";
import { Turns } from "../../src/watch/turns.js";

/** How many of those that wait were let go before each turn of the event loop. */
async function goneByTurn(waiting: number): Promise<number[]> {
  const turns = new Turns();
  let gone = 0;
  const all = Array.from({ length: waiting }, async () => {
    await turns.next();
    gone += 1;
  });
  const seen: number[] = [];
  while (gone < waiting) {
    await new Promise((resolve) => {
      setImmediate(resolve);
    });
    seen.push(gone);
  }
  await Promise.all(all);
  return seen;
}

test("a turn of the event loop takes up 16 rows, however many wait", async () => {
  const seen = await goneByTurn(100);
  const steps = seen.map((gone, turn) => gone - (seen[turn - 1] ?? 0));
  expect(Math.max(...steps)).toBe(16);
  expect(seen.at(-1)).toBe(100);
});

test("whoever waits alone waits for one turn only", async () => {
  expect(await goneByTurn(1)).toEqual([1]);
});
