import { toJsonString } from "@bufbuild/protobuf";
import {
  WatchEventsResponseSchema,
  type WatchEventsResponse,
} from "../../gen/toolmark/v1/history_service_pb.js";

/** The type of the last event of a stream that is refused or ended by the server; its data is a google.rpc.Status. */
export const REFUSED_EVENT = "refused";

/**
 * A message of WatchEvents as Server-Sent Events carry it: the cursor is the id, the data the message in protobuf's
 * JSON. A heartbeat is a comment; its id moves the reader's cursor without an event.
 */
export function sseText(message: WatchEventsResponse): string {
  const { phase, cursor } = message;
  if (phase === "heartbeat") return `: heartbeat\nid: ${cursor}\n\n`;
  return `id: ${cursor}\ndata: ${toJsonString(WatchEventsResponseSchema, message)}\n\n`;
}

/** The last event of a stream. `statusJson` has no line breaks. */
export function sseRefusal(statusJson: string): string {
  return `event: ${REFUSED_EVENT}\ndata: ${statusJson}\n\n`;
}
