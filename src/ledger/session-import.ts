import { EventKind } from "../domain/event-kind.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { LegacySourceFormat, type Adopted } from "../../gen/toolmark/v1/legacy_pb.js";
import type { ImportSessionRequest } from "../../gen/toolmark/v1/session_service_pb.js";
import { equalBytes } from "../domain/bytes.js";
import { invariant } from "../domain/invariant.js";
import type { MalformedSource, ReadSources } from "../domain/legacy-session.js";
import type { Limits } from "../domain/limits.js";
import type { Caller } from "../domain/principal.js";
import { isRefusal, refuse, type Refusal } from "../domain/refusal.js";
import { readBaseState } from "./base-state.js";
import type { Replies, Waiting } from "./batch-context.js";
import { refuseDiverged } from "./decide-adoption.js";
import { openPayload, refuseDamaged } from "./event-codec.js";
import type { Ledger } from "./ledger.js";
import {
  prepareAdoption,
  type EarlierAdoption,
  type PreparedAdoption,
} from "./prepare-adoption.js";
import { SourceUploads, type ImportName } from "./source-uploads.js";
import type { EventRow, SessionRow, Store } from "./store-port.js";

export interface SessionImportOptions {
  readonly ledger: Ledger;
  /** What is stored: a session that is only mounted can be imported. */
  readonly store: Store;
  readonly limits: Limits;
  readonly readSources: ReadSources;
  readonly randomBytes: (size: number) => Uint8Array;
  readonly nowMs: () => number;
}

/** What an import has come to. */
export interface ImportProgress {
  /** Bytes that are there of each source, in the order of the request. */
  readonly receivedBytes: readonly number[];
  /** What was brought in. Absent until all bytes are there. */
  readonly adopted: Adopted | undefined;
  readonly isNew: boolean;
}

/** What an earlier import wrote. */
interface Imported {
  readonly row: SessionRow;
  readonly sequence: bigint;
  readonly adopted: Adopted;
}

/** Brings in older sessions from their bytes, which come in parts. */
export class SessionImport {
  readonly #options: SessionImportOptions;
  readonly #uploads: SourceUploads;

  constructor(options: SessionImportOptions) {
    this.#options = options;
    this.#uploads = new SourceUploads(options.nowMs);
  }

  async import(
    caller: Caller,
    full: ImportSessionRequest,
    waiting: Waiting,
  ): Promise<ImportProgress | Refusal> {
    if (caller.scope !== "tenant") return refuseScope();
    const { parts, ...request } = full;
    const { sessionId, sources } = request;
    const earlier = await this.#earlier(caller, sessionId);
    if (isRefusal(earlier)) return earlier;
    const bare = { ...request, parts: [] };
    const known = earlier && (await this.#known(caller, bare, earlier, waiting));
    if (known !== undefined) return known;
    const name = { tenant: caller.tenant, subject: caller.subject, sessionId, sources };
    const receivedBytes = this.#uploads.take(name, parts);
    if (isRefusal(receivedBytes)) return receivedBytes;
    const isWhole = sources.every(
      ({ sizeBytes }, at) => BigInt(receivedBytes[at] ?? 0) === sizeBytes,
    );
    if (!isWhole) return { receivedBytes, adopted: undefined, isNew: false };
    const adoption = await this.#prepare(name, request.ownerSubject, earlier);
    if (isRefusal(adoption)) return this.#refused(name, adoption);
    const mutation = { kind: "importSession", request: bare, adoption } as const;
    const replies = await this.#options.ledger.submit(caller, mutation, waiting);
    if (isRefusal(replies)) return this.#refused(name, replies);
    this.#uploads.drop(name);
    return { receivedBytes, adopted: repliedAdoption(replies), isNew: true };
  }

  /** What a request is answered with that needs no bytes: one that is sent again, or whose sources were imported. */
  async #known(
    caller: Caller,
    request: ImportSessionRequest,
    { row, sequence, adopted }: Imported,
    waiting: Waiting,
  ): Promise<ImportProgress | Refusal | undefined> {
    const receivedBytes = request.sources.map(({ sizeBytes }) => Number(sizeBytes));
    const tried = { kind: "importSession", request } as const;
    const repeated = await this.#options.ledger.tryOut(caller, tried, waiting);
    const isRepeated = !isRefusal(repeated) && repeated.length > 0;
    if (isRepeated) return { receivedBytes, adopted: repliedAdoption(repeated), isNew: true };
    if (isRefusal(repeated) && repeated.reason === ErrorReason.REQUEST_ID_REUSED) return repeated;
    if (isSameSources(request.sources, adopted.sources)) {
      return { receivedBytes, adopted, isNew: false };
    }
    return (
      refuseDiverged({ sequence: row.head.sequence, adoptedSequence: sequence }) ??
      (isRefusal(repeated) ? repeated : undefined)
    );
  }

