/**
 * What old files say, decoded and not interpreted. Names are those of the old system where they mean the same; ids and
 * texts are verbatim, open strings are kept whatever they say. `undefined` is a key that is absent or null.
 */

/** A call as a model made it. */
export interface OldCall {
  /** What the provider called it: repeated, or empty, in real histories. Private. */
  readonly providerCallId: string;
  /** Private. */
  readonly providerItemId: string | undefined;
  readonly toolName: string;
  /** Exact bytes. Absent if the old system kept none. */
  readonly arguments: Uint8Array | undefined;
}

export interface OldResult {
  /** The provider's id of the call. Private. */
  readonly providerCallId: string;
  readonly content: string;
  readonly isError: boolean;
  readonly parts: readonly OldPart[];
}

/** A part of a message or result. */
export interface OldPart {
  /** Of a result: `text`, `resource_link`, `structured`, or another text. Empty for an attachment of a message. */
  readonly blockKind: string;
  /** `image`, `audio`, or empty. */
  readonly kind: string;
  readonly mediaType: string;
  /** Absent if there is only a URL. */
  readonly data: Uint8Array | undefined;
  readonly url: string;
  /** Of a block of text, structured content or an embedded resource. */
  readonly text: string;
  /** Of a link to a resource. */
  readonly name: string;
  readonly title: string;
}

export interface OldMessage {
  /** `system`, `user`, `assistant`, `tool`, or what a later writer put there. */
  readonly role: string;
  readonly text: string;
  readonly calls: readonly OldCall[];
  readonly result: OldResult | undefined;
  readonly parts: readonly OldPart[];
  /** What the provider wants back beside text and calls. Private. */
  readonly replay: OldReplay;
}

/** What a provider wants back of an answer. Private. Each absent if it was not kept. */
export interface OldReplay {
  readonly reasoning: string | undefined;
  readonly phase: string | undefined;
  readonly reasoningItemId: string | undefined;
}

/** Who asked, as far as it was written down. Older booleans are told, never taken for one of the others. */
export type OldProvenance = "unknown" | "permission" | "hook_guardrail" | "plan";

export interface OldAsk {
  readonly askId: string;
  readonly toolName: string;
  /** What was shown: may be a projection of the call's arguments. Absent for a release. */
  readonly arguments: Uint8Array | undefined;
  readonly reason: string;
  /** Absent if the ask has no more of its call than an id, or nothing, as the oldest. */
  readonly call: OldCall | undefined;
  /** The provider's id of the call, whether it stands alone or in the call. Absent if none is named. Private. */
  readonly providerCallId: string | undefined;
  readonly guardrail: OldGuardrail | undefined;
  /** An origin that is absent, or none of the known ones, is unknown. */
  readonly provenance: OldProvenance;
}

export interface OldGuardrail {
  /** May be empty: a block of a configured hook that could be asked about has no review. */
  readonly reviewId: string;
  /** `action`, `result_release`, or what a later writer put there. */
  readonly kind: string;
}

/** A call that waits for a consent outside, with the later calls of its turn. */
export interface OldAuthorization {
  readonly authorizationId: string;
  readonly displayName: string;
  readonly expireTimeMs: number;
  /** As it would be carried out: its arguments may differ from those of the history. */
  readonly call: OldCall;
  readonly deferred: readonly OldCall[];
}

/** What a session works for. */
export interface OldRelationship {
  readonly parentSessionId: string | undefined;
  /** The provider's id of the delegating call in the parent. Private. */
  readonly providerCallId: string | undefined;
  readonly branchIndex: number | undefined;
  readonly teamId: string | undefined;
  readonly memberName: string | undefined;
}

