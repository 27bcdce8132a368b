import { describe, expect, test } from "vitest";
import {
  WATCH_VALIDATORS,
  watchViolations,
  type CommittedLog,
  type EventMark,
  type RecordedFrame,
  type RecordedStream,
  type RecordedWatcher,
} from "../support/watch-validators.js";

function cursorAt(position: number | bigint): string {
  const cursor = Buffer.alloc(16);
  cursor.writeBigUInt64BE(BigInt(position), 8);
  return cursor.toString("base64url");
}

function mark(sessionId: string, sequence: number, position: number, kind = "A"): EventMark {
  const place = { sequence: BigInt(sequence), position: BigInt(position) };
  return { sessionId, ...place, kind, digest: `of ${position}` };
}

/** The root's events are at 1, 2, 5, 8; the child's at 3, 6; those of another root at 4, 7. */
const LOG: CommittedLog = {
  events: [
    ...[mark("root", 1, 1), mark("root", 2, 2, "B"), mark("child", 1, 3), mark("other", 1, 4)],
    ...[mark("root", 3, 5, "B"), mark("child", 2, 6, "B"), mark("other", 2, 7)],
    mark("root", 4, 8),
  ],
  parents: new Map([["child", "root"]]),
};

function eventAt(position: number): EventMark {
  const found = LOG.events.find((event) => event.position === BigInt(position));
  if (found === undefined) throw new Error(`nothing is at ${position}`);
  return found;
}

function frame(phase: string, position: number): RecordedFrame {
  return { phase, cursor: cursorAt(position), event: eventAt(position) };
}

function without(phase: string, position: number): RecordedFrame {
  return { phase, cursor: cursorAt(position) };
}

const replay = (position: number) => frame("replay", position);
const live = (position: number) => frame("live", position);
const boundary = (position: number) => without("live", position);

function stream(frames: readonly RecordedFrame[], more: Partial<RecordedStream> = {}) {
  return { after: "", kinds: [], frames, ...more };
}

function tree(...streams: RecordedStream[]): RecordedWatcher {
  return {
    ...{ name: "tree", sessionId: "root", includeDescendants: true },
    ...{ streams, isComplete: true },
  };
}

function single(...streams: RecordedStream[]): RecordedWatcher {
  return { ...tree(...streams), name: "single", includeDescendants: false };
}

const after = (position: number) => ({ after: cursorAt(position) });
const FIRST = [replay(1), replay(2), replay(3), boundary(3), live(5)];
const REST = [replay(6), boundary(6), without("heartbeat", 6), live(8)];

const SOUND: readonly (readonly [string, RecordedWatcher])[] = [
  ["a tree that is resumed", tree(stream(FIRST), stream(REST, after(5)))],
  ["a tree that begins again", tree(stream([replay(1)]), stream([...FIRST, live(6), live(8)]))],
  ["a session", single(stream([replay(1), replay(2), boundary(2), live(5), live(8)]))],
  ["kinds, with bookmarks past others", kindsOf([replay(2), boundary(3), live(5), live(6)])],
  ["an end that says where it goes on", tree(ended(6), stream([boundary(6), live(8)], after(6)))],
  ["one that was not heard out", { ...tree(stream([replay(1)])), isComplete: false }],
];

function kindsOf(frames: readonly RecordedFrame[]): RecordedWatcher {
  return tree(stream([...frames, without("heartbeat", 8)], { kinds: ["B"] }));
}

/** A stream whose end has a cursor of its own. */
function ended(position: number): RecordedStream {
  return stream([...FIRST, live(6)], { endCursor: cursorAt(position) });
}

type Planted = readonly [what: string, validator: string, watcher: RecordedWatcher];

const PLANTED: readonly Planted[] = [
  [
    "two events that are swapped",
    "ordered",
    tree(stream([replay(1), replay(3), replay(2), boundary(3), live(5), live(6), live(8)])),
  ],
  [
    "an event that comes again in a stream",
    "unique",
    tree(stream([...FIRST, live(5), live(6), live(8)])),
  ],
  ["an event that comes again after it was resumed", "unique", tree(stream(FIRST), again())],
  ["an event that is left out", "reliable", tree(stream([...FIRST, live(8)]))],
  ["an event that is left out where it is resumed", "reliable", tree(stream(FIRST), skipping())],
  ["a last event that never comes", "reliable", tree(stream([...FIRST, live(6)]))],
  ["an event that was never committed", "reliable", tree(stream(invented()))],
  ["an event from before the cursor", "resumable", tree(stream(FIRST), again())],
  ["a cursor that was not given", "resumable", tree(stream(FIRST), stream(REST, after(4)))],
  ["a cursor that is ahead", "bookmark-correct", tree(stream(ahead("heartbeat")))],
  ["a boundary that is ahead", "bookmark-correct", tree(stream(ahead("live")))],
  ["an end whose cursor is ahead", "bookmark-correct", tree(ended(8))],
  ["an event with another's cursor", "bookmark-correct", tree(stream(wrongCursor()))],
  [
    "a cursor that goes back",
    "bookmark-correct",
    tree(stream([...FIRST, without("heartbeat", 3), live(6), live(8)])),
  ],
  [
    "a second boundary",
    "bookmark-correct",
    tree(stream([...FIRST, boundary(5), live(6), live(8)])),
  ],
  [
    "no boundary",
    "bookmark-correct",
    tree(stream([1, 2, 3, 5, 6, 8].map((position) => replay(position)))),
  ],
  ["a live event before it", "bookmark-correct", tree(stream([replay(1), live(2), boundary(2)]))],
  ["a replayed event after it", "bookmark-correct", tree(stream([...FIRST, replay(6), live(8)]))],
  ["a phase of no name", "bookmark-correct", tree(stream([without("news", 0), ...FIRST]))],
  [
    "another root's event",
    "filter-correct",
    tree(stream([replay(1), replay(2), replay(3), replay(4), boundary(4)])),
  ],
  ["the child's event", "filter-correct", single(stream([replay(1), replay(2), replay(3)]))],
  ["another kind", "filter-correct", kindsOf([replay(1), replay(2), boundary(2)])],
];

function again(): RecordedStream {
  return stream([replay(5), ...REST], after(5));
}

function skipping(): RecordedStream {
  return stream([boundary(5), live(8)], after(5));
}

function ahead(phase: string): RecordedFrame[] {
  const until = phase === "live" ? [replay(1), replay(2)] : FIRST;
  return [...until, without(phase, 6), live(6), live(8)];
}

function invented(): RecordedFrame[] {
  const event = { ...eventAt(1), digest: "of what failed" };
  return [{ ...replay(1), event }, ...FIRST.slice(1), live(6), live(8)];
}

function wrongCursor(): RecordedFrame[] {
  return [{ ...replay(1), cursor: cursorAt(0) }, ...FIRST.slice(1), live(6), live(8)];
}

describe("the validators of watches", () => {
  test.each(SOUND)("find nothing wrong with %s", (_what, watcher) => {
    expect(watchViolations([watcher], LOG)).toEqual([]);
  });

  test.each(PLANTED)("find %s: %s", (_what, validator, watcher) => {
    const found = watchViolations([watcher], LOG).map((violation) => violation.validator);
    expect(found).toContain(validator);
  });

  test("are six, and each finds something planted", () => {
    const planted = new Set(PLANTED.map(([, validator]) => validator));
    expect([...planted].sort()).toEqual(Object.keys(WATCH_VALIDATORS).sort());
    expect(planted.size).toBe(6);
  });
});
