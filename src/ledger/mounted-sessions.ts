import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { LegacySource } from "../../gen/toolmark/v1/legacy_pb.js";
import { SessionState } from "../../gen/toolmark/v1/session_pb.js";
import { equalBytes } from "../domain/bytes.js";
import { CHAIN_START } from "../domain/chain.js";
import type { Facts } from "../domain/decide/draft.js";
import { SYSTEM_ACTOR } from "../domain/decide/expire-due.js";
import { invariant } from "../domain/invariant.js";
import type { ReadSources, SourceBytes } from "../domain/legacy-session.js";
import type { Limits } from "../domain/limits.js";
import type { Caller } from "../domain/principal.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { sha256 } from "../domain/sha256.js";
import { NOT_REMEMBERED } from "./batch-context.js";
import { sessionChecksum } from "./checksums.js";
import { openPayload } from "./event-codec.js";
import { decideAdoption } from "./decide-adoption.js";
import type { LoadedSession, LiveSession } from "./live-session.js";
import { prepareAdoption, type PreparedAdoption } from "./prepare-adoption.js";
import type { SessionRef, SessionRow, Store } from "./store-port.js";
import { writeOf } from "./write-of.js";

/** Where older sessions lie that are read in place. Nothing is ever written there. */
export interface LegacyMount {
  /** The tenant that all of them belong to. */
  readonly tenant: string;
  /** What each is found by, in the order in which they are listed. */
  readonly names: readonly string[];
  /** Whether a session may be there, without looking into any file. */
  mayHave(sessionId: string): boolean;
  /** The name of a session. Absent if it is not there. */
  find(sessionId: string): Promise<string | undefined>;
  read(name: string): Promise<MountedSources | MountFault>;
}

/** The bytes of a session, and its id as they or their name say it. */
export interface MountedSources {
  readonly sessionId: string;
  readonly sources: readonly SourceBytes[];
  /** The file of each, in their order. */
  readonly files: readonly string[];
}

/** Why a session that is there cannot be read. */
export interface MountFault {
  /** What is wrong, in words. */
  readonly fault: string;
  /** The file, and where in it, as far as that is known: `file`, `path`, `offset`. */
  readonly where: Readonly<Record<string, string>>;
}

/** A mounted session that was read: as the write path takes it, and as a store of its own. */
export interface MountedSession {
  readonly kind: "mounted";
  readonly live: LiveSession;
  /** Holds nothing else, as if the session had been brought in. */
  readonly rows: Store;
}

/** One that cannot be read. */
export interface FaultyMount {
  readonly kind: "faulty";
  readonly row: SessionRow;
  readonly fault: MountFault;
}

export type OpenedMount = MountedSession | FaultyMount;

export interface MountedSessionsOptions {
  readonly mount: LegacyMount;
  /** What is stored: a session that was brought in is not mounted any more. */
  readonly stored: Store;
  readonly openMemory: () => Store;
  readonly readSources: ReadSources;
  readonly limits: Limits;
  readonly randomBytes: (size: number) => Uint8Array;
  /** Told once of a stored session whose files are no longer those that it was brought in from. */
  readonly onChanged: (sessionId: string) => void;
  /** Told of each reading that failed. */
  readonly onFault: (fault: MountFault) => void;
}

/** Sessions that were read are kept up to so many bytes of their sources. */
const CACHED_BYTES_MAX = 64 * 1024 * 1024;
/** After every session that is stored, in the order of their names. */
const FIRST_PLACE = 1n << 62n;

type Loaded = MountedSession | Omit<FaultyMount, "row">;

interface Cached {
  readonly opened: Promise<Loaded>;
  sizeBytes: number;
}

/** Older sessions that are read in place, each when it is first asked for. Ids are the same at every reading. */
export class MountedSessions {
  readonly #options: MountedSessionsOptions;
  readonly #cache = new Map<string, Cached>();
  readonly #names = new Map<string, string>();
  readonly #noticed = new Set<string>();

  constructor(options: MountedSessionsOptions) {
    this.#options = options;
  }

  get count(): number {
    return this.#options.mount.names.length;
  }

