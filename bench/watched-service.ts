import type { CommandWrite } from "../src/ledger/store-port.js";
import { CommitFeed } from "../src/ledger/commit-feed.js";
import { readConfig } from "../src/server/config.js";
import { createLog } from "../src/server/log.js";
import { writeReadyFile } from "../src/server/ready-file.js";
import { startService } from "../src/server/service.js";
import { answerQuestions, machineMs } from "./answer-questions.js";

/** A heartbeat would be counted as a message. */
const NEVER_MS = 2 ** 31 - 1;

/** Notes when each session was written to last. */
class TimedCommits extends CommitFeed {
  readonly #committedMs = new Map<string, number>();

  override publish(writes: readonly CommandWrite[], outcome?: "committed" | "unknown"): void {
    const nowMs = machineMs();
    for (const { sessionId } of writes) this.#committedMs.set(sessionId, nowMs);
    super.publish(writes, outcome);
  }

  get committedMs(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#committedMs);
  }
}

const outcome = readConfig(process.argv.slice(2));
if (outcome.kind !== "config") throw new Error(outcome.text);
const { config } = outcome;
const commits = new TimedCommits();
const server = await startService({
  config,
  log: createLog(config.logLevel),
  version: "bench",
  commits,
  eventHeartbeatMs: NEVER_MS,
  onInvariantBroken: () => process.exit(1),
});
answerQuestions({ committedMs: () => commits.committedMs });
if (config.readyFile !== undefined) await writeReadyFile(config.readyFile, server);
process.once("SIGTERM", () => {
  void server.drain().then(() => {
    process.disconnect();
  });
});
