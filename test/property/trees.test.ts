import { clone, create } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { EventRecordSchema, EventSchema, type Event } from "../../gen/toolmark/v1/event_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { DelegationKind } from "../../gen/toolmark/v1/session_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { sessionChecksum } from "../../src/ledger/checksums.js";
import { CommitFeed } from "../../src/ledger/commit-feed.js";
import type { AskScope, CommandWrite, SessionTree, Store } from "../../src/ledger/store-port.js";
import { overriding } from "../mutants/broken-store.js";
import { DISKS, memoryDisk, type MakeDisk } from "../support/disks.js";
import { testScale } from "../support/scale.js";
import { propertyOptions, seededTitle } from "../support/seed.js";
import { treeFaults, type ChangeLog } from "../support/tree-checks.js";
import type { TreeMistakes } from "../support/tree-life.js";
import { TreeMachine } from "../support/tree-machine.js";
import type { ModelSession } from "../support/tree-model.js";
import { treeHistories, type TreeStep } from "../support/tree-steps.js";

const STEPS_MAX = 35;
const TIMEOUT_MS = { short: 120_000, ci: 600_000, long: 3_600_000 }[testScale()];

let machines = 0;

/** Plays a history of trees. What is wrong at its end; throws where it goes wrong before. */
async function play(
  makeDisk: MakeDisk,
  steps: readonly TreeStep[],
  mistakes: TreeMistakes = {},
  changeLog?: ChangeLog,
): Promise<string[]> {
  machines += 1;
  const machine = await TreeMachine.start(await makeDisk(), `tree ${machines}`, mistakes);
  try {
    for (const taken of steps) await machine.take(taken);
    return await treeFaults(machine.life, machine.model, changeLog);
  } finally {
    await machine.stop();
  }
}

describe.each(DISKS)("on %s", (name, makeDisk) => {
  test(
    seededTitle("random trees of sessions are stored, listed, watched and verified as they grew"),
    async () => {
      await fc.assert(
        fc.asyncProperty(treeHistories(STEPS_MAX), async (steps) => {
          expect(await play(makeDisk, steps)).toEqual([]);
        }),
        propertyOptions(name === "SQLite" ? 100 : 1_000),
      );
    },
    TIMEOUT_MS,
  );
});

