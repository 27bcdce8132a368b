import { join, dirname } from "node:path";
import { Code } from "@connectrpc/connect";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import type { WatchEventsResponse } from "../../gen/toolmark/v1/history_service_pb.js";
import {
  acceptCall,
  allEvents,
  beginRun,
  bytes,
  of,
  openRun,
  publishHook,
  type OpenRun,
} from "../support/conversation.js";
import {
  EventWatcher,
  isBoundary,
  type EventWire,
  type WatchInit,
} from "../support/event-wires.js";
import { importOld, logF, OldFolder, snapshotA, snapshotB } from "../support/old-fixtures.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder } from "../support/store-folder.js";
import { backUp, restore } from "../support/toolmark-command.js";
import { openChild } from "../support/trees.js";

const WIRES_OF_CURSORS = ["grpc", "connect-json", "sse"] as const;
/** Few, and more than a watch looks back for a revision. */
const MESSAGES = [70, 1100];
const PER_COMMIT = 100;

let watchers: EventWatcher[];
let service: TestService;
let clients: Clients;
/** One connection for all watches over a wire. */
let connected: Partial<Record<EventWire, Clients>>;

async function start(options: Parameters<typeof startTestService>[0] = {}): Promise<void> {
  use(await startTestService(options));
}

function use(started: TestService): void {
  service = started;
  clients = service.clients();
  connected = {};
}

beforeEach(async () => {
  watchers = [];
  await start();
});

afterEach(async () => {
  for (const watcher of watchers) watcher.stop();
  await service.stop();
});

function watch(request: WatchInit, wire: EventWire = "grpc"): EventWatcher {
  const by = (connected[wire] ??= service.clients(wire === "sse" ? "grpc" : wire));
  const server = { httpAddress: service.httpAddress, clients: () => by };
  const watcher = new EventWatcher(server, wire, request);
  watchers.push(watcher);
  return watcher;
}

/** The cursors of a watch that is read to its boundary. */
async function cursorsOf(request: WatchInit): Promise<string[]> {
  return (await watch(request).until(isBoundary)).map(({ cursor }) => cursor);
}

function phasesOf(messages: readonly WatchEventsResponse[]): string[] {
  return messages.map(({ phase, event }) => (event === undefined ? phase : event.kind));
}

const MALFORMED = { code: Code.InvalidArgument, reason: "CURSOR_MALFORMED" };
const EXPIRED = { code: Code.FailedPrecondition, reason: "CURSOR_EXPIRED" };

describe.each(WIRES_OF_CURSORS)("a cursor over %s", (wire) => {
  const refusal = (request: WatchInit) => refused(watch(request, wire).next());

  test("goes on after each message, whichever kinds are wanted then", async () => {
    const run = await openRun(clients);
    await acceptCall(clients, run);
    await publishHook(clients, run);
    const log = await allEvents(clients, run.sessionId);
    for (const kinds of [[], ["HOOK_PUBLISHED"]]) {
      for (const [index, cursor] of (await cursorsOf(run)).entries()) {
        const wanted = log
          .slice(index + 1)
          .filter(({ kind }) => kinds.length === 0 || kinds.includes(kind));
        const resumed = watch({ ...run, cursor, kinds }, wire);
        expect(await resumed.replayed()).toEqual(wanted);
        resumed.stop();
      }
    }
  });

  test("of another session, or of a watch with or without descendants, is malformed", async () => {
    const [run, other] = [await openRun(clients), await openRun(clients)];
    const child = await openChild(clients, run);
    const [cursor = ""] = await cursorsOf(run);
    const [ofTree = ""] = await cursorsOf({ ...run, includeDescendants: true });
    for (const request of [
      ...[
        { ...other, cursor },
        { ...child.run, cursor },
        { ...other, cursor: ofTree },
      ],
      ...[
        { ...run, cursor, includeDescendants: true },
        { ...run, cursor: ofTree },
      ],
    ]) {
      expect(await refusal(request)).toMatchObject(MALFORMED);
    }
  });

  test("of another store is malformed", async () => {
    const run = await openRun(clients);
    const [cursor = ""] = await cursorsOf(run);
    await service.stop();
    await start();
    const again = await openRun(clients);
    expect(await refusal({ ...again, cursor })).toMatchObject(MALFORMED);
    expect((await refusal({ ...run, cursor })).reason).toBe("SESSION_NOT_FOUND");
  });

  test("too long, or no cursor at all, is refused", async () => {
    const run = await openRun(clients);
    for (const cursor of ["A", "=", "cursor"]) {
      expect(await refusal({ ...run, cursor })).toMatchObject(MALFORMED);
    }
    expect((await refusal({ ...run, cursor: "A".repeat(4097) })).code).toBe(Code.InvalidArgument);
  });
});

