import { createHash } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { LegacySourceFormat } from "../gen/toolmark/v1/legacy_pb.js";
import {
  ImportSessionRequestSchema,
  type ImportSessionRequest,
} from "../gen/toolmark/v1/session_service_pb.js";

const TURNS = 4;

/** An import of a small session of the older system: a few turns of two calls, each with its result. */
export function oldSessionImport(index: number): ImportSessionRequest {
  const sessionId = `old-session-${index}`;
  const messages = [{ role: "user", text: `Tidy folder ${index}.` }, ...turns(index)];
  const snapshot = { id: sessionId, state: "completed", kind: "main", messages };
  const data = Buffer.from(JSON.stringify(snapshot));
  const format = LegacySourceFormat.SNAPSHOT;
  const sha256 = createHash("sha256").update(data).digest();
  return create(ImportSessionRequestSchema, {
    requestId: `import ${index}`,
    sessionId,
    sources: [{ format, sizeBytes: BigInt(data.length), sha256 }],
    parts: [{ format, offsetBytes: 0n, data }],
  });
}

function turns(index: number): object[] {
  return Array.from({ length: TURNS }, (_, turn) => {
    const ids = [`call_${turn}_a`, `call_${turn}_b`];
    const calls = ids.map((ID) => ({
      ...{ ID, Name: "read_file", Args: { path: `/home/${index}/${ID}.txt` } },
    }));
    const results = ids.map((CallID) => ({
      role: "tool",
      tool_result: { CallID, Content: `Contents of ${CallID} in ${index}.`, IsError: false },
    }));
    return [{ role: "assistant", text: `Turn ${turn}.`, tool_calls: calls }, ...results];
  }).flat();
}
