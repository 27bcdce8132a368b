import { decodeCall, decodeParkedCall } from "./decode-parts.js";
import {
  elementsOf,
  firstOf,
  isText,
  required,
  requiredText,
  textIfFilled,
  textOf,
  timeMsOf,
} from "./field-values.js";
import type { JsonField } from "./json-field.js";
import type { OldAsk, OldAuthorization, OldGuardrail, OldProvenance } from "./old-session.js";

/** An ask, which snapshots and logs have in one encoding. */
export function decodeAsk(ask: JsonField): OldAsk {
  return {
    askId: textOf(ask.get("AskID")),
    toolName: textOf(ask.get("Tool")),
    arguments: ask.get("Args").bytes(),
    reason: textOf(ask.get("Reason")),
    ...decodeAskedCall(firstOf(ask, "call", "Call", "CallID")),
    guardrail: decodeGuardrail(ask.get("guardrail")),
    // `hook_originated` and `plan_originated` of older asks say too little to know who asked, and are not looked at.
    provenance: decodeProvenance(ask.get("origin")),
  };
}

/** What is asked about: an id, or the call itself. An ask with neither names no call. */
function decodeAskedCall(asked: JsonField): Pick<OldAsk, "call" | "providerCallId"> {
  if (asked.isAbsent || isText(asked)) {
    return { call: undefined, providerCallId: textIfFilled(asked) };
  }
  const call = decodeCall(asked);
  return { call, providerCallId: call.providerCallId };
}

function decodeGuardrail(guardrail: JsonField): OldGuardrail | undefined {
  if (guardrail.isAbsent) return undefined;
  return {
    reviewId: textOf(guardrail.get("ReviewID")),
    kind: textOf(guardrail.get("Kind")),
  };
}

/** Who asked. What is not said, or not in a known word, is unknown: it is never guessed. */
export function decodeProvenance(origin: JsonField): OldProvenance {
  const text = textOf(origin);
  switch (text) {
    case "permission":
    case "hook_guardrail":
    case "plan":
      return text;
    default:
      return "unknown";
  }
}

/** A parked turn of a snapshot. Its `binding` belongs to the old system's authorizer and is not looked at. */
export function decodeAuthorization(parked: JsonField): OldAuthorization {
  const authorization = required(parked.get("authorization"));
  const expiry = required(authorization.get("expires_at"));
  return {
    authorizationId: requiredText(authorization.get("id")),
    displayName: textOf(authorization.get("display_name")),
    expireTimeMs: timeMsOf(expiry) ?? expiry.fail("must be set"),
    call: decodeParkedCall(required(parked.get("call"))),
    deferred: elementsOf(parked.get("deferred")).map(decodeParkedCall),
  };
}
