import { describe, expect, test } from "vitest";
import { createLog } from "../../src/server/log.js";
import type { LogFields } from "../../src/rpc/log.js";
import { mintId, nowMs, randomBytes } from "../../src/server/system.js";

const ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz";

/** The 16 bytes of an id's body. */
function bytesOf(id: string): Buffer {
  const body = id.slice(id.indexOf("_") + 1);
  let value = 0n;
  for (const digit of body) value = (value << 5n) | BigInt(ALPHABET.indexOf(digit));
  return Buffer.from(value.toString(16).padStart(32, "0"), "hex");
}

describe("a minted id", () => {
  test("is a UUIDv7 of the present", () => {
    const before = nowMs();
    const bytes = bytesOf(mintId("toolCall"));
    const timeMs = bytes.readUIntBE(0, 6);
    expect(timeMs).toBeGreaterThanOrEqual(before);
    expect(timeMs).toBeLessThanOrEqual(nowMs());
    expect(bytes[6]! >> 4).toBe(7);
    expect(bytes[8]! >> 6).toBe(2);
  });

  test("is never the same", () => {
    const ids = Array.from({ length: 20_000 }, () => mintId("session"));
    expect(new Set(ids).size).toBe(ids.length);
  });
});

describe("random bytes", () => {
  test.each([1, 16, 16 * 1024, 100_000])("come in any number: %i", (size) => {
    const bytes = randomBytes(size);
    expect(bytes).toHaveLength(size);
    expect(randomBytes(size)).not.toBe(bytes);
  });

  test("are never given twice", () => {
    const given = Array.from({ length: 5000 }, () => Buffer.from(randomBytes(16)).toString("hex"));
    expect(new Set(given).size).toBe(given.length);
  });
});

describe("the log", () => {
  function logged(level: "debug" | "info", write: (log: ReturnType<typeof createLog>) => void) {
    const lines: string[] = [];
    write(createLog(level, { write: (line) => lines.push(line) }));
    return lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  }

  test("writes allowed fields only, whatever it is handed", () => {
    const fields = { method: "m", body: "secret" } as LogFields;
    const [line] = logged("info", (log) => {
      log.info("said", fields);
    });
    expect(line).toMatchObject({ level: "info", msg: "said", method: "m" });
    expect(line).not.toHaveProperty("body");
  });

  test("keeps to its level", () => {
    const lines = logged("info", (log) => {
      expect(log.debugEnabled).toBe(false);
      log.debug("quiet");
      log.warn("heard");
    });
    expect(lines.map(({ msg }) => msg)).toEqual(["heard"]);
  });
});