describe("the checks catch", () => {
  const gate = StartGate.OFF;
  const child = (session: number, call: number): TreeStep => {
    return { kind: "createChild", session, call, as: DelegationKind.SUBAGENT, gate };
  };
  const onCall = (kind: "ask" | "result" | "hook", session: number, call: number): TreeStep => {
    return { kind, session, call };
  };

  /**
   * Two roots; of the second the two calls have a child each, and the first child has one of its own. All five have an
   * open ask and a hook record. A pick is of the living sessions in the order of creation, and of the open calls.
   */
  const GROWN: readonly TreeStep[] = [
    ...[1, 2].map((): TreeStep => ({ kind: "createRoot", gate })),
    ...[child(1, 2), child(4, 1), child(5, 4)],
    ...[5, 6, 7, 9, 13].map((session) => onCall("ask", session, 3)),
    ...[5, 6, 7, 9, 13].map((session) => onCall("hook", session, 4)),
  ];

  test("nothing in trees without a fault", async () => {
    expect(await play(memoryDisk, GROWN)).toEqual([]);
  });

  interface InScope {
    readonly tree: SessionTree | undefined;
  }
  type ChangeScope = <Query extends InScope>(query: Query) => Query;

  /** A store that looks for another scope than it was asked for. */
  function seeing(changed: ChangeScope): TreeMistakes {
    const wrapStore = (store: Store): Store =>
      overriding(store, {
        listAsks: (query) => store.listAsks(changed(query)),
        listAskChanges: (query) => store.listAskChanges(changed(query)),
        listSessions: (query) => store.listSessions(changed(query)),
      });
    return { wrapStore };
  }

  /** A feed that tells those who wait for asks of another scope. */
  function telling(changed: (scope: AskScope) => AskScope): TreeMistakes {
    const wrapCommits = (commits: CommitFeed): CommitFeed => {
      const feed = new CommitFeed();
      feed.publish = (writes) => {
        commits.publish(writes);
      };
      feed.onAsksChanged = (scope, wake) => commits.onAsksChanged(changed(scope), wake);
      return feed;
    };
    return { wrapCommits };
  }

  /** Ends the second root with everything below it. */
  const CANCELLED: TreeStep = { kind: "endSession", session: 1, cancels: true };

  /** Archives up to a turn of which one call has its result. */
  const HALF_ANSWERED: readonly TreeStep[] = [
    { kind: "createRoot", gate },
    onCall("result", 1, 1),
    { kind: "compact", session: 1, percent: 100 },
  ];

  /** A child of a root answers its calls and is forked; the fork is the newest session. */
  const FORKED: readonly TreeStep[] = [
    ...[{ kind: "createRoot", gate } as const, child(1, 2)],
    ...[onCall("hook", 1, 1), onCall("result", 1, 1), onCall("result", 1, 1)],
    { kind: "fork", session: 1, percent: 100 },
    { kind: "touchCopied", session: 0, call: 0, as: "hook" },
    onCall("result", 2, 1),
  ];

  /** Changes what a fork writes. */
  const forking = (
    change: (write: CommandWrite) => CommandWrite,
    notice: (write: CommandWrite) => void = () => undefined,
  ): TreeMistakes => ({
    wrapStore: (store) =>
      overriding(store, {
        commit: (writes) => {
          writes.forEach(notice);
          const changed = writes.map((write) =>
            write.bodyCopies === undefined ? write : change(write),
          );
          return store.commit(changed);
        },
      }),
  });

  /** A store that takes each fork for one more child of the newest session that works for another. */
  function standingBeside(): TreeMistakes {
    let place: Pick<CommandWrite["session"], "parentSessionId" | "rootSessionId"> | undefined;
    return forking(
      (write) => ({ ...write, session: resealed({ ...write.session, ...place }) }),
      (write) => {
        const { parentSessionId, rootSessionId } = write.session;
        if (parentSessionId !== undefined) place = { parentSessionId, rootSessionId };
      },
    );
  }

  function resealed(row: CommandWrite["session"]): CommandWrite["session"] {
    return { ...row, checksum: sessionChecksum(row) };
  }

  /** A store in which the chain of every session is another one after a fork. */
  const moving: TreeMistakes = {
    wrapStore: (store) => {
      let hasForked = false;
      return overriding(store, {
        commit: (writes) => {
          hasForked ||= writes.some(({ bodyCopies }) => bodyCopies !== undefined);
          return store.commit(writes);
        },
        findSession: async (session) => {
          const row = await store.findSession(session);
          if (row === undefined || !hasForked) return row;
          return { ...row, head: { ...row.head, chain: row.head.chain.toReversed() } };
        },
      });
    },
  };

  const byStore: readonly (readonly [string, RegExp, TreeMistakes, readonly TreeStep[]])[] = [
    [
      "a store that forgets the root of an ask",
      /open asks are|was not woken|asks heard/,
      seeing((query) => ({ ...query, tree: undefined })),
      GROWN,
    ],
    [
      "a store that takes the whole tree for what is below",
      /should be/,
      seeing((query) => {
        const { tree } = query;
        if (tree === undefined) return query;
        const { rootSessionId } = tree;
        return { ...query, tree: { sessionId: rootSessionId, rootSessionId } };
      }),
      GROWN,
    ],
    [
      "a store that knows no more than one session below another",
      /told as/,
      {
        wrapStore: (store) =>
          overriding(store, {
            listSessions: async ({ tree, ...query }) => {
              const below = await store.listSessions({ ...query, tree });
              const parent = tree?.sessionId;
              return below.filter(
                (row) =>
                  parent === undefined ||
                  row.sessionId === parent ||
                  row.parentSessionId === parent,
              );
            },
          }),
      },
      [...GROWN, CANCELLED],
    ],
    [
      "a feed that does not tell a root of an ask below it",
      /was not woken/,
      telling((scope) => ({ ...scope, tree: undefined })),
      GROWN,
    ],
    ["a cut that splits a turn", /was cut at/, { cutsAsAsked: true }, HALF_ANSWERED],
    [
      "a fork that works for whom its source works",
      /a session keeps its .* parent/,
      standingBeside(),
      FORKED,
    ],
    [
      "a fork that forgets what it copied",
      /no such tool call/,
      forking(({ events, ...write }) => {
        return { ...write, events: events.map((event) => ({ ...event, inherited: [] })) };
      }),
      FORKED,
    ],
    ["a fork that changes its source", /was written to/, moving, FORKED],
  ];

  test.each(byStore)("%s", async (_name, fault, mistakes, steps) => {
    expect(await outcomeOf(play(memoryDisk, steps, mistakes))).toMatch(fault);
    expect(await play(memoryDisk, steps)).toEqual([]);
  });

  /** What went wrong on the way or at the end. */
  async function outcomeOf(played: Promise<string[]>): Promise<string> {
    return played.then(
      (faults) => faults.join("\n"),
      (error: unknown) => String(error),
    );
  }

  /** The call that a session works for. */
  type Above = Pick<ModelSession["path"][number], "sessionId" | "toolCallId">;

  /** Changes the records of sessions that work for others. */
  const changing =
    (change: (event: Event, above: Above) => void): ChangeLog =>
    ({ path }, log) =>
      log.map((event) => {
        const above = path.at(-1);
        const copy = clone(EventSchema, event);
        if (above !== undefined) change(copy, above);
        return copy;
      });

  /** Changes the records of calls of every session. */
  const changingCalls =
    (change: (call: ToolCall) => void): ChangeLog =>
    (_session, log) =>
      log.map((event) => {
        const copy = clone(EventSchema, event);
        if (copy.record?.record.case === "toolCall") change(copy.record.record.value);
        return copy;
      });

  /** A call that has a result of the service's own, and then its real one. */
  const LATE: readonly TreeStep[] = [
    { kind: "createRoot", gate },
    { kind: "endRun", session: 1, outcome: RunOutcome.INTERRUPTED },
    onCall("result", 1, 1),
  ];

  /** The copied calls of a fork appear in its own log as well. */
  const repeating: ChangeLog = ({ base }, log) => {
    const last = log.at(-1)!;
    let { sequence } = last;
    let revision = log.reduce((highest, event) => event.revision ?? highest, 0n);
    const copied = (base?.records ?? []).flatMap(({ record }) => record?.record ?? []);
    const repeated = copied.flatMap((of) => {
      if (of.case !== "toolCall") return [];
      [sequence, revision] = [sequence + 1n, revision + 1n];
      const value = { ...of.value, revision };
      const record = create(EventRecordSchema, { record: { case: "toolCall", value } });
      return [create(EventSchema, { ...last, sequence, revision, record })];
    });
    return [...log, ...repeated];
  };

  const inLogs: readonly (readonly [string, RegExp, ChangeLog, readonly TreeStep[]])[] = [
    [
      "a delegation that stamps the parent's path on the child's ask",
      /stands elsewhere/,
      changing(({ record }) => {
        if (record?.record.case === "ask") record.record.value.delegationPath.pop();
      }),
      GROWN,
    ],
    [
      "a record of a child that says that it is the parent's",
      /has another origin/,
      changing(({ record }, { sessionId }) => {
        const of = record?.record;
        if (of?.case === "hook" && of.value.origin !== undefined) {
          of.value.origin.sessionId = sessionId;
        }
      }),
      GROWN,
    ],
    [
      "a hook record of a child that is attached to the parent's call",
      /is about no call of it/,
      changing(({ record }, { toolCallId }) => {
        if (record?.record.case === "hook") record.record.value.toolCallId = toolCallId;
      }),
      GROWN,
    ],
    [
      "a call that does not name the session that works for it",
      /names .*, not /,
      changingCalls((call) => {
        call.delegatedSessionIds = [];
      }),
      GROWN,
    ],
    [
      "a child that works for another call of its parent",
      /works for another call/,
      changing(({ record }) => {
        const of = record?.record;
        if (of?.case === "session" && of.value.delegation !== undefined) {
          of.value.delegation.parentToolCallId = "tc_other";
        }
      }),
      GROWN,
    ],
    [
      "a second result of a call",
      /has several results/,
      changingCalls((call) => {
        if (call.result !== undefined) call.result.isError = call.lateResult !== undefined;
      }),
      LATE,
    ],
    ["a fork that repeats a copied result", /other calls were accepted/, repeating, FORKED],
    [
      "an archived call without its result",
      /was archived in flight/,
      (_session, log) =>
        log.map((event) => {
          const copy = clone(EventSchema, event);
          const of = copy.record?.record;
          if (of?.case === "compaction") of.value.throughSequence = event.sequence;
          return copy;
        }),
      HALF_ANSWERED,
    ],
  ];

  test.each(inLogs)("%s", async (_name, fault, changeLog, steps) => {
    expect(await play(memoryDisk, steps)).toEqual([]);
    const faults = await play(memoryDisk, steps, {}, changeLog);
    expect(faults.join("\n")).toMatch(fault);
  });
});
