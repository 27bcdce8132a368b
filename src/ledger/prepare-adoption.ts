import { create, toBinary } from "@bufbuild/protobuf";
import {
  ProviderPairingSchema,
  type ProviderPairing,
} from "../../gen/toolmark/engine/v1/command_pb.js";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import {
  BaseRecordSchema,
  BaseStateSchema,
  type BaseRecord,
  type BaseState,
} from "../../gen/toolmark/v1/base_state_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { LegacySourceSchema, type LegacySource } from "../../gen/toolmark/v1/legacy_pb.js";
import type { Session } from "../../gen/toolmark/v1/session_pb.js";
import { ToolResultKind } from "../../gen/toolmark/v1/tool_call_pb.js";
import { archiveOf } from "../domain/archive.js";
import { equalBytes } from "../domain/bytes.js";
import {
  legacySessionRecord,
  withdrawnAsk,
  type Adoption,
} from "../domain/decide/adopt-session.js";
import type { NewBody } from "../domain/decide/draft.js";
import type { LegacySession, SourceBytes } from "../domain/legacy-session.js";
import type { Limits } from "../domain/limits.js";
import { recordIdOf, toolCallIdOf } from "../domain/record-id.js";
import { isRefusal, refuse, type Refusal } from "../domain/refusal.js";
import { sha256 } from "../domain/sha256.js";
import { inheritedRecords } from "./base-state.js";
import { sealPairing } from "./event-codec.js";
import type { InheritedRecord, PairingRow } from "./store-port.js";

type AnyRecord = EventRecord["record"];

/** What an earlier import of a session brought. */
export interface EarlierAdoption {
  readonly sequence: bigint;
  readonly session: Session;
  readonly base: BaseState;
  /** Encoded pairings by tool_call_id. */
  readonly pairings: ReadonlyMap<string, Uint8Array>;
}

/** An older session with the rows that it is found by. */
export interface PreparedAdoption extends Adoption {
  /** Sequence of the event that brought the session before; 0 for the first time. */
  readonly earlierSequence: bigint;
  readonly inherited: readonly InheritedRecord[];
  readonly pairings: readonly PairingRow[];
  /** The provider's ids of calls. Private. */
  readonly providerCallIds: ReadonlyMap<string, string>;
}

export interface AdoptionSources {
  readonly legacy: LegacySession;
  readonly sources: readonly SourceBytes[];
  /** Of a session that is new here. */
  readonly ownerSubject: string;
  readonly earlier?: EarlierAdoption | undefined;
}

export interface AdoptionOptions {
  readonly limits: Limits;
  readonly randomBytes: (size: number) => Uint8Array;
}

/** Makes an older session ready to be brought in by one event, or says why it cannot be. */
export function prepareAdoption(
  { legacy, sources, ownerSubject, earlier }: AdoptionSources,
  { limits, randomBytes }: AdoptionOptions,
): PreparedAdoption | Refusal {
  const records = earlier === undefined ? legacy.records : mergedRecords(legacy, earlier);
  if (isRefusal(records)) return records;
  const earlierSequence = earlier?.sequence ?? 0n;
  const pairings = new PairingSeals(earlier, earlierSequence + 1n, randomBytes);
  const base = create(BaseStateSchema, {
    records: records.map((record) => baseRecord(record, legacy.pairings, pairings)),
    occurrences: legacy.occurrences.map((each) => ({ ...each })),
  });
  const bytes = toBinary(BaseStateSchema, base);
  const refused = refuseLarge(records, bytes, limits);
  if (refused !== undefined) return refused;
  const archived = sources.map((source) => archivedBody(legacy.sessionId, source));
  return {
    session: legacySessionRecord(legacy, earlier?.session.ownerSubject ?? ownerSubject),
    sources: sources.map(sourceOf),
    ...{ records, base: bytes, earlierSequence },
    bodies: [...legacy.bodies, ...archived],
    inherited: inheritedRecords(base, "adopted"),
    pairings: pairings.rows,
    providerCallIds: new Map(
      [...legacy.pairings].map(([id, { providerCallId = "" }]) => [id, providerCallId]),
    ),
  };
}