/** A stored session: its history as a model is told it, and what it waits for. */
export interface OldSnapshot {
  readonly sessionId: string;
  /** `idle`, `running`, `awaiting`, `authorizing`, `completed`, `failed`, `cancelled`, or another text. */
  readonly state: string;
  readonly kind: string;
  readonly title: string;
  /** Absent in the oldest. */
  readonly createTimeMs: number | undefined;
  readonly relationship: OldRelationship;
  readonly messages: readonly OldMessage[];
  readonly pending: OldAsk | undefined;
  readonly authorization: OldAuthorization | undefined;
  readonly runId: string;
  /** Name, never an id of something at the provider. Absent if it was not kept. */
  readonly provider: string | undefined;
  readonly model: string | undefined;
}

/** A hook outcome as it was published. */
export interface OldHook {
  readonly phase: string;
  readonly toolName: string;
  /** `info`, `blocked`, `modified`, `advisory`, or another text. */
  readonly decision: string;
  /** The provider's id of the call, empty if there is none. Private. */
  readonly providerCallId: string;
  readonly review: OldReview | undefined;
}

/** A review as it was published. Every text is an open string. */
export interface OldReview {
  readonly reviewId: string;
  readonly job: string;
  readonly assessment: string;
  readonly inspection: string;
  readonly disposition: string;
  readonly reasonCode: string;
  readonly ruleId: string;
  readonly ruleOrigin: string;
  readonly concerns: readonly OldReference[];
  readonly sources: readonly OldReference[];
}

export interface OldReference {
  readonly ref: string;
  readonly category: string;
}

/** A verdict as it was received: evidence, never a permission. */
export interface OldApproval {
  readonly askId: string;
  /** `deny`, `allow_once`, `allow_always`, or another text. */
  readonly verdict: string;
  readonly toolName: string;
  /** The provider's id of the call. Private. */
  readonly providerCallId: string;
  readonly provenance: OldProvenance;
}

/** What became of an external consent, as an event told it. */
export interface OldAuthorizationEvent {
  readonly authorizationId: string;
  readonly displayName: string;
  readonly providerCallId: string;
  readonly expireTimeMs: number | undefined;
  readonly status: string;
}

/** One line of an event log. */
export interface OldLogRecord {
  /** Number of the line, from 1. */
  readonly line: number;
  readonly entry: OldEvent | OldGap;
}

/** A place where the old system knows that events are missing. */
export interface OldGap {
  readonly kind: "gap";
  readonly reason: string;
}

/** An event. Only the payload of its type is looked at, whatever else it carries. */
export interface OldEvent {
  readonly kind: "event";
  /** Open string, such as `tool.call`. */
  readonly type: string;
  /** Of the run, restarts with it and has holes: no order across runs. */
  readonly seq: number;
  readonly turn: number;
  readonly runId: string;
  readonly text: string;
  readonly payload: OldPayload;
}

/** What an event is about. */
export type OldPayload =
  | { readonly of: "call"; readonly call: OldCall }
  | { readonly of: "result"; readonly result: OldResult }
  | { readonly of: "ask"; readonly ask: OldAsk }
  | { readonly of: "retraction"; readonly askId: string }
  | { readonly of: "approval"; readonly approval: OldApproval }
  | { readonly of: "hook"; readonly hook: OldHook }
  | { readonly of: "authorization"; readonly authorization: OldAuthorizationEvent }
  | { readonly of: "prompt"; readonly text: string; readonly parts: readonly OldPart[] }
  | { readonly of: "archive"; readonly replaced: readonly OldMessage[] }
  | { readonly of: "end"; readonly stopReason: string }
  | { readonly of: "title"; readonly title: string }
  /** Text that a model gave piece by piece, and where its turn begins: see the event's type and text. */
  | { readonly of: "text" }
  /** A type that is not known, or that says nothing about calls. */
  | { readonly of: "other" };

/** An event log. */
export interface OldLog {
  /** 16 hexadecimal characters. Absent in logs of the oldest writers. */
  readonly generation: string | undefined;
  readonly records: readonly OldLogRecord[];
}

/** What there is of one session. */
export interface OldSources {
  /** A snapshot says it too; a log does not. */
  readonly sessionId: string;
  readonly snapshot: OldSnapshot | undefined;
  readonly log: OldLog | undefined;
}
