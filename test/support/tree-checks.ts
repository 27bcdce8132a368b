import { create } from "@bufbuild/protobuf";
import type { DelegationStep } from "../../gen/toolmark/v1/ask_pb.js";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { EventRecordSchema, type Event } from "../../gen/toolmark/v1/event_pb.js";
import { SessionState } from "../../gen/toolmark/v1/session_pb.js";
import { Fold } from "../../src/domain/evolve.js";
import { isRefusal, type Refusal } from "../../src/domain/refusal.js";
import type { DraftEvent } from "../../src/domain/session-state.js";
import { openSnapshot, restoreState, takeSnapshot } from "../../src/ledger/snapshot.js";
import { verifySession } from "../../src/ledger/verify/verify-session.js";
import { overriding } from "../mutants/broken-store.js";
import { ASK_STATES } from "./asking.js";
import { APPROVER } from "./asking-ledger.js";
import { checkFold } from "./fold-checks.js";
import { TENANT_CALLER } from "./outside-world.js";
import { logFaults, pathText } from "./tree-log-checks.js";
import type { TreeLife } from "./tree-life.js";
import type { ModelSession, TreeModel } from "./tree-model.js";

/** Small, so that lists take several pages. */
const PAGE_SIZE = 3;

/** Changes what was read of a log before it is checked. */
export type ChangeLog = (session: ModelSession, log: readonly Event[]) => readonly Event[];

/** What is wrong with stored trees, one line each: logs, lists, watches and other rows. */
export async function treeFaults(
  life: TreeLife,
  model: TreeModel,
  changeLog: ChangeLog = (_session, log) => log,
): Promise<string[]> {
  const faults: string[] = [];
  for (const session of model.sessions) {
    const log = changeLog(session, await life.events(session.sessionId));
    faults.push(...logFaults(session, log), ...foldFaults(log));
    faults.push(...(await rowFaults(life, session)));
    const isLeaf = model.below(session).length === 0 && session.parent !== undefined;
    // What is listed from a leaf is listed from above as well.
    if (!isLeaf) faults.push(...(await listFaults(life, model, session)));
    faults.push(...watchFaults(life, model, session));
  }
  return [...faults, ...sharedIds(model)];
}

/** The fold of all events is every snapshot and its tail; also where the log is archived. */
function foldFaults(log: readonly Event[]): string[] {
  const drafts = log.map(({ kind, revision, record }): DraftEvent => {
    return { kind, revision, record: record ?? create(EventRecordSchema), pairing: undefined };
  });
  checkFold(drafts);
  const fold = new Fold(undefined);
  return drafts.flatMap((draft) => {
    const state = fold.add([draft]);
    const snapshot = takeSnapshot(state, new Uint8Array(32));
    const stored = openSnapshot(snapshot);
    const restored = stored && restoreState(snapshot, stored);
    const isSame = restored?.compactedThrough === state.compactedThrough;
    return isSame ? [] : [`a snapshot forgets what was archived at ${state.sequence}`];
  });
}

async function rowFaults({ store }: TreeLife, { sessionId }: ModelSession): Promise<string[]> {
  // A history may have damaged snapshots, which are passed over when a session is loaded.
  const sound = overriding(store, {
    readSnapshots: async (session) =>
      (await store.readSnapshots(session)).filter((row) => openSnapshot(row) !== undefined),
  });
  const session = { tenant: TENANT_CALLER.tenant, sessionId };
  const verdict = await verifySession(sound, session, {
    ...{ checkpoints: [], generationFloor: 0n },
    ...{ pause: () => Promise.resolve(), isAborted: () => false },
  });
  if (verdict?.outcome === "sound") return [];
  const finding = verdict?.outcome === "damaged" ? JSON.stringify(verdict.finding) : "";
  return [`${sessionId} is ${verdict?.outcome ?? "missing"}: ${finding}`];
}

/** Lists of a session with those below it. */
async function listFaults(
  life: TreeLife,
  model: TreeModel,
  session: ModelSession,
): Promise<string[]> {
  const { sessionId } = session;
  const tree = model.treeOf(session);
  const calls = await withDescendants(life, "calls", sessionId);
  const hooks = await withDescendants(life, "hooks", sessionId);
  const withCalls = tree.filter(({ callIds }) => callIds.length > 0).map(placeOf);
  const withHooks = tree.filter(({ allHookIds }) => allHookIds.length > 0).map(placeOf);
  return [
    ...(await askFaults(life, sessionId, tree, true)),
    ...(await askFaults(life, sessionId, [session], false)),
    ...difference(
      "sessions",
      await sessionsBelow(life, sessionId),
      model.below(session).map((one) => one.sessionId),
    ),
    ...difference(
      "calls",
      calls.ids,
      tree.flatMap(({ callIds }) => callIds),
    ),
    ...difference("places of calls", calls.places, withCalls),
    ...difference(
      "hooks",
      hooks.ids,
      tree.flatMap(({ allHookIds }) => allHookIds),
    ),
    ...difference("places of hooks", hooks.places, withHooks),
  ].map((fault) => `seen from ${sessionId}: ${fault}`);
}

