import { ConnectError } from "@connectrpc/connect";
import type { LegacySummary } from "../../gen/toolmark/v1/legacy_pb.js";
import { decodeLog } from "../legacy/decode-log.js";
import { decodeSnapshot } from "../legacy/decode-snapshot.js";
import { sessionIdOfStem } from "../legacy/file-names.js";
import { isMalformed } from "../legacy/malformed.js";
import {
  fileOf,
  type LegacyDirectory,
  type LegacyFamily,
  type LegacySources,
} from "./legacy-dir.js";
import { isFileFault } from "./legacy-file.js";
import {
  isAboutServer,
  refusedByServer,
  refusedFile,
  refusedSource,
  type RefusedSession,
} from "./refused-session.js";
import { NothingKeptError, sendSession, type Patience } from "./send-session.js";
import type { ServerLink } from "./server-link.js";
import { monotonicMs } from "./system.js";

/** Numbers of records, over all sessions that the server has now. */
export type ImportSummary = Readonly<Record<SummaryField, number>>;
type SummaryField = Exclude<keyof LegacySummary, `$${string}`>;

const NOTHING: ImportSummary = {
  toolCalls: 0,
  joinedResults: 0,
  openCalls: 0,
  openAsks: 0,
  pendingAuthorizations: 0,
  attachedHooks: 0,
  standaloneHooks: 0,
  attachedEvidence: 0,
  standaloneEvidence: 0,
  messages: 0,
  gaps: 0,
};
const SUMMARY_FIELDS = Object.keys(NOTHING) as SummaryField[];

export interface ImportOptions {
  readonly directories: readonly LegacyDirectory[];
  /** Absent: files are read and nothing is sent. */
  readonly link: ServerLink | undefined;
  /** Empty: nobody's. */
  readonly owner: string;
  /** Sessions that are read and sent at the same time; no others are in memory. */
  readonly concurrency: number;
  /** Id of a log without a snapshot, in place of what its name says. */
  readonly sessionId: string | undefined;
  /** Stops the import where it is. */
  readonly signal: AbortSignal;
  readonly onProgress?: (progress: ImportProgress) => void;
  /** With failures that may pass. */
  readonly patience?: Patience;
}

export interface ImportProgress {
  /** Sessions of which it is known what became. */
  readonly done: number;
  readonly total: number;
}

export interface ImportReport {
  readonly isDryRun: boolean;
  readonly sessions: number;
  readonly imported: number;
  /** Sessions that the server had from equal sources. */
  readonly unchanged: number;
  /** Sessions that were read without being sent. */
  readonly readable: number;
  /** By file. */
  readonly refused: readonly RefusedSession[];
  /** Sessions that were not got to, or of which nothing was heard any more. */
  readonly unfinished: number;
  /** Why some are unfinished. */
  readonly stopped?: string;
  readonly summary: ImportSummary;
  readonly durationMs: number;
}

/**
 * Reads sessions of an older system and brings them to a server, several at a time. What is wrong with one is reported
 * and keeps no other back; what is wrong with the server ends it.
 */
export async function importSessions(options: ImportOptions): Promise<ImportReport> {
  const startedMs = monotonicMs();
  const work = new ImportWork(options);
  await Promise.all(Array.from({ length: options.concurrency }, () => work.run()));
  return work.report(Math.round(monotonicMs() - startedMs));
}

interface Item {
  readonly directory: LegacyDirectory;
  readonly family: LegacyFamily;
}

/** A session that can be sent. */
interface ReadSession {
  readonly sessionId: string;
  readonly sources: LegacySources;
}

type Outcome = "imported" | "unchanged" | "readable";

class ImportWork {
  readonly #items: Iterator<Item>;
  readonly #total: number;
  readonly #counts: Record<Outcome, number> = { imported: 0, unchanged: 0, readable: 0 };
  readonly #refused: RefusedSession[] = [];
  readonly #fileById = new Map<string, string>();
  #summary = NOTHING;
  #stopped: string | undefined;
  #lastClaim: Promise<void> = Promise.resolve();

  constructor(private readonly options: ImportOptions) {
    const { directories } = options;
    this.#total = directories.reduce((sum, { families }) => sum + families.length, 0);
    this.#items = itemsOf(directories);
  }

