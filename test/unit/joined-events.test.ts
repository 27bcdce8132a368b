import { expect, test } from "vitest";
import { toJoinedEvent } from "../../src/store/sqlite/joined-events.js";

const PAYLOAD = Buffer.alloc(60_000, 7);
const COMMITMENT = Buffer.alloc(32, 1);
const CHAIN = Buffer.alloc(32, 2);
const SALT = Buffer.alloc(16, 3);

const COLUMNS = {
  ...{ position: 5n, sequence: 4n, revision: 3n, kind: "HOOK_PUBLISHED", time_ms: 1n },
  ...{ commitment: 32n, chain: 32n, salt: 16n, private_commitment: null, payload: 60_000n },
  bytes: Buffer.concat([COMMITMENT, CHAIN, SALT, PAYLOAD]),
};

test("the bytes of a row come apart as they were", () => {
  const event = toJoinedEvent(COLUMNS);
  for (const [found, stored] of [
    [event.commitment, COMMITMENT],
    [event.chain, CHAIN],
    [event.salt, SALT],
    [event.payload, PAYLOAD],
  ] as const) {
    expect(stored.equals(found ?? new Uint8Array())).toBe(true);
  }
  expect(event.privateCommitment).toBeUndefined();
});

test("who keeps the chain value of an event keeps nothing else of it", () => {
  expect(toJoinedEvent(COLUMNS).chain.buffer.byteLength).toBe(CHAIN.length);
});