async function askFaults(
  life: TreeLife,
  sessionId: string,
  tree: readonly ModelSession[],
  includeDescendants: boolean,
): Promise<string[]> {
  const open: string[] = [];
  const settled: string[] = [];
  for (const state of includeDescendants ? ASK_STATES : [AskState.OPEN]) {
    const filter = { sessionId, includeDescendants, state, ownerSubject: "", toolName: "" };
    const asks = await pages((page) => life.asks.listAsks(APPROVER, filter, page));
    const ids = asks.map(({ ask }) => `${ask?.origin?.sessionId ?? ""}/${ask?.askId ?? ""}`);
    (state === AskState.OPEN ? open : settled).push(...ids);
  }
  const all = tree.flatMap((one) =>
    one.asks.map(({ ask, isOpen }) => ({ id: `${one.sessionId}/${ask.askId}`, isOpen })),
  );
  const expected = (wanted: boolean): string[] =>
    all.filter(({ isOpen }) => isOpen === wanted).map(({ id }) => id);
  return [
    ...difference("open asks", open.toSorted(), expected(true).toSorted()),
    ...(includeDescendants
      ? difference("settled asks", settled.toSorted(), expected(false).toSorted())
      : []),
  ];
}

function sessionsBelow(life: TreeLife, ancestorSessionId: string): Promise<string[]> {
  const filter = { ancestorSessionId, ownerSubject: "", state: SessionState.UNSPECIFIED };
  return pages((page) => life.reader.listSessions(TENANT_CALLER, filter, page)).then((sessions) =>
    sessions.map(({ sessionId }) => sessionId),
  );
}

interface Place {
  readonly sessionId: string;
  readonly delegationPath: readonly DelegationStep[];
}

async function withDescendants(life: TreeLife, what: "calls" | "hooks", sessionId: string) {
  const places = new Set<string>();
  const keep = (page: { readonly places: readonly Place[] } | Refusal): void => {
    for (const place of isRefusal(page) ? [] : page.places) {
      places.add(`${place.sessionId}: ${pathText(place.delegationPath)}`);
    }
  };
  const { reader } = life;
  const includeDescendants = true;
  const ids = await pages(async (page) => {
    if (what === "calls") {
      const filter = { sessionId, includeDescendants };
      const got = await reader.listToolCalls(TENANT_CALLER, filter, page);
      keep(got);
      return mapped(got, ({ toolCallId }) => toolCallId);
    }
    const filter = { sessionId, includeDescendants, toolCallId: "" };
    const got = await reader.listHooks(TENANT_CALLER, filter, page);
    keep(got);
    return mapped(got, ({ hookId }) => hookId);
  });
  return { ids, places: [...places] };
}

interface ListPage<Item> {
  readonly items: readonly Item[];
  readonly nextPageToken: string;
}

function mapped<Item>(page: ListPage<Item> | Refusal, idOf: (item: Item) => string) {
  return isRefusal(page) ? page : { ...page, items: page.items.map(idOf) };
}

async function pages<Item>(
  read: (page: { pageSize: number; pageToken: string }) => Promise<ListPage<Item> | Refusal>,
): Promise<Item[]> {
  const all: Item[] = [];
  let pageToken = "";
  do {
    const page = await read({ pageSize: PAGE_SIZE, pageToken });
    if (isRefusal(page)) throw new Error(page.message);
    all.push(...page.items);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return all;
}

/** What a watch of a session and those below it has heard by now. */
function watchFaults(life: TreeLife, model: TreeModel, session: ModelSession): string[] {
  const asks = model.treeOf(session).flatMap((one) => one.asks);
  const heard = [...(life.watchers.get(session.sessionId)?.heard ?? [])];
  const name = (id: string, isOpen: boolean): string => `${id} ${isOpen ? "open" : "settled"}`;
  return difference(
    `asks heard by a watch of ${session.sessionId}`,
    heard.map(([id, { state }]) => name(id, state === AskState.OPEN)).toSorted(),
    asks.map(({ ask, isOpen }) => name(ask.askId, isOpen)).toSorted(),
  );
}

/** Ids that two sessions have. */
function sharedIds({ sessions }: TreeModel): string[] {
  const ids = sessions.flatMap(({ calls, asks, hookIds }) => [
    ...calls.map(({ toolCallId }) => toolCallId),
    ...asks.map(({ ask }) => ask.askId),
    ...hookIds,
  ]);
  return new Set(ids).size === ids.length ? [] : ["an id is used twice"];
}

function placeOf({ sessionId, path }: ModelSession): string {
  return `${sessionId}: ${pathText(path)}`;
}

function difference(what: string, found: readonly string[], expected: readonly string[]): string[] {
  if (found.join() === expected.join()) return [];
  return [`${what} are ${found.join(", ")}; they should be ${expected.join(", ")}`];
}
