import { join } from "node:path";
import { setImmediate as nextTurn, setTimeout as delay } from "node:timers/promises";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { describe, expect, test } from "vitest";
import { Health } from "../../gen/health/v1/health_pb.js";
import { formatAddress } from "../../src/server/address.js";
import { listenGrpc } from "../../src/server/grpc-listener.js";
import { mintCorrelationId, monotonicMs, nowMs } from "../../src/server/system.js";
import { testConfig } from "../integration/listeners-fixture.js";
import { scaled } from "../support/scale.js";
import { seededTitle } from "../support/seed.js";
import { ROOT } from "../support/source-tree.js";
import { recordResult } from "./results.js";
import { stopRounds, type StopRounds } from "./stop-rounds.js";

const ROUNDS = 50;
const ROUND_TIMEOUT_MS = 20_000;
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

describe("the listener of gRPC", () => {
  /** A listener, and how a client that is connected to it leaves. */
  async function listenAndConnect() {
    const { limits } = testConfig();
    const draining = new AbortController().signal;
    const environment = { nowMs, monotonicMs, mintCorrelationId, draining };
    const address = { host: "127.0.0.1", port: 0 };
    const listener = await listenGrpc({ address, limits, pipeline: { services: [], environment } });
    const baseUrl = `http://${formatAddress(listener.address)}`;
    const sessionManager = new Http2SessionManager(baseUrl);
    await createClient(Health, createGrpcTransport({ baseUrl, sessionManager })).check({});
    const leave = (): void => {
      sessionManager.abort();
    };
    return { listener, leave };
  }

  test("closes in time whenever a client leaves", { timeout }, async () => {
    const late: number[] = [];
    for (let turns = 0; turns < TURNS; turns += 1) {
      const { listener, leave } = await listenAndConnect();
      leave();
      for (let turn = 0; turn < turns; turn += 1) await nextTurn();
      const patience = delay(LEAVING_MAX_MS, "late", { ref: false });
      if ((await Promise.race([listener.close(0), patience])) === "late") late.push(turns);
    }
    // Turns of the event loop between the client's end and the listener's.
    expect(late).toEqual([]);
  });
});