  /** What earlier imports brought of the session; of one that is here otherwise, that it cannot be imported. */
  async #earlier(caller: Caller, sessionId: string): Promise<Imported | undefined | Refusal> {
    const { store } = this.#options;
    const row = await store.findSession({ tenant: caller.tenant, sessionId });
    if (row === undefined) return undefined;
    let last: EventRow | undefined;
    for (let sequence = 1n; sequence <= row.head.sequence; sequence += 1n) {
      const event = await store.readEvent(row, sequence);
      if (event?.kind !== EventKind.adopted) break;
      last = event;
    }
    if (last === undefined) return refuseForeign();
    const payload = openPayload(last);
    if (isRefusal(payload)) return payload;
    const record = payload.record?.record;
    if (record?.case !== "adopted") return refuseDamaged(last.sequence);
    return { row, sequence: last.sequence, adopted: record.value };
  }

  async #prepare(
    name: ImportName,
    ownerSubject: string,
    imported: Imported | undefined,
  ): Promise<PreparedAdoption | Refusal> {
    const sources = this.#uploads.finish(name);
    if (isRefusal(sources)) return sources;
    const legacy = this.#options.readSources(name.sessionId, sources);
    if ("malformed" in legacy) return refuseMalformed(legacy);
    const earlier = imported && (await this.#withBase(imported));
    if (isRefusal(earlier)) return earlier;
    return prepareAdoption({ legacy, sources, ownerSubject, earlier }, this.#options);
  }

  async #withBase({ row, sequence, adopted }: Imported): Promise<EarlierAdoption | Refusal> {
    const { store } = this.#options;
    const base = await readBaseState(store, row, adopted);
    if (isRefusal(base)) return base;
    const ids = base.occurrences.map(({ toolCallId }) => toolCallId);
    const pairings = new Map<string, Uint8Array>();
    for (const { recordId, pairing } of await store.readPairings(row, ids)) {
      if (pairing !== undefined) pairings.set(recordId, pairing);
    }
    const { session } = adopted;
    invariant(session !== undefined, "an adopted session has its own record");
    return { sequence, session, base, pairings };
  }

  /** What is wrong with the bytes themselves is so as well when they are sent again. */
  #refused(name: ImportName, refusal: Refusal): Refusal {
    if (!MAY_PASS.has(refusal.reason)) this.#uploads.drop(name);
    return refusal;
  }
}

/** Reasons after which the same request may be carried out later: the bytes are kept. */
const MAY_PASS: ReadonlySet<ErrorReason> = new Set([
  ErrorReason.STORE_BUSY,
  ErrorReason.STORE_FULL,
  ErrorReason.COMMIT_UNCERTAIN,
  ErrorReason.CALLER_GONE,
  ErrorReason.DEADLINE_PASSED,
]);

function repliedAdoption(replies: Replies): Adopted {
  const record = replies[0]?.[0]?.record;
  invariant(record?.case === "adopted", "a reply about an import has its record");
  return record.value;
}

function isSameSources(one: Adopted["sources"], other: Adopted["sources"]): boolean {
  return (
    one.length === other.length &&
    one.every((source) =>
      other.some(
        ({ format, sha256 }) => format === source.format && equalBytes(sha256, source.sha256),
      ),
    )
  );
}

function refuseScope(): Refusal {
  const message = "the method needs the role admin for the whole tenant";
  return refuse(ErrorReason.ROLE_MISSING, message, { role: "admin" });
}

function refuseForeign(): Refusal {
  const message = "the session was not imported: it is of this service";
  return refuse(ErrorReason.SESSION_DIVERGED, message, { sequence: "1" });
}

function refuseMalformed({ format, malformed, path, offsetBytes }: MalformedSource): Refusal {
  return refuse(ErrorReason.SOURCE_MALFORMED, `${path} ${malformed}`, {
    format: LegacySourceFormat[format],
    path,
    offset: String(offsetBytes),
  });
}
