import type { Ask } from "../../gen/toolmark/v1/ask_pb.js";
import type { Authorization } from "../../gen/toolmark/v1/authorization_pb.js";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import type { Hook } from "../../gen/toolmark/v1/hook_pb.js";
import type { Receipt } from "../../gen/toolmark/v1/receipt_pb.js";
import type { Session } from "../../gen/toolmark/v1/session_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { allAsks } from "./asking.js";
import type { Clients } from "./service.js";

/** Everything that a session shows. */
export interface ReadBack {
  readonly session: Session;
  /** As listed. */
  readonly calls: readonly ToolCall[];
  /** Each as read by its id, in the same order. */
  readonly callsById: readonly ToolCall[];
  readonly hooks: readonly Hook[];
  /** In the order of their states, then the oldest first. */
  readonly asks: readonly Ask[];
  readonly receipts: readonly Receipt[];
  readonly authorizations: readonly Authorization[];
  readonly events: readonly Event[];
  /** The bytes of every body that an event refers to, by `body_ref`. */
  readonly bodies: ReadonlyMap<string, Buffer>;
}

interface Page {
  readonly nextPageToken: string;
}

/** All entries of a list, page by page. */
async function allOf<P extends Page, Entry>(
  readPage: (pageToken: string) => Promise<P>,
  entriesOf: (page: P) => readonly Entry[],
): Promise<Entry[]> {
  const entries: Entry[] = [];
  let pageToken = "";
  do {
    const page = await readPage(pageToken);
    entries.push(...entriesOf(page));
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return entries;
}

/** Reads a session in pages of the given size. */
export async function readBack(
  clients: Clients,
  sessionId: string,
  pageSize: number,
): Promise<ReadBack> {
  const { sessions, history, approvals } = clients;
  const { session } = await sessions.getSession({ sessionId });
  if (session === undefined) throw new Error(`no session ${sessionId}`);
  const page = (pageToken: string) => ({ sessionId, pageSize, pageToken });
  const calls = await allOf(
    (token) => history.listToolCalls(page(token)),
    ({ toolCalls }) => toolCalls,
  );
  const hooks = await allOf(
    (token) => history.listHooks(page(token)),
    (reply) => reply.hooks,
  );
  const receipts = await allOf(
    (token) => approvals.listReceipts(page(token)),
    (reply) => reply.receipts,
  );
  const authorizations = await allOf(
    (token) => history.listAuthorizations(page(token)),
    (reply) => reply.authorizations,
  );
  const asks = await allAsks(clients, sessionId);
  const events = await allOf(
    (token) => history.listEvents(page(token)),
    (reply) => reply.events,
  );
  const callsById: ToolCall[] = [];
  for (const { toolCallId } of calls) {
    const { toolCall } = await history.getToolCall({ sessionId, toolCallId });
    if (toolCall !== undefined) callsById.push(toolCall);
  }
  const bodies = new Map<string, Buffer>();
  for (const bodyRef of new Set(events.flatMap(bodiesOf).map((body) => body.bodyRef))) {
    const chunks: Uint8Array[] = [];
    for await (const { chunk } of history.readBody({ sessionId, bodyRef })) chunks.push(chunk);
    bodies.set(bodyRef, Buffer.concat(chunks));
  }
  const settled = { asks, receipts, authorizations };
  return { session, calls, callsById, hooks, ...settled, events, bodies };
}

function bodiesOf({ record }: Event): Body[] {
  const carried = record?.record;
  if (carried?.case === "ask") {
    // What is held stays with the harness: only the body of an ACTION ask is stored.
    const { presented } = carried.value;
    return presented === undefined || presented.bodyRef === "" ? [] : [presented];
  }
  if (carried?.case === "message") return [carried.value.content].flatMap((body) => body ?? []);
  if (carried?.case !== "toolCall") return [];
  const { proposed, effective, result } = carried.value;
  return [proposed, effective, result?.content].flatMap((body) => body ?? []);
}
