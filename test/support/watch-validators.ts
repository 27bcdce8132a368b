/** What makes an event the one that it is. */
export interface EventMark {
  readonly sessionId: string;
  readonly sequence: bigint;
  readonly position: bigint;
  readonly kind: string;
  /** Differs between events that differ in anything else. */
  readonly digest: string;
}

/** A message of a watch. */
export interface RecordedFrame {
  readonly phase: string;
  readonly cursor: string;
  readonly event?: EventMark;
}

/** One stream, from its opening to its end, however it ended. */
export interface RecordedStream {
  /** The cursor that it was to go on after; empty for one from the beginning. */
  readonly after: string;
  readonly kinds: readonly string[];
  readonly frames: readonly RecordedFrame[];
  /** The cursor that came with the refusal which ended it. */
  readonly endCursor?: string;
}

/** What one watcher got. */
export interface RecordedWatcher {
  readonly name: string;
  readonly sessionId: string;
  readonly includeDescendants: boolean;
  readonly streams: readonly RecordedStream[];
  /** Whether it went on until everything that is in the log had time to come. */
  readonly isComplete: boolean;
}

/** What was committed. */
export interface CommittedLog {
  /** In the order of their positions. */
  readonly events: readonly EventMark[];
  /** The session that each session works for. */
  readonly parents: ReadonlyMap<string, string>;
}

/** What is wrong, one line each; empty if nothing is. */
export type Validator = (watcher: RecordedWatcher, log: CommittedLog) => string[];

const BEGINNING = 0n;

/** The position that a cursor stands for. Clients do not look into cursors; a test may. */
export function positionOfCursor(cursor: string): bigint {
  if (cursor === "") return BEGINNING;
  // Behind the generation of the log, which has as many bytes.
  return Buffer.from(cursor, "base64url").readBigUInt64BE(8);
}

function eventsOf({ frames }: RecordedStream): EventMark[] {
  return frames.flatMap(({ event }) => (event === undefined ? [] : [event]));
}

function nameOf({ sessionId, sequence, position }: EventMark): string {
  return `${sessionId} ${sequence} at ${position}`;
}

/** Streams that go on from one another: each but the first resumes. */
function chainsOf({ streams }: RecordedWatcher): RecordedStream[][] {
  const chains: RecordedStream[][] = [];
  for (const stream of streams) {
    if (stream.after === "") chains.push([]);
    chains.at(-1)?.push(stream);
  }
  return chains;
}

/** Whether a watch is about a session. */
export function isInScope(
  watcher: RecordedWatcher,
  parents: CommittedLog["parents"],
  sessionId: string,
): boolean {
  if (!watcher.includeDescendants) return sessionId === watcher.sessionId;
  let at: string | undefined = sessionId;
  while (at !== undefined && at !== watcher.sessionId) at = parents.get(at);
  return at !== undefined;
}

/** The events that a watch is about, of all kinds. */
export function inScope(watcher: RecordedWatcher, log: CommittedLog): EventMark[] {
  const known = new Map<string, boolean>();
  return log.events.filter(({ sessionId }) => {
    const is = known.get(sessionId) ?? isInScope(watcher, log.parents, sessionId);
    known.set(sessionId, is);
    return is;
  });
}

function isWanted({ kinds }: RecordedStream, { kind }: EventMark): boolean {
  return kinds.length === 0 || kinds.includes(kind);
}

/** Positions rise within each stream, and so do the sequences of each session. */
export const ordered: Validator = ({ streams }) => {
  const problems: string[] = [];
  for (const stream of streams) {
    let last = BEGINNING;
    const sequences = new Map<string, bigint>();
    for (const event of eventsOf(stream)) {
      const { sessionId, sequence, position } = event;
      if (position <= last) problems.push(`${nameOf(event)}: after position ${last}`);
      const before = sequences.get(sessionId) ?? 0n;
      if (sequence <= before) problems.push(`${nameOf(event)}: after sequence ${before}`);
      last = position;
      sequences.set(sessionId, sequence);
    }
  }
  return problems;
};

/** No event comes twice to a watcher that resumes. */
export const unique: Validator = (watcher) => {
  const problems: string[] = [];
  for (const chain of chainsOf(watcher)) {
    const seen = new Set<bigint>();
    for (const event of chain.flatMap(eventsOf)) {
      if (seen.has(event.position)) problems.push(`${nameOf(event)}: twice`);
      seen.add(event.position);
    }
  }
  return problems;
};

/** Nothing is left out between the beginning of a chain and its end, and nothing comes that is not in the log. */
export const reliable: Validator = (watcher, log) => {
  const events = inScope(watcher, log);
  const digests = new Map(log.events.map(({ position, digest }) => [position, digest]));
  return chainsOf(watcher).flatMap((chain, index, chains) => {
    const isLast = index === chains.length - 1;
    const end = isLast && watcher.isComplete ? undefined : reachedBy(chain);
    const invented = chain
      .flatMap(eventsOf)
      .filter(({ position, digest }) => digests.get(position) !== digest)
      .map((event) => `${nameOf(event)}: is not in the log`);
    return [...invented, ...holesIn(chain, events, end)];
  });
};

/** The last position that a chain says it has reached. */
function reachedBy(chain: readonly RecordedStream[]): bigint {
  const last = chain.at(-1);
  return positionOfCursor(last?.endCursor ?? last?.frames.at(-1)?.cursor ?? last?.after ?? "");
}

