import { existsSync, statSync } from "node:fs";
import { dirname } from "node:path";
import BetterSqlite from "better-sqlite3";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import { answerTo, askAbout, showAsk } from "../support/asking.js";
import { bytes, given, of, openRun, publishHook, type OpenRun } from "../support/conversation.js";
import { EventWatcher, isBoundary } from "../support/event-wires.js";
import { killedServer, type Life } from "../support/living-server.js";
import { refused } from "../support/refused.js";
import { RestartingServer } from "../support/restarting-server.js";
import { startTestService, type Clients } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

const NAMED_WIRES = ["grpc", "connect-json", "sse"] as const;
const MIB = 1024 * 1024;

describe("a server in a process of its own", () => {
  let folder: StoreFolder;
  let restarting: RestartingServer;

  beforeAll(async () => {
    folder = await makeStoreFolder();
    restarting = new RestartingServer(dirname(folder.path), folder.store);
  });

  afterAll(async () => {
    await restarting.stop("SIGKILL");
    await folder.remove();
  });

  const life = (): Promise<Life> => killedServer(restarting).life();

  test("B34 after a kill, each watch goes on after its cursor: the answer comes once", async () => {
    const clients = (await life()).clients();
    const run = await openRun(clients);
    const ask = await askAbout(clients, run);
    const cursors: string[] = [];
    for (const wire of NAMED_WIRES) {
      const watcher = new EventWatcher(await life(), wire, run);
      expect((await watcher.replayed()).map(({ kind }) => kind)).toContain("ASK_OPENED");
      watcher.stop();
      cursors.push(watcher.cursor);
    }
    await restarting.restart("SIGKILL");
    const after = (await life()).clients();
    const shown = await showAsk(after, run.sessionId, ask.askId);
    await after.approvals.answerAsk(answerTo(shown));
    await publishHook(after, run);
    for (const [index, wire] of NAMED_WIRES.entries()) {
      const watcher = new EventWatcher(await life(), wire, {
        ...run,
        cursor: cursors[index] ?? "",
      });
      const told = await watcher.replayed();
      watcher.stop();
      const answers = told.flatMap(({ record }) =>
        record?.record.case === "ask" ? [record.record.value.state] : [],
      );
      expect(answers).toEqual([AskState.ANSWERED]);
      expect(told.at(-1)?.kind).toBe("HOOK_PUBLISHED");
    }
  });

  test.each(NAMED_WIRES)(
    "SIGTERM ends a watch over %s with DRAINING, after a cursor to go on",
    async (wire) => {
      const run = await openRun((await life()).clients());
      const watcher = new EventWatcher(await life(), wire, run);
      await watcher.until(isBoundary);
      const ended = refused(watcher.untilEnded());
      await restarting.restart("SIGTERM");
      expect((await ended).reason).toBe("DRAINING");
      await publishHook((await life()).clients(), run);
      const resumed = new EventWatcher(await life(), wire, { ...run, cursor: watcher.cursor });
      expect((await resumed.replayed()).map(({ kind }) => kind)).toEqual(["HOOK_PUBLISHED"]);
      resumed.stop();
    },
  );
});

describe("eight followers under steady writes", () => {
  const BODY = "x".repeat(60 * 1024);
  const COMMITS = 40;
  const PER_COMMIT = 8;
  const WAL_MAX = 16 * MIB;
  let folder: StoreFolder | undefined;

  afterEach(() => folder?.remove());

  /** The largest that the write-ahead log was. */
  async function largestWal(path: string, clients: Clients, run: OpenRun): Promise<number> {
    let largest = 0;
    for (let count = 0; count < COMMITS; count += 1) {
      const commands = Array.from({ length: PER_COMMIT }, (_, index) => {
        const content = { data: bytes(`${count} ${index} ${BODY}`) };
        const value = { role: MessageRole.USER, content };
        return { command: { case: "recordMessage" as const, value } };
      });
      await clients.runs.apply({ ...of(run), commands });
      if (existsSync(`${path}-wal`)) largest = Math.max(largest, statSync(`${path}-wal`).size);
    }
    return largest;
  }

  async function followed(isPinned: boolean): Promise<number> {
    folder = await makeStoreFolder();
    const service = await startTestService({ store: folder.store });
    const clients = service.clients();
    const run = await openRun(clients);
    const watchers = Array.from({ length: 8 }, (_, index) => {
      const wire = given(NAMED_WIRES[index % NAMED_WIRES.length], "wire");
      return new EventWatcher(service, wire, run);
    });
    const last = BigInt(COMMITS * PER_COMMIT + 2);
    const heard = watchers.map((watcher) => watcher.until(({ event }) => event?.sequence === last));
    const beside = new BetterSqlite(folder.path, { readonly: true });
    if (isPinned) {
      beside.exec("BEGIN");
      beside.prepare("SELECT count(*) FROM events").get();
    }
    try {
      const largest = await largestWal(folder.path, clients, run);
      await Promise.all(heard);
      return largest;
    } finally {
      beside.close();
      for (const watcher of watchers) watcher.stop();
      await service.stop();
    }
  }

  test("B74 leave the write-ahead log small, since none of them holds on to what it reads", async () => {
    expect(await followed(false)).toBeLessThan(WAL_MAX);
  });

  test("B74 a reader that holds on lets it grow, and that is seen", async () => {
    expect(await followed(true)).toBeGreaterThan(WAL_MAX);
  });
});
