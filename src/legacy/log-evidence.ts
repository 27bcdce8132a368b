import { LegacyEvidenceKind } from "../../gen/toolmark/v1/legacy_pb.js";
import type { OldApproval, OldAuthorizationEvent, OldMessage } from "./old-session.js";
import type { TranslationDraft } from "./translation-draft.js";

/** A verdict that was given. It allows nothing. */
export function addApprovalEvidence(
  draft: TranslationDraft,
  occurrence: string,
  { askId, verdict, toolName }: OldApproval,
  toolCallId: string | undefined,
): void {
  draft.addEvidence(occurrence, LegacyEvidenceKind.APPROVAL, {
    ...{ toolName, label: verdict, toolCallId, legacyId: filled(askId) },
  });
}

export function addRetractionEvidence(
  draft: TranslationDraft,
  occurrence: string,
  askId: string,
): void {
  draft.addEvidence(occurrence, LegacyEvidenceKind.RETRACTION, { legacyId: filled(askId) });
}

/** What became of an external consent. Which calls would wait for it, a log does not say. */
export function addAuthorizationEvidence(
  draft: TranslationDraft,
  occurrence: string,
  { authorizationId, displayName, status }: OldAuthorizationEvent,
  toolCallId: string | undefined,
): void {
  draft.addEvidence(occurrence, LegacyEvidenceKind.AUTHORIZATION, {
    ...{ label: status, text: displayName, toolCallId, legacyId: filled(authorizationId) },
  });
}

/** How much was archived. What it was, the log has told already. */
export function addArchiveEvidence(
  draft: TranslationDraft,
  occurrence: string,
  replaced: readonly OldMessage[],
): void {
  const calls = replaced.reduce((sum, message) => sum + message.calls.length, 0);
  const label = `${counted(replaced.length, "message")}, ${counted(calls, "tool call")}`;
  draft.addEvidence(occurrence, LegacyEvidenceKind.ARCHIVE, { label });
}

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}

function filled(id: string): string | undefined {
  return id === "" ? undefined : id;
}