  /** Takes sessions one after the other until none is left. */
  async run(): Promise<void> {
    while (!this.options.signal.aborted && this.#stopped === undefined) {
      const next = this.#items.next();
      if (next.done === true) return;
      await this.#import(next.value);
      this.options.onProgress?.({ done: this.#done, total: this.#total });
    }
  }

  report(durationMs: number): ImportReport {
    const { link, signal } = this.options;
    const unfinished = this.#total - this.#done;
    const stopped = this.#stopped ?? (signal.aborted ? "it was interrupted" : undefined);
    return {
      isDryRun: link === undefined,
      sessions: this.#total,
      ...this.#counts,
      refused: this.#refused.sort((a, b) => (a.file < b.file ? -1 : 1)),
      unfinished,
      ...(stopped === undefined ? {} : { stopped }),
      summary: this.#summary,
      durationMs,
    };
  }

  get #done(): number {
    const { imported, unchanged, readable } = this.#counts;
    return imported + unchanged + readable + this.#refused.length;
  }

  async #import(item: Item): Promise<void> {
    const session = await this.#claimInOrder(item.family, () => this.#read(item));
    if ("reason" in session) this.#refused.push(session);
    else if (this.options.link === undefined) this.#counts.readable += 1;
    else await this.#send(this.options.link, item.family, session);
  }

  /** Of two files with one session id the first has it, whichever was read sooner. */
  #claimInOrder(
    family: LegacyFamily,
    read: () => Promise<ReadSession | RefusedSession>,
  ): Promise<ReadSession | RefusedSession> {
    const before = this.#lastClaim;
    const claiming = (async () => {
      const session = await read();
      await before;
      return this.#claim(family, session);
    })();
    const nothing = (): void => undefined;
    // A fault is thrown where the claim is awaited, not at the next one.
    this.#lastClaim = claiming.then(nothing, nothing);
    return claiming;
  }

  #claim(family: LegacyFamily, session: ReadSession | RefusedSession): typeof session {
    if ("reason" in session) return session;
    const { sessionId } = session;
    const takenBy = this.#fileById.get(sessionId);
    const file = fileOf(family);
    if (takenBy === undefined) {
      this.#fileById.set(sessionId, file);
      return session;
    }
    const message = `${takenBy} has the same session id`;
    return { file, sessionId, reason: "SESSION_ID_TAKEN", message };
  }

  async #read({ directory, family }: Item): Promise<ReadSession | RefusedSession> {
    const sources = await directory.read(family);
    if (isFileFault(sources)) return refusedFile(sources);
    const sessionId = this.#sessionIdOf(family, sources);
    if (typeof sessionId !== "string") return sessionId;
    // The server reads logs as well; without one it has to be done here.
    if (this.options.link !== undefined || sources.log === undefined) return { sessionId, sources };
    const log = decodeLog(sources.log);
    const logFile = fileOf({ folder: family.folder, stem: family.stem, log: family.log ?? "" });
    return isMalformed(log) ? refusedSource(logFile, log, sessionId) : { sessionId, sources };
  }

  #sessionIdOf(family: LegacyFamily, { snapshot }: LegacySources): string | RefusedSession {
    const file = fileOf(family);
    if (snapshot !== undefined) {
      const decoded = decodeSnapshot(snapshot);
      return isMalformed(decoded) ? refusedSource(file, decoded) : decoded.sessionId;
    }
    const sessionId = this.options.sessionId ?? sessionIdOfStem(family.stem);
    if (sessionId !== undefined) return sessionId;
    const message =
      "a log without a snapshot, whose name does not tell the id: give it by --session";
    return { file, reason: "SESSION_ID_UNKNOWN", message };
  }

  async #send(link: ServerLink, family: LegacyFamily, session: ReadSession): Promise<void> {
    const { owner, signal, patience } = this.options;
    try {
      const sent = await sendSession(link, { ...session, owner }, signal, patience);
      this.#counts[sent.isNew ? "imported" : "unchanged"] += 1;
      this.#summary = added(this.#summary, sent.summary);
    } catch (error) {
      if (signal.aborted) return;
      const isRefusal = error instanceof ConnectError || error instanceof NothingKeptError;
      if (!isRefusal) throw error;
      const refused = refusedByServer(family, session.sessionId, error);
      if (error instanceof ConnectError && isAboutServer(error)) {
        this.#stopped ??= `${refused.reason}: ${refused.message}`;
      } else this.#refused.push(refused);
    }
  }
}

function* itemsOf(directories: readonly LegacyDirectory[]): Generator<Item> {
  for (const directory of directories) {
    for (const family of directory.families) yield { directory, family };
  }
}

function added(sum: ImportSummary, summary: LegacySummary): ImportSummary {
  const entries = SUMMARY_FIELDS.map((field) => [field, sum[field] + summary[field]]);
  return Object.fromEntries(entries) as ImportSummary;
}
