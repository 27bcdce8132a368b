import { create } from "@bufbuild/protobuf";
import {
  WatchEventsRequestSchema,
  type WatchEventsRequest,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { refuseField, type Refusal } from "../domain/refusal.js";
import type { HttpRequest } from "./http.js";

const PATH = /^\/v1\/sessions\/([^/]+)\/events$/;
const BOOLEANS: Readonly<Record<string, boolean>> = { true: true, false: false, "": true };

/** Whether a path is that of a session's event stream, whatever the session. */
export function isEventsPath(url: string | undefined): boolean {
  return PATH.test(url?.split("?", 1)[0] ?? "");
}

/**
 * The request for a session's events as a browser makes it: the session in the path, `include_descendants` and `kinds`
 * in the query, the cursor in the header Last-Event-ID, or in the query for the first connection.
 */
export function watchRequestOf({ url = "", headers }: HttpRequest): WatchEventsRequest | Refusal {
  const [path = "", query = ""] = url.split("?", 2);
  const sessionId = decoded(PATH.exec(path)?.[1] ?? "");
  if (sessionId === undefined) return refuseField("session_id", "must be percent-encoded UTF-8");
  const parameters = new URLSearchParams(query);
  const unknown = [...parameters.keys()].find((name) => !PARAMETERS.has(name));
  if (unknown !== undefined) return refuseField("query", "has a parameter that is not known");
  const includeDescendants = BOOLEANS[parameters.get("include_descendants") ?? "false"];
  if (includeDescendants === undefined) {
    return refuseField("include_descendants", "must be true or false");
  }
  const lastEventId = headers["last-event-id"];
  const cursor = typeof lastEventId === "string" ? lastEventId : (parameters.get("cursor") ?? "");
  const kinds = parameters.getAll("kinds");
  return create(WatchEventsRequestSchema, { sessionId, cursor, includeDescendants, kinds });
}

const PARAMETERS: ReadonlySet<string> = new Set(["cursor", "include_descendants", "kinds"]);

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    if (error instanceof URIError) return undefined;
    throw error;
  }
}
