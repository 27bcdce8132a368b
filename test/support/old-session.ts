import { createHash } from "node:crypto";
import { LegacySourceFormat } from "../../gen/toolmark/v1/legacy_pb.js";

/** A small session of the older system, as an import of it sends it: one call with its result. */
export function oldSession(sessionId: string) {
  return importOf(sessionId, oldSnapshot(sessionId));
}

/** The same as its file has it. */
export function oldSnapshot(sessionId: string): object {
  const call = { ID: "call_1", Name: "read", Args: { path: "notes.txt" } };
  return {
    ...{ id: sessionId, state: "completed", kind: "main" },
    messages: [
      { role: "user", text: "what do the notes say?" },
      { role: "assistant", tool_calls: [call] },
      { role: "tool", tool_result: { CallID: "call_1", Content: "milk", IsError: false } },
    ],
  };
}

/** An import of a snapshot in one request, without its request id. */
export function importOf(sessionId: string, snapshot: object) {
  const data = Buffer.from(JSON.stringify(snapshot));
  const format = LegacySourceFormat.SNAPSHOT;
  const sha256 = createHash("sha256").update(data).digest();
  return {
    sessionId,
    sources: [{ format, sizeBytes: BigInt(data.length), sha256 }],
    parts: [{ format, offsetBytes: 0n, data }],
  };
}