/** How a source is named: equal bytes of one format are one source. */
export function sourceOf({ format, data }: SourceBytes): LegacySource {
  const sizeBytes = BigInt(data.length);
  return create(LegacySourceSchema, { format, sizeBytes, sha256: sha256(data) });
}

function archivedBody(sessionId: string, source: SourceBytes): NewBody {
  const { bodyRef, sha256: digest } = archiveOf(sessionId, sourceOf(source));
  const { data } = source;
  return { bodyRef, sha256: digest, sizeBytes: data.length, isJsonObject: false, data };
}

function refuseLarge(
  records: readonly AnyRecord[],
  base: Uint8Array,
  { bodyBytes, openCallsPerSession }: Limits,
): Refusal | undefined {
  if (base.length > bodyBytes) {
    const message = "the records of the session would be larger than a body may be";
    return refuse(ErrorReason.BODY_TOO_LARGE, message, { limit: String(bodyBytes) });
  }
  const open = records.filter(({ case: kind, value }) => kind === "toolCall" && !value.result);
  if (open.length <= openCallsPerSession) return undefined;
  const message = `a session has at most ${openCallsPerSession} calls without a result`;
  return refuse(ErrorReason.QUOTA_EXCEEDED, message, { limit: String(openCallsPerSession) });
}

/** Seals the pairing of each call once: one that was there before keeps its commitment. */
class PairingSeals {
  readonly rows: PairingRow[] = [];
  readonly #known = new Map<string, Uint8Array>();
  readonly #sequence: bigint;
  readonly #randomBytes: (size: number) => Uint8Array;

  constructor(
    earlier: EarlierAdoption | undefined,
    sequence: bigint,
    randomBytes: (size: number) => Uint8Array,
  ) {
    this.#sequence = sequence;
    this.#randomBytes = randomBytes;
    for (const { record, privateCommitment } of earlier?.base.records ?? []) {
      if (record?.record.case !== "toolCall") continue;
      this.#known.set(record.record.value.toolCallId, privateCommitment);
    }
  }

