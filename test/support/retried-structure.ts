import { toBinary } from "@bufbuild/protobuf";
import { DelegationKind, SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import {
  CompactSessionResponseSchema,
  CreateSessionResponseSchema,
  EndSessionResponseSchema,
  ForkSessionResponseSchema,
  ImportSessionResponseSchema,
} from "../../gen/toolmark/v1/session_service_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { openAsk } from "./asking.js";
import {
  acceptCall,
  beginRun,
  complete,
  freshRequestId,
  given,
  openRun,
  type OpenRun,
} from "./conversation.js";
import { oldSession } from "./old-session.js";
import type { Retried, Way } from "./retried-requests.js";
import type { Clients } from "./service.js";

/** A request to make a session that works for a call. */
function delegation({ sessionId }: OpenRun, { toolCallId }: ToolCall) {
  const kind = DelegationKind.SUBAGENT;
  const work = { parentSessionId: sessionId, parentToolCallId: toolCallId, kind };
  return { kind: SessionKind.SUBAGENT, delegation: work };
}

export function endSession(sessionId: string, cancelDescendants: boolean): Way {
  return async ({ sessions }, requestId) => {
    const reply = await sessions.endSession({ sessionId, requestId, cancelDescendants });
    return toBinary(EndSessionResponseSchema, reply);
  };
}

async function delegate(clients: Clients, run: OpenRun, call: ToolCall): Promise<OpenRun> {
  const request = { ...delegation(run, call), requestId: freshRequestId() };
  const { session } = await clients.sessions.createSession(request);
  return beginRun(clients, given(session, "session").sessionId);
}

/** Requests about sessions that stand below others, or whose events are archived or copied. */
export const RETRIED_STRUCTURE: readonly Retried[] = [
  {
    name: "CreateSession for a call",
    prepare: async (clients) => {
      const run = await openRun(clients);
      const request = delegation(run, await acceptCall(clients, run));
      const way: Way = async ({ sessions }, requestId) => {
        const reply = await sessions.createSession({ ...request, requestId });
        return toBinary(CreateSessionResponseSchema, reply);
      };
      return { sessionId: undefined, ways: [way] };
    },
  },
  {
    name: "EndSession with what works for it",
    prepare: async (clients) => {
      const run = await openRun(clients);
      const { sessionId } = run;
      const child = await delegate(clients, run, await acceptCall(clients, run));
      await openAsk(clients, child, (await acceptCall(clients, child)).toolCallId);
      const grandchild = await delegate(clients, child, await acceptCall(clients, child));
      await openAsk(clients, grandchild, (await acceptCall(clients, grandchild)).toolCallId);
      return {
        sessionId,
        ways: [endSession(sessionId, true)],
        others: [endSession(sessionId, false)],
      };
    },
  },
  {
    name: "CompactSession",
    prepare: async (clients) => {
      const run = await openRun(clients);
      const { sessionId } = run;
      const { toolCallId } = await acceptCall(clients, run);
      await complete(clients, run, toolCallId);
      const before = { sessionId, throughSequence: 4n };
      const way =
        (summary: string): Way =>
        async ({ sessions }, requestId) => {
          const reply = await sessions.compactSession({ ...before, requestId, summary });
          return toBinary(CompactSessionResponseSchema, reply);
        };
      return { sessionId, ways: [way("what came before")], others: [way("another summary")] };
    },
  },
  {
    name: "ImportSession",
    prepare: async () => {
      const { sessionId, ...sent } = oldSession(freshRequestId());
      const way =
        (ownerSubject: string): Way =>
        async ({ sessions }, requestId) => {
          const request = { ...sent, sessionId, ownerSubject, requestId };
          return toBinary(ImportSessionResponseSchema, await sessions.importSession(request));
        };
      return { sessionId, ways: [way("")], others: [way("another")] };
    },
  },
  {
    name: "ForkSession",
    prepare: async (clients) => {
      const { sessionId } = await openRun(clients);
      const way =
        (throughSequence: bigint): Way =>
        async ({ sessions }, requestId) => {
          const request = { sessionId, throughSequence, requestId };
          return toBinary(ForkSessionResponseSchema, await sessions.forkSession(request));
        };
      // Remembered by the session that is copied.
      return { sessionId, ways: [way(2n)], others: [way(1n), endSession(sessionId, true)] };
    },
  },
];