test("a cursor that is damaged in any bit, cut or prolonged is malformed", async () => {
  const run = await openRun(clients);
  for (const includeDescendants of [false, true]) {
    const cursor = (await cursorsOf({ ...run, includeDescendants })).at(-1) ?? "";
    const damaged: string[] = [`${cursor}A`, `${cursor}=`, ` ${cursor}`];
    for (let at = 0; at < cursor.length; at += 1) {
      damaged.push(cursor.slice(0, at) || "A");
      // What is no UTF-8 does not get as far.
      for (let bit = 0; bit < 7; bit += 1) {
        const flipped = String.fromCharCode(cursor.charCodeAt(at) ^ (1 << bit));
        damaged.push(cursor.slice(0, at) + flipped + cursor.slice(at + 1));
      }
    }
    for (const each of damaged) {
      const found = await refused(watch({ ...run, includeDescendants, cursor: each }).next());
      expect([each, found.reason]).toEqual([each, "CURSOR_MALFORMED"]);
    }
    expect(damaged).toHaveLength(8 * cursor.length + 3);
  }
});

async function recordMessages(run: OpenRun, count: number): Promise<void> {
  if (count <= 0) return;
  const value = { role: MessageRole.USER, content: { data: bytes("hello") } };
  const command = { command: { case: "recordMessage" as const, value } };
  const commands = Array.from({ length: Math.min(count, PER_COMMIT) }, () => command);
  await clients.runs.apply({ ...of(run), commands });
  await recordMessages(run, count - PER_COMMIT);
}

describe("a restore", () => {
  /** Serves a store; what is written by `lost` is not in what is restored afterwards. */
  async function restored(
    prepare: () => Promise<OpenRun>,
    look: (run: OpenRun, cursors: readonly [single: string, tree: string]) => Promise<void>,
  ): Promise<void> {
    const folder = await makeStoreFolder();
    try {
      await service.stop();
      await start({ store: folder.store });
      const run = await prepare();
      const backup = join(dirname(folder.path), "backup.db");
      await backUp(folder.path, backup);
      await publishHook(clients, run);
      const single = (await cursorsOf(run)).at(-1) ?? "";
      const tree = (await cursorsOf({ ...run, includeDescendants: true })).at(-1) ?? "";
      await service.stop();
      await restore(folder.path, backup);
      await start({ store: folder.store });
      await look(run, [single, tree]);
    } finally {
      await service.stop();
      await folder.remove();
    }
  }

  test.each(WIRES_OF_CURSORS)("makes cursors expire, over %s", async (wire) => {
    const prepare = () => openRun(clients);
    await restored(prepare, async (run, [single, tree]) => {
      for (const request of [
        { ...run, cursor: single },
        { ...run, cursor: tree, includeDescendants: true },
      ]) {
        expect(await refused(watch(request, wire).next())).toMatchObject(EXPIRED);
      }
    });
  });

  test.each([false, true])(
    "shows as a gap, live and again; with descendants: %s",
    async (isTree) => {
      const prepare = async () => {
        const run = await openRun(clients);
        await publishHook(clients, run);
        return run;
      };
      await restored(prepare, async (run) => {
        const request = { ...run, includeDescendants: isTree };
        const watcher = watch(request);
        const before = ["SESSION_CREATED", "RUN_BEGUN", "HOOK_PUBLISHED"];
        expect(phasesOf(await watcher.until(isBoundary))).toEqual([...before, "live"]);
        await publishHook(clients, run);
        await publishHook(clients, run);
        const [gap, first, second] = [
          await watcher.next(),
          await watcher.next(),
          await watcher.next(),
        ];
        expect(phasesOf([gap, first, second])).toEqual(["gap", "HOOK_PUBLISHED", "HOOK_PUBLISHED"]);
        // It is told again to whoever had only got as far.
        const again = watch({ ...request, cursor: gap.cursor });
        const after = ["gap", "HOOK_PUBLISHED", "HOOK_PUBLISHED", "live"];
        expect(phasesOf(await again.until(isBoundary))).toEqual(after);
        const past = watch({ ...request, cursor: first.cursor });
        expect(phasesOf(await past.until(isBoundary))).toEqual(["HOOK_PUBLISHED", "live"]);
        const whole = watch({ ...request, kinds: ["RUN_BEGUN"] });
        expect(phasesOf(await whole.until(isBoundary))).toEqual(["RUN_BEGUN", "gap", "live"]);
      });
    },
  );

  test.each(MESSAGES)("shows as a gap behind %d events that have no revision", async (messages) => {
    const prepare = async () => {
      const run = await openRun(clients);
      await publishHook(clients, run);
      await recordMessages(run, messages);
      return run;
    };
    await restored(prepare, async (run) => {
      const cursor = (await cursorsOf(run)).at(-1) ?? "";
      await publishHook(clients, run);
      const resumed = watch({ ...run, cursor });
      expect(phasesOf(await resumed.until(isBoundary))).toEqual(["gap", "HOOK_PUBLISHED", "live"]);
    });
  });
});

