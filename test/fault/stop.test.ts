import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { Http2SessionManager } from "@connectrpc/connect-node";
import { describe, expect, test } from "vitest";
import { openRun } from "../support/conversation.js";
import { scaled } from "../support/scale.js";
import { seededTitle } from "../support/seed.js";
import { clientsOf, startTestService, transportOf } from "../support/service.js";
import { ROOT } from "../support/source-tree.js";
import { recordResult } from "./results.js";
import { stopRounds, type StopRounds } from "./stop-rounds.js";

const ROUNDS = 50;
const ROUND_TIMEOUT_MS = 20_000;
/** Turns of the event loop between a client's end and the server's. */
const TURNS = 8;
const LEAVING_MAX_MS = 5000;
const timeout = ROUND_TIMEOUT_MS * (scaled(ROUNDS) + 2);
const PRELOAD = join(ROOT, "test/mutants/preload-exits-at-once.mjs");

describe("a server that is asked to end under load", () => {
  test(
    seededTitle("says so, loses nothing that it acknowledged, and exits 0 in time"),
    { timeout },
    async () => {
      const weak = await stopRounds({ rounds: 1, preload: PRELOAD });
      expect(weak.problems.join("\n")).toMatch(/the first thing told is/);
      expect(weak.problems.join("\n")).toMatch(/a watch ended with/);
      const result = await stopRounds({ rounds: scaled(ROUNDS) });
      recordStops(result, weak.problems.length);
      expect(result.problems).toEqual([]);
      expect(result.watchEnds).toBe(result.rounds);
      expect(result.told).toBeGreaterThan(result.rounds);
    },
  );

  test("ends at once at a second signal, and loses nothing", { timeout }, async () => {
    const signals = ["SIGTERM", "SIGINT"] as const;
    const { problems, exitMs } = await stopRounds({ rounds: 1, signals, exitCode: 130 });
    expect(problems).toEqual([]);
    expect(exitMs).toHaveLength(1);
  });

  test("does not wait for clients that leave at that very moment", { timeout }, async () => {
    const slow: string[] = [];
    for (let turns = 0; turns < TURNS; turns += 1) {
      const service = await startTestService();
      const connections: Http2SessionManager[] = [];
      const { grpcAddress, httpAddress } = service;
      await openRun(clientsOf(transportOf("grpc", grpcAddress, httpAddress, connections)));
      for (const connection of connections) connection.abort();
      for (let turn = 0; turn < turns; turn += 1) await nextTurn();
      const beganMs = performance.now();
      await service.drain();
      const tookMs = Math.round(performance.now() - beganMs);
      if (tookMs > LEAVING_MAX_MS) slow.push(`${tookMs} ms, ${turns} turns after they left`);
    }
    expect(slow).toEqual([]);
  });

  function recordStops(
    { rounds, problems, written, exitMs, told }: StopRounds,
    caught: number,
  ): void {
    process.stdout.write(
      `stop: ${rounds} rounds, ${written.acknowledged} commands acknowledged, ` +
        `${told} changes of asks told, exit after ${Math.round(exitMs.at(-1) ?? 0)} ms at most\n`,
    );
    recordResult({
      promise: 28,
      part: "SIGTERM under load",
      counted: "stops",
      count: rounds,
      wanted: ROUNDS,
      violations: problems.length,
      planted: [{ name: "exits at once at a signal", caught }],
      figures: {
        acknowledged: written.acknowledged,
        sentAgain: written.retried,
        changesTold: told,
        exitMsMax: Math.round(exitMs.at(-1) ?? 0),
      },
    });
  }
});