  /**
   * As the ledger takes it. What a command is decided on is what the files say now: the older system may have gone on
   * since they were read.
   */
  async find(session: SessionRef): Promise<LoadedSession | undefined> {
    const before = await this.open(session);
    const isFresh = before?.kind !== "mounted" || (await this.#isUnchanged(before));
    const opened = isFresh ? before : await this.open(session);
    if (opened?.kind !== "faulty") return opened?.live;
    return { kind: "read-only", row: opened.row, cause: opened.fault.fault, isMounted: true };
  }

  /** A session that is mounted and not stored. */
  async open(session: SessionRef): Promise<OpenedMount | undefined> {
    const { mount, stored } = this.#options;
    const { tenant, sessionId } = session;
    if (tenant !== mount.tenant) return undefined;
    if ((await stored.findSession(session)) !== undefined) return undefined;
    const name = this.#names.get(sessionId) ?? (await mount.find(sessionId));
    if (name === undefined) return undefined;
    this.#names.set(sessionId, name);
    const opened = await this.#openNamed(name);
    // What cannot be read says no id: it is the one that it was asked for by.
    return opened.kind === "mounted" ? opened : { ...opened, row: this.#row(name, sessionId, 0) };
  }

  /** As `open`, for a session that was asked for before: others are not looked for, so that reads cost nothing more. */
  async openKnown(session: SessionRef): Promise<OpenedMount | undefined> {
    return this.#names.has(session.sessionId) ? this.open(session) : undefined;
  }

  /** The session at a place of the list. Absent if it cannot be read, or is stored. */
  async at(index: number): Promise<MountedSession | undefined> {
    const { mount, stored } = this.#options;
    const name = mount.names[index];
    if (name === undefined) return undefined;
    const opened = await this.#openNamed(name);
    if (opened.kind === "faulty") return undefined;
    const { row } = opened.live;
    // Of two files with one session, the one that is found by its id is listed.
    const own = this.#names.get(row.sessionId) ?? (await mount.find(row.sessionId));
    if (own !== name) return undefined;
    this.#names.set(row.sessionId, name);
    return (await stored.findSession(row)) === undefined ? opened : undefined;
  }

  /** Looks once whether a stored session's files still are what it was brought in from. What they say is ignored. */
  async notice(row: SessionRow): Promise<void> {
    const { mount, stored, onChanged } = this.#options;
    const { sessionId } = row;
    const isOther = row.tenant !== mount.tenant || !mount.mayHave(sessionId);
    if (isOther || this.#noticed.has(sessionId)) return;
    this.#noticed.add(sessionId);
    const first = await stored.readEvent(row, 1n);
    const payload = first && openPayload(first);
    if (payload === undefined || isRefusal(payload)) return;
    const record = payload.record?.record;
    const name = record?.case === "adopted" ? await mount.find(sessionId) : undefined;
    if (name === undefined || record?.case !== "adopted") return;
    const found = await mount.read(name);
    const isSame = !("fault" in found) && isOfSources(found, record.value.sources);
    if (!isSame) onChanged(sessionId);
  }

  /** Whether the files are still those that were read. If not, they are read again next time. */
  async #isUnchanged({ live: { row, mounted } }: MountedSession): Promise<boolean> {
    const { mount } = this.#options;
    const name = this.#names.get(row.sessionId) ?? "";
    const found = await mount.read(name);
    const isSame = "fault" in found ? false : isOfSources(found, mounted?.sources ?? []);
    if (!isSame) this.#cache.delete(name);
    return isSame;
  }

  async #openNamed(name: string): Promise<Loaded> {
    const known = this.#cache.get(name);
    if (known !== undefined) {
      this.#cache.delete(name);
      this.#cache.set(name, known);
      return known.opened;
    }
    const entry: Cached = {
      opened: this.#load(name, (size) => (entry.sizeBytes = size)),
      sizeBytes: 0,
    };
    this.#cache.set(name, entry);
    try {
      const opened = await entry.opened;
      if (opened.kind === "faulty") this.#options.onFault(opened.fault);
      return opened;
    } catch (error) {
      this.#cache.delete(name);
      throw error;
    } finally {
      this.#evict(name);
    }
  }

  async #load(name: string, onSize: (sizeBytes: number) => void): Promise<Loaded> {
    const { mount, readSources, limits, randomBytes } = this.#options;
    const found = await mount.read(name);
    if ("fault" in found) return { kind: "faulty", fault: found };
    const { sessionId, sources } = found;
    onSize(sources.reduce((sum, { data }) => sum + data.length, 0));
    const legacy = readSources(sessionId, sources);
    if ("malformed" in legacy) {
      const { malformed, path, offsetBytes } = legacy;
      const at = sources.findIndex(({ format }) => format === legacy.format);
      const where = { file: found.files[at] ?? name, path, offset: String(offsetBytes) };
      return { kind: "faulty", fault: { fault: malformed, where } };
    }
    const prepared = prepareAdoption(
      { legacy, sources, ownerSubject: "" },
      { limits, randomBytes },
    );
    if (isRefusal(prepared)) {
      return faultyBy(prepared);
    }
    return this.#mounted(name, prepared);
  }

