/** What a client of Toolmark uses: the watch of a session, and what puts together what it gives. See docs/client.md. */
export {
  Conversation,
  type ConversationOptions,
  type ConversationView,
  type EvidenceView,
  type RecordsRead,
  type SessionView,
} from "./conversation.js";
export type { AskView } from "./ask-standing.js";
export type { Card, DelegatedSession } from "./conversation-cards.js";
export type { Notice } from "./conversation-notices.js";
export type { Offer, Prompt } from "./conversation-prompts.js";
export type { ShownProvisional } from "./provisional-text.js";
export type { ReviewDetail, ReviewDetailRequest, ReviewDetailState } from "./review-details.js";
export type { ReviewFinding, Severity } from "./review-finding.js";
export type { ConflictReason } from "./revised-records.js";
export type { Attachment, Evidence } from "../domain/attachment.js";
export type { RevisedRecord } from "../domain/merge-law.js";
export { watchEvents, type WatchedEvents, type WatchOptions } from "./watch-events.js";
