import { decodeAsk, decodeAuthorization } from "./decode-asks.js";
import { decodeSnapshotMessages } from "./decode-parts.js";
import { decodeEmbedded } from "./embedded.js";
import { required, requiredText, textIfFilled, textOf, timeMsOf } from "./field-values.js";
import { JsonField } from "./json-field.js";
import { orMalformed, type Malformed } from "./malformed.js";
import type { OldRelationship, OldSnapshot } from "./old-session.js";
import { sourceText } from "./source-text.js";

const CURRENT_FILE = "sessnap-current-json/2";
const DRIVER_ENVELOPE = "sessnap-json/1";

const SESSION_ID_MAX_BYTES = 512;
const CONTROL = /\p{Cc}/u;
const toUtf8 = new TextEncoder();

/**
 * Reads a stored session of any generation: on its own, in the wrapper of the file store, or in a driver's envelope.
 * The old system added keys without a new version, so keys that are not known are passed over. Keys are taken in
 * exactly the case in which they were written. One of another session than `ofSession` is malformed.
 */
export function decodeSnapshot(bytes: Uint8Array, ofSession?: string): OldSnapshot | Malformed {
  return orMalformed(() =>
    unwrap(JsonField.parse(sourceText(bytes)), (session) => {
      const decoded = decodeSession(session);
      const isOther = ofSession !== undefined && decoded.sessionId !== ofSession;
      return isOther ? session.get("id").fail("is the id of another session") : decoded;
    }),
  );
}

function unwrap(root: JsonField, decode: (session: JsonField) => OldSnapshot): OldSnapshot {
  const format = root.get("format");
  if (!format.isAbsent) {
    if (format.string() !== DRIVER_ENVELOPE) format.fail("is not a format that can be read");
    return decodeEmbedded(root.get("payload"), decode);
  }
  const version = root.get("v");
  if (version.isAbsent) return decode(root);
  if (version.string() !== CURRENT_FILE) version.fail("is not a version that can be read");
  return decode(required(root.get("snapshot")));
}

function decodeSession(session: JsonField): OldSnapshot {
  const pending = session.get("pending");
  const authorization = session.get("pending_authorization");
  return {
    sessionId: decodeSessionId(session.get("id")),
    state: textOf(session.get("state")),
    kind: textOf(session.get("kind")),
    title: textOf(session.get("title")),
    createTimeMs: timeMsOf(session.get("created_at")),
    relationship: decodeRelationship(session.get("relationship")),
    messages: decodeSnapshotMessages(session.get("messages")),
    pending: pending.isAbsent ? undefined : decodeAsk(pending),
    authorization: authorization.isAbsent ? undefined : decodeAuthorization(authorization),
    runId: textOf(session.get("run_id")),
    provider: textIfFilled(session.get("provider_id")),
    model: textIfFilled(session.get("model_id")),
  };
}

function decodeSessionId(field: JsonField): string {
  const id = requiredText(field);
  const lengthBytes = toUtf8.encode(id).length;
  if (lengthBytes < 1 || lengthBytes > SESSION_ID_MAX_BYTES || CONTROL.test(id)) {
    field.fail(`must be 1 to ${SESSION_ID_MAX_BYTES} bytes without control characters`);
  }
  return id;
}

function decodeRelationship(relationship: JsonField): OldRelationship {
  return {
    parentSessionId: textIfFilled(relationship.get("parent_session_id")),
    providerCallId: textIfFilled(relationship.get("call_id")),
    branchIndex: relationship.get("branch_index").count(),
    teamId: textIfFilled(relationship.get("team_id")),
    memberName: textIfFilled(relationship.get("member_name")),
  };
}
