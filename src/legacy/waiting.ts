import { isDeepStrictEqual } from "node:util";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { AskKind, AskProvenance, AskSchema, AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationSchema, AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { LegacyEvidenceKind } from "../../gen/toolmark/v1/legacy_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { Ran, ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { equalBytes } from "../domain/bytes.js";
import { VERDICTS_OF } from "../domain/verdicts.js";
import { askProvenance } from "./old-words.js";
import type { OldAsk, OldAuthorization, OldCall, OldProvenance } from "./old-session.js";
import { isUsableId } from "./old-id.js";
import { isUnanswered, type OldTurn } from "./old-turn.js";
import { cutText, NAME_BYTES, TEXT_BYTES } from "./shown-text.js";
import type { DraftCall, Place, TranslationDraft } from "./translation-draft.js";

const KIND_OF: ReadonlyMap<string, AskKind> = new Map([
  ["action", AskKind.ACTION],
  ["result_release", AskKind.RESULT_RELEASE],
]);

/**
 * What the last turn of a session waits for. A question that is certain to be about one call stays open under its old
 * id. One that is not is evidence, and no call of the turn can be started: nobody knows which of them was meant.
 */
export function addPendingAsk(
  draft: TranslationDraft,
  place: Place,
  turn: OldTurn | undefined,
  pending: OldAsk,
): void {
  const kind = askKindOf(pending);
  const asked = turn && askedCall(turn, pending);
  const isCertain = turn !== undefined && asked !== undefined && kind !== undefined;
  if (!isCertain || !draft.takeOldId(pending.askId)) {
    addAskEvidence(draft, place.occurrence, pending, undefined);
    endTurn(draft, turn);
    return;
  }
  endEarlier(draft, turn, asked);
  const { call } = asked;
  takeEffective(draft, asked, pending.call);
  const isRelease = kind === AskKind.RESULT_RELEASE;
  call.state = isRelease ? ToolCallState.STARTED : ToolCallState.AWAITING_ANSWER;
  if (isRelease) call.ran = Ran.YES;
  const { effective } = call;
  const ask = create(AskSchema, {
    ...{ askId: pending.askId, origin: call.origin ?? {}, runId: place.runId, kind },
    ...{ toolCallId: call.toolCallId, toolName: call.toolName, state: AskState.OPEN },
    ...reviewOf(pending),
    provenance: askProvenance(pending.provenance),
    ...(isRelease || effective === undefined ? { presented: {} } : { presented: effective }),
    display: cutText(shownInstead(pending, asked), TEXT_BYTES),
    prompt: cutText(pending.reason, TEXT_BYTES),
    allowedVerdicts: verdictsOf(kind, pending.provenance),
  });
  draft.records.push({ case: "ask", value: ask });
}

/** The result of a release was held in memory and is gone; who an unknown asker was cannot be told. */
function verdictsOf(kind: AskKind, provenance: OldProvenance): Verdict[] {
  const isKnown = askProvenance(provenance) !== AskProvenance.UNSPECIFIED;
  return kind === AskKind.ACTION && isKnown ? [...VERDICTS_OF[kind]] : [Verdict.DENY];
}

function askKindOf({ guardrail }: OldAsk): AskKind | undefined {
  return guardrail === undefined ? AskKind.ACTION : KIND_OF.get(guardrail.kind);
}

function reviewOf({ guardrail }: OldAsk): { reviewId?: string } {
  const reviewId = guardrail?.reviewId ?? "";
  return isUsableId(reviewId) ? { reviewId } : {};
}

/** What a person was shown, where that was not the arguments of the call. */
function shownInstead({ arguments: shown }: OldAsk, { call, old }: DraftCall): string {
  if (shown === undefined || call.effective === undefined) return "";
  return old.arguments !== undefined && isSameJson(shown, old.arguments)
    ? ""
    : new TextDecoder().decode(shown);
}

/** The call that a question is about: named by an id that names one call, or the only one that has no result. */
export function askedCall(turn: OldTurn, ask: OldAsk): DraftCall | undefined {
  if (turn.isAmbiguous) return undefined;
  const { providerCallId, toolName, call } = ask;
  const named = providerCallId === undefined ? onlyUnanswered(turn) : turn.callOf(providerCallId);
  if (named === undefined || !isUnanswered(named)) return undefined;
  const isSame = call === undefined || isSameCall(call, named.old);
  return isSame && named.old.toolName === toolName ? named : undefined;
}

function onlyUnanswered({ unanswered }: OldTurn): DraftCall | undefined {
  return unanswered.length === 1 ? unanswered[0] : undefined;
}

/** Keeps a question as evidence: it cannot be answered. */
export function addAskEvidence(
  draft: TranslationDraft,
  occurrence: string,
  { askId, toolName, reason, arguments: shown }: OldAsk,
  toolCallId: string | undefined,
): void {
  draft.addEvidence(occurrence, LegacyEvidenceKind.ASK, {
    ...{ toolName, text: reason, toolCallId },
    ...(askId === "" ? {} : { legacyId: askId }),
    ...(shown === undefined ? {} : { content: draft.json(shown) }),
  });
}

/** A call that waits for a consent, if everything that was written down of it fits the history. */
export function addPendingAuthorization(
  draft: TranslationDraft,
  place: Place,
  turn: OldTurn | undefined,
  parked: OldAuthorization,
): void {
  const { authorizationId, displayName, expireTimeMs } = parked;
  const waiting = turn && parkedCalls(turn, parked);
  const [first, ...deferred] = waiting ?? [];
  if (first === undefined || !draft.takeOldId(authorizationId)) {
    draft.addEvidence(place.occurrence, LegacyEvidenceKind.AUTHORIZATION, {
      ...{ legacyId: authorizationId || undefined, label: "pending", text: displayName },
      toolName: parked.call.toolName,
    });
    endTurn(draft, turn);
    return;
  }
  for (const [index, each] of (waiting ?? []).entries()) {
    each.call.state = ToolCallState.AWAITING_AUTHORIZATION;
    takeEffective(draft, each, [parked.call, ...parked.deferred][index]);
  }
  const value = create(AuthorizationSchema, {
    ...{
      authorizationId,
      origin: first.call.origin ?? {},
      displayName: cutText(displayName, NAME_BYTES),
    },
    ...{ toolCallId: first.call.toolCallId, state: AuthorizationState.PENDING },
    expireTime: timestampFromMs(expireTimeMs),
    deferredToolCallIds: deferred.map(({ call }) => call.toolCallId),
    runId: place.runId,
  });
  draft.records.push({ case: "authorization", value });
}

/** The parked call and those behind it: exactly the calls of the turn from the parked one on, none with a result. */
function parkedCalls(turn: OldTurn, { call, deferred }: OldAuthorization): DraftCall[] | undefined {
  if (turn.isAmbiguous) return undefined;
  const from = turn.calls.findIndex(({ old }) => isSameCall(call, old));
  const waiting = from === -1 ? [] : turn.calls.slice(from);
  const isExact =
    waiting.length === deferred.length + 1 &&
    waiting.every(isUnanswered) &&
    !turn.calls.slice(0, from).some(isUnanswered) &&
    deferred.every((each, index) => isSameDeferred(each, waiting[index + 1]?.old));
  return isExact ? waiting : undefined;
}

/** Whether two mentions are of one call, whatever its arguments became. */
function isSameCall(one: OldCall, other: OldCall): boolean {
  return (
    one.providerCallId === other.providerCallId &&
    one.toolName === other.toolName &&
    one.providerItemId === other.providerItemId
  );
}

function isSameDeferred(one: OldCall, other: OldCall | undefined): boolean {
  if (other === undefined || !isSameCall(one, other)) return false;
  const nothing = new Uint8Array(0);
  return isSameJson(one.arguments ?? nothing, other.arguments ?? nothing);
}

function isSameJson(one: Uint8Array, other: Uint8Array): boolean {
  if (equalBytes(one, other)) return true;
  const values = [one, other].map(jsonValue);
  return values.every((value) => value !== undefined) && isDeepStrictEqual(values[0], values[1]);
}

function jsonValue(data: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(data)) as unknown;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** What a call would be carried out with, where that was written down. */
function takeEffective(
  draft: TranslationDraft,
  { call }: DraftCall,
  written: OldCall | undefined,
): void {
  if (written?.arguments !== undefined) call.effective = draft.json(written.arguments);
}

/** Calls before the asked one may have been carried out already; those after it were not begun. */
function endEarlier(draft: TranslationDraft, turn: OldTurn, asked: DraftCall): void {
  for (const each of turn.calls.slice(0, turn.calls.indexOf(asked)).filter(isUnanswered)) {
    draft.end(each, ToolCallState.OUTCOME_UNKNOWN);
  }
}

/** Ends the calls of a turn that went on when the old system stopped: nobody knows whether they ran. */
export function endTurn(draft: TranslationDraft, turn: OldTurn | undefined): void {
  for (const each of turn?.unanswered ?? []) draft.end(each, ToolCallState.OUTCOME_UNKNOWN);
}
