import { decodeAsk, decodeProvenance } from "./decode-asks.js";
import {
  decodeCall,
  decodeCallReference,
  decodeLogMessages,
  decodeParts,
  decodeResult,
} from "./decode-parts.js";
import {
  elementsOf,
  firstOf,
  isText,
  required,
  requiredText,
  textIfThere,
  textOf,
  timeMsOf,
} from "./field-values.js";
import type { JsonField } from "./json-field.js";
import type { OldEvent, OldHook, OldPayload, OldReference, OldReview } from "./old-session.js";

type Decode = (event: JsonField) => OldPayload;

const TEXT: Decode = () => ({ of: "text" });

/** For each type that says something about calls or texts: how its payload is read. Other payloads are null. */
const PAYLOADS: ReadonlyMap<string, Decode> = new Map([
  ["tool.call", (event) => ({ of: "call", call: decodeCall(payloadOf(event, "ToolCall")) })],
  [
    "tool.result",
    (event) => ({ of: "result", result: decodeResult(payloadOf(event, "ToolResult")) }),
  ],
  ["permission.ask", (event) => ({ of: "ask", ask: decodeAsk(payloadOf(event, "Ask")) })],
  [
    "permission.retract",
    (event) => ({ of: "retraction", askId: textOf(payloadOf(event, "Ask").get("AskID")) }),
  ],
  ["approval", (event) => decodeApproval(payloadOf(event, "Approval"))],
  ["hook", (event) => ({ of: "hook", hook: decodeHook(payloadOf(event, "Hook")) })],
  ["authorization.required", decodeAuthorizationEvent],
  ["authorization.resolved", decodeAuthorizationEvent],
  ["user_prompt", decodePrompt],
  [
    "compaction.archive",
    (event) => ({
      of: "archive",
      replaced: decodeLogMessages(payloadOf(event, "CompactionArchive").get("Replaced")),
    }),
  ],
  ["result", (event) => decodeEnd(event.get("Result"))],
  ["session.title", (event) => decodeTitle(event.get("Title"))],
  ["turn.start", TEXT],
  ["message.delta", TEXT],
] satisfies [string, Decode][]);

/** An event of a log. Of a type that is not known, only what every event has is looked at. */
export function decodeEvent(event: JsonField): OldEvent {
  const type = requiredText(event.get("Type"));
  return {
    kind: "event",
    type,
    seq: event.get("Seq").count() ?? 0,
    turn: event.get("Turn").count() ?? 0,
    runId: textOf(event.get("RunID")),
    text: textOf(event.get("Text")),
    payload: PAYLOADS.get(type)?.(event) ?? { of: "other" },
  };
}

function payloadOf(event: JsonField, key: string): JsonField {
  return required(event.get(key));
}

function decodeApproval(approval: JsonField): OldPayload {
  return {
    of: "approval",
    approval: {
      askId: textOf(approval.get("AskID")),
      verdict: textOf(approval.get("Verdict")),
      toolName: textOf(approval.get("Tool")),
      providerCallId: decodeCallReference(approval.get("Call")),
      provenance: decodeProvenance(approval.get("Origin")),
    },
  };
}

function decodeHook(hook: JsonField): OldHook {
  const review = hook.get("Guardrail");
  return {
    phase: textOf(hook.get("Phase")),
    toolName: textOf(hook.get("Tool")),
    decision: textOf(hook.get("Decision")),
    providerCallId: textOf(hook.get("CallID")),
    review: review.isAbsent ? undefined : decodeReview(review),
  };
}

function decodeReview(review: JsonField): OldReview {
  return {
    reviewId: textOf(review.get("ReviewID")),
    job: textOf(review.get("Job")),
    assessment: textOf(review.get("Assessment")),
    inspection: textOf(review.get("Inspection")),
    disposition: textOf(review.get("Disposition")),
    reasonCode: textOf(review.get("ReasonCode")),
    ruleId: textOf(review.get("RuleID")),
    ruleOrigin: textOf(review.get("RuleOrigin")),
    concerns: decodeReferences(review.get("Concerns")),
    sources: decodeReferences(review.get("Sources")),
  };
}

function decodeReferences(references: JsonField): OldReference[] {
  return elementsOf(references).map((reference) => ({
    ref: textOf(reference.get("Ref")),
    category: textOf(reference.get("Category")),
  }));
}

function decodeAuthorizationEvent(event: JsonField): OldPayload {
  const authorization = payloadOf(event, "Authorization");
  return {
    of: "authorization",
    authorization: {
      authorizationId: textOf(authorization.get("AuthorizationID")),
      displayName: textOf(authorization.get("DisplayName")),
      providerCallId: decodeCallReference(authorization.get("Call")),
      expireTimeMs: timeMsOf(authorization.get("ExpiresAt")),
      status: textOf(authorization.get("Status")),
    },
  };
}

function decodePrompt(event: JsonField): OldPayload {
  const prompt = event.get("UserPrompt");
  return {
    of: "prompt",
    text: textIfThere(prompt.get("Text")) ?? textOf(event.get("Text")),
    parts: decodeParts(prompt.get("Parts")),
  };
}

function decodeEnd(result: JsonField): OldPayload {
  return { of: "end", stopReason: textOf(firstOf(result, "Stop", "StopReason")) };
}

function decodeTitle(title: JsonField): OldPayload {
  return { of: "title", title: textOf(isText(title) ? title : title.get("Title")) };
}
