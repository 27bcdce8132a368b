import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { SpendState } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunState } from "../../gen/toolmark/v1/run_pb.js";
import { bodyRef } from "./identity.js";
import { mapBodies } from "./record-bodies.js";

type AnyRecord = EventRecord["record"];

/** Whether a fork copies a record: what is settled, and nothing that could still be answered, spent or ended. */
export function isCopied(record: AnyRecord): boolean {
  switch (record.case) {
    case "run":
      return record.value.state !== RunState.ACTIVE;
    case "ask":
      return record.value.state !== AskState.OPEN;
    case "receipt":
      return record.value.spendState !== SpendState.UNSPENT;
    case "authorization":
      return record.value.state !== AuthorizationState.PENDING;
    case "toolCall":
      return record.value.result !== undefined;
    case "turn":
    case "message":
    case "hook":
    case "legacyEvidence":
      return true;
    default:
      return false;
  }
}

/**
 * A record as the fork has it: id, origin and revision stay. Its bodies are the fork's own, and a call names the
 * source.
 */
export function inheritedRecord(
  record: AnyRecord,
  forkSessionId: string,
  sourceSessionId: string,
): AnyRecord {
  const own = mapBodies(record, (body) =>
    body.bodyRef === "" ? body : { ...body, bodyRef: bodyRef(forkSessionId, body.sha256) },
  );
  if (own.case !== "toolCall") return own;
  return { ...own, value: { ...own.value, inheritedFromSessionId: sourceSessionId } };
}
