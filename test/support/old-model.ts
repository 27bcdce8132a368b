/** A tool call as the model asked for it. `argumentsText` is JSON on one line; null is written as `null`. */
export interface OldCall {
  readonly providerCallId: string;
  readonly itemId?: string | undefined;
  readonly name: string;
  readonly argumentsText: string | null;
}

/** What an assistant message may carry beside its calls. `fragments`: how many deltas streamed it. */
interface OldSpoken {
  readonly text: string;
  readonly reasoning?: string | undefined;
  readonly phase?: string | undefined;
  readonly reasoningItemId?: string | undefined;
  readonly fragments?: number | undefined;
}

export interface OldMessage extends OldSpoken {
  readonly kind: "message";
  readonly role: "system" | "user" | "assistant";
}

/** A turn with calls. The last `undispatched` of them never reached the log. */
export interface OldTurn extends OldSpoken {
  readonly kind: "turn";
  readonly calls: readonly OldCall[];
  readonly dispatch: "serial" | "batch";
  readonly undispatched: number;
}

export interface OldResult {
  readonly kind: "result";
  readonly providerCallId: string;
  readonly content: string;
  readonly isError: boolean;
}

/** What a snapshot keeps of a history, one message each. */
export type OldEntry = OldMessage | OldTurn | OldResult;

export interface OldReference {
  readonly ref: string;
  readonly category: string;
}

export interface OldReview {
  readonly reviewId: string;
  readonly job: string;
  readonly assessment: string;
  readonly inspection: string;
  readonly disposition: string;
  readonly reasonCode: string;
  readonly concerns: readonly OldReference[];
}

/** An outcome of a hook. `beforeCard`: it was logged before the `tool.call` that it is about. */
export interface OldHook {
  readonly kind: "hook";
  readonly phase: string;
  readonly tool: string;
  readonly decision: string;
  readonly providerCallId: string;
  readonly text: string;
  readonly review?: OldReview | undefined;
  readonly beforeCard: boolean;
}

export interface OldGuardrail {
  readonly reviewId: string;
  readonly kind: "action" | "result_release";
  readonly grantDigest: string;
  readonly sessionOnly: boolean;
  readonly repeatAvailable: boolean;
}

export type OldOrigin = "" | "permission" | "hook_guardrail" | "plan";

/** An ask. Files carry `call` only if `namesCall` and the id is not empty, `origin` only if not empty. */
export interface OldAsk {
  readonly askId: string;
  readonly tool: string;
  readonly argumentsText: string | null;
  readonly reason: string;
  readonly providerCallId: string;
  readonly namesCall: boolean;
  readonly guardrail?: OldGuardrail | undefined;
  readonly origin?: OldOrigin | undefined;
  readonly hookOriginated?: boolean | undefined;
  readonly planOriginated?: boolean | undefined;
}

/** A receipt. `origin` undefined: written before receipts had one. */
export interface OldApproval {
  readonly kind: "approval";
  readonly askId: string;
  readonly verdict: string;
  readonly tool: string;
  readonly providerCallId: string;
  readonly origin?: OldOrigin | undefined;
}

export interface OldAuthorization {
  readonly kind: "authorization";
  readonly authorizationId: string;
  readonly displayName: string;
  readonly providerCallId: string;
  readonly expiresAt: string;
  readonly status: string;
}

/**
 * A compaction: a snapshot keeps the summary and the last `kept` messages of its context; the log
 * archives that context, or all messages since the session began.
 */
export interface OldArchive {
  readonly kind: "archive";
  readonly summary: string;
  readonly kept: number;
  readonly reach: "context" | "session";
}

/** What only a log shows. A restart begins `Seq` again within the run. */
export type OldRecord =
  | OldHook
  | OldApproval
  | OldAuthorization
  | { readonly kind: "ask"; readonly ask: OldAsk }
  | { readonly kind: "retraction"; readonly askId: string }
  | { readonly kind: "run"; readonly runId: string }
  | { readonly kind: "runEnd"; readonly stop: string }
  | { readonly kind: "restart" }
  | { readonly kind: "gap"; readonly reason: string }
  | { readonly kind: "unknown"; readonly type: string; readonly text: string };

export type OldItem = OldEntry | OldArchive | OldRecord;

/** A turn parked for an external authorization: the effective call and its later siblings. */
export interface OldParked {
  readonly authorizationId: string;
  readonly displayName: string;
  readonly binding: string;
  readonly expiresAt: string;
  readonly call: OldCall;
  readonly deferred: readonly OldCall[];
}

export interface OldRelationship {
  readonly scheduleName?: string;
  readonly originSessionId?: string;
  readonly originIncarnation?: string;
  readonly parentSessionId?: string;
  readonly parentIncarnation?: string;
  readonly callId?: string;
  readonly branchIndex?: number;
  readonly teamId?: string;
  readonly memberName?: string;
  readonly debugTargetId?: string;
  readonly debugTargetIncarnation?: string;
}

export type OldState =
  "idle" | "running" | "awaiting" | "authorizing" | "completed" | "failed" | "cancelled";

/** An old session. Empty `kind` and `title` are written by leaving them out; `runId` is its last run. */
export interface OldModel {
  readonly id: string;
  readonly kind: string;
  readonly relationship?: OldRelationship | undefined;
  readonly title: string;
  readonly state: OldState;
  readonly createdAt: string;
  readonly runId: string;
  readonly items: readonly OldItem[];
  readonly pendingAsk?: OldAsk | undefined;
  readonly parked?: OldParked | undefined;
  readonly tokens: number;
  readonly permanentFailure: boolean;
}

const ENTRY_KINDS: ReadonlySet<string> = new Set<OldEntry["kind"]>(["message", "turn", "result"]);

/** Whether an item is a message of the conversation. */
export function isEntry(item: OldItem): item is OldEntry {
  return ENTRY_KINDS.has(item.kind);
}
