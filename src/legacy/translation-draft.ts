import { create } from "@bufbuild/protobuf";
import {
  ProviderPairingSchema,
  type ProviderPairing,
} from "../../gen/toolmark/engine/v1/command_pb.js";
import { BodySchema, type Body } from "../../gen/toolmark/v1/body_pb.js";
import {
  LegacyEvidenceSchema,
  LegacyEvidenceKind,
  type LegacyEvidence,
} from "../../gen/toolmark/v1/legacy_pb.js";
import type { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import { MessageSchema, TurnSchema, type Turn } from "../../gen/toolmark/v1/run_pb.js";
import {
  IdentitySource,
  Ran,
  ToolCallSchema,
  ToolCallState,
  ToolResultKind,
  ToolResultSchema,
  type ToolCall,
} from "../../gen/toolmark/v1/tool_call_pb.js";
import type { NewBody } from "../domain/decide/draft.js";
import { bodyRef, legacyId } from "../domain/identity.js";
import { isJsonObject } from "../domain/json-object.js";
import { sha256 } from "../domain/sha256.js";
import { syntheticText } from "../domain/synthetic-text.js";
import { isUsableId } from "./old-id.js";
import type { OldCall, OldPart, OldReplay, OldResult } from "./old-session.js";
import { cutText, NAME_BYTES, TEXT_BYTES } from "./shown-text.js";
import type { AnyRecord, CallOccurrence, Translation } from "./translation.js";

const TEXT = "text/plain; charset=utf-8";
const JSON_TEXT = "application/json";
const URI = "text/uri-list";
const utf8 = new TextEncoder();

/** A call while its session is translated. */
export interface DraftCall {
  /** As it stands so far. */
  readonly call: ToolCall;
  readonly old: OldCall;
}

/** Where and in which run something was said. */
export interface Place {
  readonly occurrence: string;
  readonly runId: string;
}

type EvidenceInit = Partial<
  Pick<LegacyEvidence, "toolName" | "label" | "text" | "content" | "isError">
> & { readonly toolCallId?: string | undefined; readonly legacyId?: string | undefined };

type Written = Pick<Translation, "records" | "bodies" | "pairings" | "replays" | "occurrences">;

/** Collects the records of one session, in the order of first mention. Those that change later are changed in place. */
export class TranslationDraft {
  readonly records: AnyRecord[] = [];
  readonly #bodies = new Map<string, NewBody>();
  readonly #pairings = new Map<string, ProviderPairing>();
  readonly #replays = new Map<string, OldReplay>();
  readonly #occurrences: CallOccurrence[] = [];

  readonly #oldIds: Set<string>;

  constructor(readonly sessionId: string) {
    this.#oldIds = new Set([sessionId]);
  }

  /** Whether a record can have this id of the old system; no other record can have it then. */
  takeOldId(id: string): boolean {
    if (!isUsableId(id) || this.#oldIds.has(id)) return false;
    this.#oldIds.add(id);
    return true;
  }

  /** What a person, a program or a model said, if it said anything: a message for the text and for each part. */
  addMessage(
    place: Place,
    role: MessageRole,
    { text, parts, replay }: { text: string; parts: readonly OldPart[]; replay?: OldReplay },
  ): void {
    const contents = parts.map((part) => this.#part(part));
    if (text !== "") contents.unshift(this.text(text));
    for (const [index, content] of contents.entries()) {
      const messageId = legacyId("legacyMessage", this.sessionId, `${place.occurrence}/${index}`);
      const { runId } = place;
      const value = create(MessageSchema, { messageId, runId, role, content });
      this.records.push({ case: "message", value });
      if (index === 0) this.#keepReplay(messageId, replay);
    }
  }

  /** A turn, to which calls are added. */
  addTurn({ occurrence, runId }: Place, names: Partial<Pick<Turn, "provider" | "model">>): Turn {
    const turnId = legacyId("legacyTurn", this.sessionId, occurrence);
    const turn = create(TurnSchema, { turnId, runId, ...names });
    this.records.push({ case: "turn", value: turn });
    return turn;
  }

  addCall({ occurrence, runId }: Place, turn: Turn, old: OldCall): DraftCall {
    const { sessionId } = this;
    const toolCallId = legacyId("legacyToolCall", sessionId, occurrence);
    const proposed = this.json(old.arguments ?? new Uint8Array(0));
    const call = create(ToolCallSchema, {
      ...{ toolCallId, origin: { sessionId }, runId, turnId: turn.turnId },
      ...{ index: turn.toolCallIds.length, toolName: cutText(old.toolName, NAME_BYTES) },
      ...{ proposed, effective: proposed, state: ToolCallState.ACCEPTED, ran: Ran.UNKNOWN },
      identitySource: IdentitySource.LEGACY,
    });
    turn.toolCallIds.push(toolCallId);
    this.records.push({ case: "toolCall", value: call });
    this.#occurrences.push({ occurrence, toolCallId });
    const { providerCallId, providerItemId } = old;
    const item = providerItemId === undefined ? {} : { providerItemId };
    this.#pairings.set(toolCallId, create(ProviderPairingSchema, { providerCallId, ...item }));
    return { call, old };
  }

  /** Gives a call the result that the old system kept: its text. Further parts stand beside it. */
  complete({ call }: DraftCall, place: Place, { content, isError, parts }: OldResult): void {
    call.state = ToolCallState.COMPLETED;
    call.result = create(ToolResultSchema, {
      ...{ content: this.text(content), isError, kind: ToolResultKind.CANONICAL },
    });
    this.#addResultParts(place, parts, { isError, toolCallId: call.toolCallId });
  }

  /** Ends a call of which no result is known, with the text that says so. */
  end({ call }: DraftCall, state: ToolCallState): void {
    call.state = state;
    call.result = create(ToolResultSchema, {
      ...{ content: this.text(syntheticText(state)), isError: true },
      kind: ToolResultKind.SYNTHETIC,
    });
  }

  /** A result that is of no call or of several: its text and its parts, each on its own. */
  addLooseResult(place: Place, { content, isError, parts }: OldResult): void {
    const { RESULT } = LegacyEvidenceKind;
    this.addEvidence(place.occurrence, RESULT, { content: this.text(content), isError });
    this.#addResultParts(place, parts, { isError });
  }

  /** What was said beside the history: its text, if there is one, and its parts, each on its own. */
  addLooseMessage(
    { occurrence }: Place,
    label: string,
    { text, parts }: { text: string; parts: readonly OldPart[] },
  ): void {
    const { MESSAGE } = LegacyEvidenceKind;
    if (text !== "") this.addEvidence(occurrence, MESSAGE, { label, content: this.text(text) });
    for (const [index, part] of parts.entries()) {
      this.addEvidence(`${occurrence}/${index}`, MESSAGE, { label, content: this.#part(part) });
    }
  }

  addEvidence(occurrence: string, kind: LegacyEvidenceKind, init: EvidenceInit): LegacyEvidence {
    const { toolCallId, legacyId: named, text = "", label = "", toolName = "", ...rest } = init;
    const shown = {
      text: cutText(text, TEXT_BYTES),
      label: cutText(label, NAME_BYTES),
      toolName: cutText(toolName, NAME_BYTES),
    };
    const { sessionId } = this;
    const value = create(LegacyEvidenceSchema, {
      evidenceId: legacyId("legacyEvidence", sessionId, occurrence),
      ...{ origin: { sessionId }, kind, occurrence, ...shown, ...rest },
      ...(toolCallId === undefined ? {} : { toolCallId }),
      ...(named === undefined ? {} : { legacyId: cutText(named, TEXT_BYTES) }),
    });
    this.records.push({ case: "legacyEvidence", value });
    return value;
  }

  text(text: string): Body {
    return this.#body(utf8.encode(text), TEXT);
  }

  /** Bytes as they stood in a JSON text. */
  json(data: Uint8Array): Body {
    return this.#body(data, JSON_TEXT);
  }

  keepTurnReplay({ turnId }: Turn, replay: OldReplay): void {
    this.#keepReplay(turnId, replay);
  }

  /** What was collected, as that of a session. */
  finish(session: Omit<Translation, keyof Written | "sessionId">): Translation {
    return {
      ...{ sessionId: this.sessionId, ...session },
      records: this.records,
      bodies: [...this.#bodies.values()],
      pairings: this.#pairings,
      replays: this.#replays,
      occurrences: this.#occurrences,
    };
  }

  #addResultParts({ occurrence }: Place, parts: readonly OldPart[], init: EvidenceInit): void {
    for (const [index, part] of parts.entries()) {
      const content = this.#part(part);
      this.addEvidence(`${occurrence}/${index}`, LegacyEvidenceKind.RESULT, { ...init, content });
    }
  }

  #keepReplay(id: string, replay: OldReplay | undefined): void {
    if (replay !== undefined && Object.values(replay).some((value) => value !== undefined)) {
      this.#replays.set(id, replay);
    }
  }

  #part({ data, mediaType, url, text }: OldPart): Body {
    if (data !== undefined) return this.#body(data, mediaType);
    return url === ""
      ? this.#body(utf8.encode(text), mediaType || TEXT)
      : this.#body(utf8.encode(url), URI);
  }

  #body(data: Uint8Array, mediaType: string): Body {
    const digest = sha256(data);
    const ref = bodyRef(this.sessionId, digest);
    const known = this.#bodies.get(ref) ?? {
      ...{ bodyRef: ref, sha256: digest, sizeBytes: data.length, data },
      isJsonObject: isJsonObject(data),
    };
    this.#bodies.set(ref, known);
    const { isJsonObject: isObject, sizeBytes } = known;
    return create(BodySchema, {
      ...{ sha256: digest, sizeBytes: BigInt(sizeBytes), mediaType },
      ...{ isJsonObject: isObject, bodyRef: ref },
    });
  }
}
