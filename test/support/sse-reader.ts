import { fromJsonString } from "@bufbuild/protobuf";
import {
  WatchEventsResponseSchema,
  type WatchEventsResponse,
} from "../../gen/toolmark/v1/history_service_pb.js";

/** What one block of an event stream says. */
export type SseItem =
  | { readonly kind: "message"; readonly id: string; readonly message: WatchEventsResponse }
  | { readonly kind: "heartbeat"; readonly id: string }
  | {
      readonly kind: "refused";
      readonly reason: string;
      readonly metadata: Readonly<Record<string, string>>;
    };

export interface SseRequest {
  readonly httpAddress: string;
  readonly sessionId: string;
  readonly lastEventId?: string | undefined;
  readonly query?: string;
  readonly signal?: AbortSignal;
}

/** A stream is refused before it begins. */
export class SseRefused extends Error {
  constructor(
    readonly status: number,
    readonly body: string,
  ) {
    super(`HTTP ${status}: ${body}`);
  }
}

/** Reads a session's events as a browser does: an independent reader of the text format. */
export async function* readSse(request: SseRequest): AsyncGenerator<SseItem, void> {
  const { httpAddress, sessionId, lastEventId, query = "", signal } = request;
  const url = `http://${httpAddress}/v1/sessions/${encodeURIComponent(sessionId)}/events${query}`;
  const response = await fetch(url, {
    headers: {
      accept: "text/event-stream",
      ...(lastEventId ? { "last-event-id": lastEventId } : {}),
    },
    ...(signal === undefined ? {} : { signal }),
  });
  if (response.status !== 200 || response.body === null) {
    throw new SseRefused(response.status, await response.text());
  }
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of response.body as AsyncIterable<Uint8Array>) {
    text += decoder.decode(chunk, { stream: true });
    const blocks = text.split("\n\n");
    text = blocks.pop() ?? "";
    for (const block of blocks) yield itemOf(block);
  }
}

function itemOf(block: string): SseItem {
  const fields = new Map<string, string>();
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) fields.set(line.slice(0, colon), line.slice(colon + 1).replace(/^ /, ""));
  }
  const data = fields.get("data");
  const id = fields.get("id") ?? "";
  if (data === undefined) return { kind: "heartbeat", id };
  if (fields.get("event") === "refused") {
    const status = JSON.parse(data) as {
      details: { reason: string; metadata?: Record<string, string> }[];
    };
    const [info] = status.details;
    return { kind: "refused", reason: info?.reason ?? "", metadata: info?.metadata ?? {} };
  }
  return { kind: "message", id, message: fromJsonString(WatchEventsResponseSchema, data) };
}
