import { afterEach, describe, expect, test } from "vitest";
import type { CommitResult } from "../../src/ledger/store-port.js";
import { openRun, publishHook } from "../support/conversation.js";
import { EventWatcher } from "../support/event-wires.js";
import { refused } from "../support/refused.js";
import { startTestService, type TestService } from "../support/service.js";
import { overriding } from "../mutants/broken-store.js";

const OTHER_CALLS = 50;
/** One for the commit that failed, and one for the next. */
const READS_MAX = 2;

let service: TestService;
let reads = 0;
let failure: CommitResult | undefined;

async function start(): Promise<void> {
  service = await startTestService({
    wrapStore: (store) =>
      overriding(store, {
        readEvents: (...args) => {
          reads += 1;
          return store.readEvents(...args);
        },
        commit: (writes) =>
          failure === undefined ? store.commit(writes) : Promise.resolve(failure),
      }),
  });
}

afterEach(async () => {
  failure = undefined;
  await service.stop();
});

describe("an idle watch after a commit that failed", () => {
  test.each(["full", "other"] as const)(
    "(%s) does not look for it again and again",
    async (reason) => {
      await start();
      const clients = service.clients();
      const run = await openRun(clients);
      const watcher = new EventWatcher(service, "grpc", { sessionId: run.sessionId });
      await watcher.replayed();
      watcher.start();
      failure = { outcome: "failed", reason, cause: new Error(reason) };
      await refused(publishHook(clients, run));
      failure = undefined;
      reads = 0;
      for (let count = 0; count < OTHER_CALLS; count += 1) {
        await clients.sessions.getSession({ sessionId: run.sessionId });
      }
      expect(reads).toBeLessThanOrEqual(READS_MAX);
      await publishHook(clients, run);
      expect((await watcher.nextEvent()).event.sequence).toBe(3n);
      watcher.stop();
    },
  );
});
