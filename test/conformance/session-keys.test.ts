import { expect, test } from "vitest";
import { SessionKeys } from "../../src/store/sqlite/session-keys.js";
import type { SqliteStatement } from "../../src/store/sqlite/sqlite-database.js";

function countingStatement(): SqliteStatement<{ session: number }> & { lookUps: number } {
  const statement = {
    lookUps: 0,
    run: () => ({ changes: 0, lastInsertRowid: 0 }),
    get: (...parameters: unknown[]) => {
      statement.lookUps += 1;
      return { session: Number(parameters[1]) };
    },
    all: () => [],
    iterate: () => [][Symbol.iterator](),
    safeIntegers: () => statement,
  };
  return statement;
}

test("a session's key is looked up once, until everything is forgotten", () => {
  const statement = countingStatement();
  const keys = new SessionKeys(statement);
  const session = { tenant: "acme", sessionId: "7" };
  expect([keys.find(session), keys.find(session)]).toEqual([7, 7]);
  expect(statement.lookUps).toBe(1);
  keys.forgetAll();
  expect(keys.find(session)).toBe(7);
  expect(statement.lookUps).toBe(2);
});

test("however many sessions there are, a bounded number is remembered, and each is right", () => {
  const statement = countingStatement();
  const keys = new SessionKeys(statement);
  const count = 50_000;
  for (let n = 1; n <= count; n += 1) {
    if (keys.find({ tenant: "acme", sessionId: String(n) }) !== n) {
      expect.fail(`wrong key for ${n}`);
    }
  }
  for (let n = 1; n <= 100; n += 1) {
    expect(keys.find({ tenant: "acme", sessionId: String(n) })).toBe(n);
  }
  expect(statement.lookUps).toBe(count + 100);
});
