import { dirname } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { fedBeforeCommit, subscribedAfterReading } from "../mutants/watch-mutants.js";
import { killedServer, ReopeningService, type LivingServer } from "../support/living-server.js";
import { RestartingServer } from "../support/restarting-server.js";
import { scaled, testScale } from "../support/scale.js";
import { seededTitle } from "../support/seed.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { WATCH_VALIDATORS, watchViolations } from "../support/watch-validators.js";
import { recordResult } from "./results.js";
import { watchFrames, type WatchFrames, type WatchFramesOptions } from "./watch-frames.js";

const FRAMES = 1_000_000;
const WATCHERS = 50;
/** Of the frames, those that come from a server that is killed. */
const KILLED_SHARE = testScale() === "short" ? 0.1 : 0.5;
const RESTARTS = scaled(40);
const LAG_MS = 400;
const PATIENCE_MS = 20_000;
const MUTANT_TRIES = 5;
const MUTANT_PATIENCE_MS = 1000;
const SHOWN_VIOLATIONS = 10;

type Outcome = WatchFrames & { readonly violations: ReturnType<typeof watchViolations> };

async function run(
  serve: (folder: StoreFolder) => LivingServer,
  options: Omit<WatchFramesOptions, "server">,
): Promise<Outcome> {
  const folder = await makeStoreFolder();
  const server = serve(folder);
  try {
    const got = await watchFrames({ server, ...options });
    const recorded = got.watchers.map((watcher) => watcher.recorded);
    return { ...got, violations: watchViolations(recorded, got.log) };
  } finally {
    await server.stop();
    await folder.remove();
  }
}

function report(name: string, { frames, streams, watchers, log }: Outcome): string {
  const count = (end: keyof (typeof watchers)[number]["ends"]) =>
    watchers.reduce((sum, { ends }) => sum + ends[end], 0);
  return (
    `watch (${name}): ${frames} frames of ${watchers.length} watchers in ${streams} streams, ` +
    `${log.events.length} events; ${count("left")} left, ${count("lagging")} lagged, ` +
    `${count("draining")} drained, ${count("lost")} lost their connection\n`
  );
}

function expectSound({ violations, watchers, frames }: Outcome, wanted: number): void {
  expect(watchers.flatMap(({ fault }) => fault ?? [])).toEqual([]);
  expect(violations.slice(0, SHOWN_VIOLATIONS).map(({ text }) => text)).toEqual([]);
  expect(frames).toBeGreaterThanOrEqual(wanted);
}

const MUTANTS = [fedBeforeCommit, subscribedAfterReading].map(
  (make) => [make().name, make] as const,
);
const TITLE = "are given every event once and in order";

describe(`${WATCHERS} watchers`, () => {
  const planted: { name: string; caught: number }[] = [];
  const outcomes: Outcome[] = [];
  const common = { watchers: WATCHERS, restarts: RESTARTS, patienceMs: PATIENCE_MS };
  const killed = Math.ceil(scaled(FRAMES) * KILLED_SHARE);
  const reopened = scaled(FRAMES) - killed;

  test.each(MUTANTS)("are caught if they are %s", async (_name, make) => {
    let violations: Outcome["violations"] = [];
    // What goes wrong is a matter of time.
    for (let count = 0; count < MUTANT_TRIES && violations.length === 0; count += 1) {
      const { frames, commits, wrapStore } = make();
      const serve = ({ store }: StoreFolder) =>
        new ReopeningService({ store, commits, wrapStore, eventHeartbeatMs: 50 });
      const options = { frames, restarts: 0, patienceMs: MUTANT_PATIENCE_MS };
      ({ violations } = await run(serve, { watchers: WATCHERS, ...options }));
    }
    expect(violations.map(({ validator }) => validator)).toContain("reliable");
    planted.push({ name: make().name, caught: violations.length });
  });

  test(seededTitle(`${TITLE} while their server drains and begins again`), async () => {
    const flags = ["--drain-timeout-ms", "2000"];
    const clock = { watchLagMs: LAG_MS, eventHeartbeatMs: 100 };
    const outcome = await run(({ store }) => new ReopeningService({ store, flags, ...clock }), {
      frames: reopened,
      ...common,
    });
    outcomes.push(outcome);
    process.stdout.write(report("reopened", outcome));
    expectSound(outcome, reopened);
  });

  test(seededTitle(`${TITLE} while their server is killed`), async () => {
    const outcome = await run(
      ({ path, store }) => killedServer(new RestartingServer(dirname(path), store)),
      { frames: killed, ...common },
    );
    outcomes.push(outcome);
    process.stdout.write(report("killed", outcome));
    expectSound(outcome, killed);
  });

  afterAll(() => {
    const sum = (of: (outcome: Outcome) => number) =>
      outcomes.reduce((total, outcome) => total + of(outcome), 0);
    recordResult({
      promise: 10,
      part: "watchers that leave, are slow, and outlive their server",
      counted: "frames",
      count: sum(({ frames }) => frames),
      wanted: FRAMES,
      violations: sum(({ violations }) => violations.length),
      planted,
      figures: {
        watchers: WATCHERS,
        streams: sum(({ streams }) => streams),
        events: sum(({ log }) => log.events.length),
        restarts: outcomes.length * RESTARTS,
        validators: Object.keys(WATCH_VALIDATORS).length,
      },
    });
  });
});