  /** Writes the session to a store of its own, as its adoption would write it to the real one. */
  async #mounted(name: string, prepared: PreparedAdoption): Promise<Loaded> {
    const { stored, openMemory, randomBytes, mount } = this.#options;
    const { sessionId, createTime } = prepared.session;
    const session = { tenant: mount.tenant, sessionId };
    const caller: Caller = { tenant: mount.tenant, subject: "", scope: "tenant" };
    const decision = decideAdoption(stored, undefined, prepared, this.#facts(caller));
    if (isRefusal(decision)) return faultyBy(decision);
    const nowMs = createTime === undefined ? 0 : Number(createTime.seconds) * 1000;
    const context = {
      ...{ caller, actor: SYSTEM_ACTOR, session, before: undefined, nowMs },
      ...{ positionBefore: 0n, randomBytes, snapshotEvery: Infinity },
    };
    const { write } = writeOf(context, decision, NOT_REMEMBERED, prepared);
    const rows = openMemory();
    const result = await rows.commit([write]);
    invariant(result.outcome === "committed", "a mounted session fits a store of its own");
    const { state } = decision;
    const row = this.#row(name, sessionId, nowMs);
    const live: LiveSession = {
      kind: "live",
      row,
      state,
      eventsSinceSnapshot: 0,
      mounted: prepared,
    };
    return { kind: "mounted", live, rows };
  }

  /** Nothing of a session is chosen at its adoption but what was prepared. */
  #facts(caller: Caller): Facts {
    const unasked = (): never => {
      throw new Error("an adoption asks for nothing");
    };
    return {
      ...{ caller, actor: SYSTEM_ACTOR, limits: this.#options.limits, now: timestampFromMs(0) },
      ...{ mintId: unasked, settledRecord: unasked, storedBody: unasked, isAnswerToken: unasked },
      readProviderTurn: unasked,
    };
  }

  /** The row of a session without events: it belongs to nobody, and its log is empty. */
  #row(name: string, sessionId: string, updateTimeMs: number): SessionRow {
    const { mount } = this.#options;
    const row = {
      ...{ tenant: mount.tenant, sessionId, ownerSubject: "", createdBySubject: "" },
      ...{ parentSessionId: undefined, rootSessionId: sessionId, state: SessionState.OPEN },
      createPosition: FIRST_PLACE + BigInt(mount.names.indexOf(name)),
      head: {
        ...{ sequence: 0n, position: 0n, highWater: 0n, chain: CHAIN_START },
        ...{ sessionSequence: 1n, activeRunId: undefined, updateTimeMs },
      },
    };
    return { ...row, checksum: sessionChecksum(row) };
  }

  #evict(newest: string): void {
    let sizeBytes = 0;
    for (const each of this.#cache.values()) sizeBytes += each.sizeBytes;
    for (const [name, each] of this.#cache) {
      if (sizeBytes <= CACHED_BYTES_MAX || name === newest) return;
      this.#cache.delete(name);
      sizeBytes -= each.sizeBytes;
    }
  }
}

function isOfSources({ sources }: MountedSources, before: readonly LegacySource[]): boolean {
  const digests = sources.map(({ data }) => sha256(data));
  return (
    digests.length === before.length &&
    before.every(({ sha256: one }) => digests.some((other) => equalBytes(one, other)))
  );
}

function faultyBy({ message: fault, metadata: where }: Refusal): Loaded {
  return { kind: "faulty", fault: { fault, where } };
}

/** Where a list of sessions goes on among the mounted ones, after a place. */
export function mountedIndexAfter(createPosition: bigint): number {
  return createPosition < FIRST_PLACE ? 0 : Number(createPosition - FIRST_PLACE) + 1;
}