/** Each stream answers for what lies between its cursor and that of the next one. */
function holesIn(
  chain: readonly RecordedStream[],
  events: readonly EventMark[],
  end: bigint | undefined,
): string[] {
  const given = new Set(chain.flatMap(eventsOf).map(({ position }) => position));
  const starts = chain.map(({ after }) => positionOfCursor(after));
  let at = 0;
  return events
    .filter((event) => {
      const { position } = event;
      while (at + 1 < chain.length && (starts[at + 1] ?? position) < position) at += 1;
      const stream = chain[at];
      const isDue = end === undefined || position <= end;
      return stream !== undefined && isDue && isWanted(stream, event) && !given.has(position);
    })
    .map((event) => `${nameOf(event)}: never came`);
}

/** Each stream goes on strictly after its cursor, which is the last one that was given. */
export const resumable: Validator = (watcher) => {
  const problems: string[] = [];
  for (const chain of chainsOf(watcher)) {
    let known = new Set<string>([""]);
    for (const stream of chain) {
      const { after, frames, endCursor } = stream;
      if (!known.has(after)) problems.push(`it went on after ${after}, which was not given last`);
      const start = positionOfCursor(after);
      for (const event of eventsOf(stream)) {
        if (event.position <= start) problems.push(`${nameOf(event)}: not after ${start}`);
      }
      const last = frames.at(-1)?.cursor ?? after;
      known = new Set([last, endCursor ?? last]);
    }
  }
  return problems;
};

/**
 * A cursor stands at the event that it comes with, and never ahead of what was given or is not wanted; it does not go
 * back. One message without an event says where a stream is live: no event before it is live, none after it a replay.
 */
export const bookmarkCorrect: Validator = (watcher, log) => {
  const events = inScope(watcher, log);
  const last = watcher.streams.at(-1);
  const isLive = last?.frames.some(({ phase, event }) => phase === "live" && event === undefined);
  return [
    ...watcher.streams.flatMap((stream) => cursorProblems(stream, events)),
    ...watcher.streams.flatMap(boundaryProblems),
    ...(watcher.isComplete && isLive !== true ? ["it never became live"] : []),
  ];
};

function cursorProblems(stream: RecordedStream, events: readonly EventMark[]): string[] {
  const problems: string[] = [];
  const due = events.filter((event) => isWanted(stream, event));
  let position = positionOfCursor(stream.after);
  let at = firstAfter(due, position);
  const look = (cursor: string, event: EventMark | undefined): void => {
    const next = positionOfCursor(cursor);
    if (event !== undefined && next !== event.position) {
      problems.push(`${nameOf(event)}: its cursor stands at ${next}`);
    }
    if (next < position) problems.push(`a cursor went back from ${position} to ${next}`);
    position = next;
    for (let each = due[at]; each !== undefined && each.position <= next; each = due[at]) {
      // The event of this very message may be the one that is due.
      if (each.position !== event?.position) problems.push(`${nameOf(each)}: the cursor is ahead`);
      at += 1;
    }
  };
  for (const { cursor, event } of stream.frames) look(cursor, event);
  if (stream.endCursor !== undefined) look(stream.endCursor, undefined);
  return problems;
}

/** Index of the first event after a position. */
function firstAfter(events: readonly EventMark[], position: bigint): number {
  let [low, high] = [0, events.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((events[middle]?.position ?? 0n) <= position) low = middle + 1;
    else high = middle;
  }
  return low;
}

const PHASES: ReadonlySet<string> = new Set(["replay", "live", "heartbeat", "gap", "erased"]);

function boundaryProblems({ frames }: RecordedStream): string[] {
  const problems: string[] = [];
  let isLive = false;
  for (const { phase, event } of frames) {
    const isBoundary = phase === "live" && event === undefined;
    if (isBoundary && isLive) problems.push("it became live twice");
    if (event !== undefined && phase !== (isLive ? "live" : "replay")) {
      problems.push(`${nameOf(event)}: is called ${phase} ${isLive ? "after" : "before"} live`);
    }
    if (!PHASES.has(phase)) problems.push(`a phase is called ${phase}`);
    isLive ||= isBoundary;
  }
  return problems;
}

/** Only events of the wanted kinds come, and only of the session, or of those below it as well. */
export const filterCorrect: Validator = (watcher, log) =>
  watcher.streams.flatMap((stream) =>
    eventsOf(stream)
      .filter((event) => {
        return !isWanted(stream, event) || !isInScope(watcher, log.parents, event.sessionId);
      })
      .map((event) => `${nameOf(event)}: ${event.kind} was not asked for`),
  );

export const WATCH_VALIDATORS: Readonly<Record<string, Validator>> = {
  ...{ ordered, unique, reliable, resumable },
  ...{ "bookmark-correct": bookmarkCorrect, "filter-correct": filterCorrect },
};

/** What each validator finds, with its name and that of the watcher before it. */
export function watchViolations(
  watchers: readonly RecordedWatcher[],
  log: CommittedLog,
): { readonly validator: string; readonly text: string }[] {
  return watchers.flatMap((watcher) =>
    Object.entries(WATCH_VALIDATORS).flatMap(([validator, validate]) =>
      validate(watcher, log).map((problem) => {
        return { validator, text: `${validator}: ${watcher.name}: ${problem}` };
      }),
    ),
  );
}
