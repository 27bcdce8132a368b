import { toJson, type DescMessage, type JsonValue, type MessageShape } from "@bufbuild/protobuf";
import { ListAsksResponseSchema } from "../../gen/toolmark/v1/approval_service_pb.js";
import {
  ListAuthorizationsResponseSchema,
  ListEventsResponseSchema,
  ListHooksResponseSchema,
  ListToolCallsResponseSchema,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { DelegationKind, SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { GetSessionResponseSchema } from "../../gen/toolmark/v1/session_service_pb.js";
import { connectNodeClient } from "../support/any-clients.js";
import { askAbout, park } from "../support/asking.js";
import {
  acceptCall,
  beginRun,
  complete,
  freshRequestId,
  given,
  openRun,
  type OpenRun,
} from "../support/conversation.js";
import { doMainJob } from "../support/main-job.js";
import { transportOf, type Clients, type TestService } from "../support/service.js";

/** What a store is made to hold before it is frozen: one session that is over, one in the middle of things. */
export async function writeFrozenHistory(service: TestService): Promise<readonly string[]> {
  const { grpcAddress, httpAddress } = service;
  const done = await doMainJob(connectNodeClient(transportOf("grpc", grpcAddress, httpAddress)));
  const clients = service.clients();
  const open = await openRun(clients);
  const farAway = { expireTime: { seconds: 4_102_444_800n, nanos: 0 } };
  await askAbout(clients, open, farAway);
  const parked = await acceptCall(clients, open);
  await park(clients, open, parked.toolCallId);
  return [done.sessionId, open.sessionId];
}

const LEVELS = 3;

interface Tree {
  /** From the root downwards. */
  readonly tree: readonly string[];
  readonly copy: string;
}

/** Beside it: sessions that work for one another, each with an open ask, and a copy of their root, partly archived. */
export async function writeTree(clients: Clients): Promise<Tree> {
  let run = await openRun(clients);
  const sessionIds = [run.sessionId];
  await complete(clients, run, (await acceptCall(clients, run)).toolCallId);
  for (let level = 0; level <= LEVELS; level += 1) {
    await askAbout(clients, run);
    if (level === LEVELS) break;
    run = await delegate(clients, run);
    sessionIds.push(run.sessionId);
  }
  const [sessionId = ""] = sessionIds;
  const archive = { sessionId, throughSequence: 4n, summary: "what came before" };
  await clients.sessions.compactSession({ ...archive, requestId: freshRequestId() });
  const source = { sessionId, requestId: freshRequestId() };
  const { session } = await clients.sessions.forkSession(source);
  return { tree: sessionIds, copy: given(session, "session").sessionId };
}

async function delegate(clients: Clients, run: OpenRun): Promise<OpenRun> {
  const { toolCallId: parentToolCallId } = await acceptCall(clients, run);
  const work = { parentSessionId: run.sessionId, parentToolCallId };
  const { session } = await clients.sessions.createSession({
    ...{ requestId: freshRequestId(), kind: SessionKind.SUBAGENT },
    delegation: { ...work, kind: DelegationKind.SUBAGENT },
  });
  return beginRun(clients, given(session, "session").sessionId);
}

function json<Desc extends DescMessage>(schema: Desc, message: MessageShape<Desc>): JsonValue {
  return toJson(schema, message);
}

/** Everything that does not depend on the secret, which is not frozen. */
export async function readFrozenHistory(
  { sessions, history, approvals }: Clients,
  sessionIds: readonly string[],
): Promise<Record<string, JsonValue>> {
  const read: Record<string, JsonValue> = {};
  for (const sessionId of sessionIds) {
    const asks = await approvals.listAsks({ sessionId });
    for (const shown of asks.asks) shown.answerToken = "";
    read[sessionId] = {
      session: json(GetSessionResponseSchema, await sessions.getSession({ sessionId })),
      calls: json(ListToolCallsResponseSchema, await history.listToolCalls({ sessionId })),
      hooks: json(ListHooksResponseSchema, await history.listHooks({ sessionId })),
      authorizations: json(
        ListAuthorizationsResponseSchema,
        await history.listAuthorizations({ sessionId }),
      ),
      events: json(ListEventsResponseSchema, await history.listEvents({ sessionId })),
      asks: json(ListAsksResponseSchema, asks),
    };
  }
  return read;
}