  commitmentTo(toolCallId: string, pairing: ProviderPairing): Uint8Array {
    const known = this.#known.get(toolCallId);
    if (known !== undefined) return known;
    const bytes = toBinary(ProviderPairingSchema, pairing);
    const named = { recordId: toolCallId, bytes };
    const sealed = sealPairing(named, this.#sequence, this.#randomBytes);
    this.rows.push(sealed.row);
    return sealed.commitment;
  }
}

function baseRecord(
  record: AnyRecord,
  pairings: ReadonlyMap<string, ProviderPairing>,
  seals: PairingSeals,
): BaseRecord {
  const { toolCallId = "" } = record.case === "toolCall" ? record.value : {};
  const pairing = pairings.get(toolCallId);
  return create(BaseRecordSchema, {
    record: { record },
    ...(pairing === undefined
      ? {}
      : { privateCommitment: seals.commitmentTo(toolCallId, pairing) }),
  });
}

/** Every record that was there, as newer sources say it, and then what is new. Calls must be those that they were. */
function mergedRecords(legacy: LegacySession, earlier: EarlierAdoption): AnyRecord[] | Refusal {
  const fresh = new Map(legacy.records.map((record) => [recordIdOf(record) ?? "", record]));
  const merged: AnyRecord[] = [];
  const lost = lostCall(fresh, legacy, earlier);
  if (lost !== undefined) return lost;
  for (const { record } of earlier.base.records) {
    const before = record?.record ?? { case: undefined };
    const id = recordIdOf(before) ?? "";
    const kept = mergedRecord(before, fresh.get(id), legacy, earlier);
    if (isRefusal(kept)) return kept;
    merged.push(kept);
    fresh.delete(id);
  }
  return [...merged, ...fresh.values()];
}

/** Why the sources have another call than the session: told before anything else that differs for the same reason. */
function lostCall(
  fresh: ReadonlyMap<string, AnyRecord>,
  legacy: LegacySession,
  earlier: EarlierAdoption,
): Refusal | undefined {
  for (const { record } of earlier.base.records) {
    const before = record?.record ?? { case: undefined };
    if (before.case !== "toolCall") continue;
    const kept = mergedRecord(before, fresh.get(before.value.toolCallId), legacy, earlier);
    if (isRefusal(kept)) return kept;
  }
  return undefined;
}

function mergedRecord(
  before: AnyRecord,
  now: AnyRecord | undefined,
  legacy: LegacySession,
  earlier: EarlierAdoption,
): AnyRecord | Refusal {
  if (before.case === "toolCall") {
    const { toolCallId } = before.value;
    const isSame =
      now?.case === "toolCall" &&
      isContinued(before.value, now.value) &&
      isSamePairing(legacy.pairings.get(toolCallId), earlier.pairings.get(toolCallId));
    return isSame ? now : refuseOther("tool_call_id", toolCallId);
  }
  if (now === undefined) return carriedOver(before);
  // What stands alone, or is attached, stays so.
  const isEvidence = before.case === "hook" || before.case === "legacyEvidence";
  if (isEvidence) return toolCallIdOf(now) === toolCallIdOf(before) ? now : before;
  return isFollowing(before, now) ? now : refuseOther("record_id", recordIdOf(before) ?? "");
}

type Call = Extract<AnyRecord, { case: "toolCall" }>["value"];
const NOTHING = new Uint8Array(0);

/** Whether a call is the one that it was, further on: a result that was kept is never another one, or none. */
function isContinued(before: Call, now: Call): boolean {
  const isSame =
    before.toolName === now.toolName &&
    equalBytes(before.proposed?.sha256 ?? NOTHING, now.proposed?.sha256 ?? NOTHING);
  if (!isSame || before.result?.kind !== ToolResultKind.CANONICAL) return isSame;
  const { result } = now;
  return (
    result?.kind === ToolResultKind.CANONICAL &&
    result.isError === before.result.isError &&
    equalBytes(result.content?.sha256 ?? NOTHING, before.result.content?.sha256 ?? NOTHING)
  );
}

/** Whether newer sources tell of the same thing, and of no earlier time: what came to an end does not begin again. */
function isFollowing(before: AnyRecord, now: AnyRecord): boolean {
  if (before.case !== now.case || toolCallIdOf(before) !== toolCallIdOf(now)) return false;
  if (before.case === "message" && now.case === "message") {
    const contents = [before, now].map(({ value }) => value.content?.sha256 ?? NOTHING);
    return equalBytes(contents[0] ?? NOTHING, contents[1] ?? NOTHING);
  }
  if (before.case === "turn" && now.case === "turn") {
    return before.value.toolCallIds.every((id, index) => now.value.toolCallIds[index] === id);
  }
  return !isOver(before) || isOver(now);
}

function isOver(record: AnyRecord): boolean {
  if (record.case === "ask") return record.value.state !== AskState.OPEN;
  return record.case === "authorization" && record.value.state !== AuthorizationState.PENDING;
}

function isSamePairing(
  pairing: ProviderPairing | undefined,
  stored: Uint8Array | undefined,
): boolean {
  if (pairing === undefined || stored === undefined) return pairing === stored;
  return equalBytes(toBinary(ProviderPairingSchema, pairing), stored);
}

/** What newer sources no longer have: what it waited for came to an end in the older system. */
function carriedOver(before: AnyRecord): AnyRecord {
  if (before.case === "ask" && before.value.state === AskState.OPEN) {
    return { ...before, value: withdrawnAsk(before.value) };
  }
  if (before.case === "authorization" && before.value.state === AuthorizationState.PENDING) {
    return { ...before, value: { ...before.value, state: AuthorizationState.CLOSED } };
  }
  return before;
}

function refuseOther(name: "tool_call_id" | "record_id", id: string): Refusal {
  const message = "the sources do not go on from what the session has of them";
  return refuse(ErrorReason.SESSION_DIVERGED, message, { [name]: id });
}
