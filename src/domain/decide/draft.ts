import { create } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { ProviderPairing } from "../../../gen/toolmark/engine/v1/command_pb.js";
import type { ProviderTurn } from "../../../gen/toolmark/storage/v1/storage_pb.js";
import { EventRecordSchema, type EventRecord } from "../../../gen/toolmark/v1/event_pb.js";
import type { Ask } from "../../../gen/toolmark/v1/ask_pb.js";
import type { Actor } from "../../../gen/toolmark/v1/origin_pb.js";
import type { MintId } from "../identity.js";
import type { Limits } from "../limits.js";
import type { Caller } from "../principal.js";
import type { ReadProviderTurn } from "../provider-turn.js";
import type { Refusal } from "../refusal.js";
import type { DraftEvent, OpenCall, SessionState } from "../session-state.js";

/** A record of any kind, as an event carries it. */
export type AnyRecord = EventRecord["record"];

/** What is known of a stored body without its bytes. */
export interface KnownBody {
  readonly bodyRef: string;
  readonly sha256: Uint8Array;
  readonly sizeBytes: number;
  readonly isJsonObject: boolean;
}

/** A body that a command brings. */
export interface NewBody extends KnownBody {
  readonly data: Uint8Array;
}

/** What a decision needs beside state and command; all of it comes from outside. */
export interface Facts {
  readonly now: Timestamp;
  readonly caller: Caller;
  /** Who acts: the verified caller, or the service itself. */
  readonly actor: Actor;
  readonly limits: Limits;
  readonly mintId: MintId;
  /** The last committed event's record of an id that the command names and that is not open. */
  readonly settledRecord: (recordId: string) => AnyRecord | undefined;
  readonly storedBody: (bodyRef: string) => KnownBody | undefined;
  /** A body that was uploaded and is not stored: what names it brings it. Absent: there are none. */
  readonly uploadedBody?: (bodyRef: string) => NewBody | undefined;
  /** A body that was uploaded for AcceptProviderTurn alone. Absent: there are none. */
  readonly privateUpload?: (bodyRef: string) => NewBody | undefined;
  readonly readProviderTurn: ReadProviderTurn;
  /** Whether the token is the one that is shown with this ask. */
  readonly isAnswerToken: (ask: Ask, token: string) => boolean;
}

/** A record of a reply and the event that it is rebuilt from. */
export interface ReplyRecord {
  readonly sequence: bigint;
  readonly record: EventRecord;
}

/** A call that a command leaves as it is. */
export function unchanged({ call, sequence }: OpenCall): ReplyRecord {
  return {
    sequence,
    record: create(EventRecordSchema, { record: { case: "toolCall", value: call } }),
  };
}

/** What a command does: events and bodies to commit, and what its reply shows. */
export interface Decision {
  readonly events: readonly DraftEvent[];
  readonly bodies: readonly NewBody[];
  readonly reply: readonly ReplyRecord[];
}

export type Decided = Decision | Refusal;

/** Collects the events of one command; gives each its sequence and, where it has one, its revision. */
export class Draft {
  readonly events: DraftEvent[] = [];
  readonly bodies: NewBody[] = [];
  #revision: bigint;
  readonly #firstSequence: bigint;

  constructor(
    readonly sessionId: string,
    state: Pick<SessionState, "sequence" | "highWater"> | undefined,
    readonly facts: Facts,
  ) {
    this.#revision = state?.highWater ?? 0n;
    this.#firstSequence = (state?.sequence ?? 0n) + 1n;
  }

  /** Adds an event that takes no revision. */
  write(kind: string, record: AnyRecord, providerTurn?: ProviderTurn): ReplyRecord {
    return this.#add(kind, undefined, record, { pairing: undefined, providerTurn });
  }

  /** Adds an update of a record that takes the next revision. */
  revise(
    kind: string,
    build: (revision: bigint) => AnyRecord,
    pairing?: ProviderPairing,
  ): ReplyRecord {
    this.#revision += 1n;
    return this.#add(kind, this.#revision, build(this.#revision), { pairing });
  }

  /** Everything that was added, for a reply that shows all of it. */
  get written(): readonly ReplyRecord[] {
    return this.events.map(({ record }, index) => ({
      sequence: this.#firstSequence + BigInt(index),
      record,
    }));
  }

  decision(reply: readonly ReplyRecord[]): Decision {
    return { events: this.events, bodies: this.bodies, reply };
  }

  #add(
    kind: string,
    revision: bigint | undefined,
    value: AnyRecord,
    beside: Pick<DraftEvent, "pairing" | "providerTurn">,
  ): ReplyRecord {
    const record = create(EventRecordSchema, { record: value });
    const sequence = this.#firstSequence + BigInt(this.events.length);
    this.events.push({ kind, revision, record, ...beside });
    return { sequence, record };
  }
}