describe("a session of an older system", () => {
  test("that lost events shows as a gap before it", async () => {
    const log = Buffer.from(
      logF()
        .map((line) => `${line}\n`)
        .join(""),
    );
    const folder = await OldFolder.make();
    try {
      await folder.put(snapshotA("whole"));
      await folder.putBytes("lossy.events.jsonl", log);
      await service.stop();
      use(await folder.start());
      const seen: string[] = [];
      const { sessions } = await clients.sessions.listSessions({});
      for (const { sessionId } of sessions) {
        const run = await beginRun(clients, sessionId);
        const messages = await watch(run).until(isBoundary);
        seen.push(`${sessionId}: ${phasesOf(messages).join(" ")}`);
      }
      expect(seen.sort()).toEqual([
        "lossy: gap ADOPTED RUN_BEGUN live",
        "whole: ADOPTED RUN_BEGUN live",
      ]);
    } finally {
      await service.stop();
      await folder.remove();
    }
  });

  test.each(WIRES_OF_CURSORS)(
    "that is mounted is live at once, and then adopted, over %s",
    async (wire) => {
      const folder = await OldFolder.make();
      try {
        await folder.put(snapshotB("old"));
        await service.stop();
        service = await folder.start();
        clients = service.clients();
        const request = { sessionId: "old" };
        const open = [false, true].map((includeDescendants) => {
          return watch({ ...request, includeDescendants }, wire);
        });
        for (const watcher of open) expect(phasesOf([await watcher.next()])).toEqual(["live"]);
        const cursors = open.map(({ cursor }) => cursor);
        await beginRun(clients, "old");
        for (const [index, watcher] of open.entries()) {
          const kinds = [await watcher.nextEvent(), await watcher.nextEvent()];
          expect(kinds.map(({ event }) => event.kind)).toEqual(["ADOPTED", "RUN_BEGUN"]);
          const cursor = cursors[index] ?? "";
          const resumed = watch({ ...request, includeDescendants: index === 1, cursor }, wire);
          expect((await resumed.replayed()).map(({ kind }) => kind)).toEqual([
            "ADOPTED",
            "RUN_BEGUN",
          ]);
        }
      } finally {
        await service.stop();
        await folder.remove();
      }
    },
  );

  test("that is imported again while it is watched comes as another adoption", async () => {
    const first = snapshotA("old");
    await importOld(clients, first);
    const watcher = watch({ sessionId: "old" });
    expect((await watcher.replayed()).map(({ kind }) => kind)).toEqual(["ADOPTED"]);
    await importOld(clients, {
      ...first,
      messages: [...first.messages, { role: "user", text: "more" }],
    });
    expect((await watcher.nextEvent()).event.kind).toBe("ADOPTED");
  });
});
