import { create } from "@bufbuild/protobuf";
import type { Session } from "../../../gen/toolmark/v1/session_pb.js";
import {
  CreateSessionResponseSchema,
  EndSessionResponseSchema,
  GetSessionResponseSchema,
  ListSessionsResponseSchema,
  VerifySessionResponseSchema,
  type SessionService,
} from "../../../gen/toolmark/v1/session_service_pb.js";
import { invariant } from "../../domain/invariant.js";
import { isRefusal } from "../../domain/refusal.js";
import type { Replies } from "../../ledger/batch.js";
import type { Ledger } from "../../ledger/ledger.js";
import type { Reader } from "../../ledger/reader.js";
import type { SessionVerifier } from "../../ledger/verify/session-verifier.js";
import type { Implementation } from "../call.js";
import { callerOf } from "../caller.js";

function sessionOf(replies: Replies): Session {
  const record = replies[0]?.[0]?.record;
  invariant(record?.case === "session", "a reply about a session has its record");
  return record.value;
}

export function sessionHandlers(
  ledger: Ledger,
  reader: Reader,
  verifier: SessionVerifier,
): Implementation<typeof SessionService> {
  return {
    async createSession(context, request) {
      const mutation = { kind: "createSession", request } as const;
      const replies = await ledger.submit(callerOf(context), mutation, context);
      if (isRefusal(replies)) return replies;
      return create(CreateSessionResponseSchema, { session: sessionOf(replies) });
    },
    async endSession(context, request) {
      const mutation = { kind: "endSession", request } as const;
      const replies = await ledger.submit(callerOf(context), mutation, context);
      if (isRefusal(replies)) return replies;
      return create(EndSessionResponseSchema, { session: sessionOf(replies) });
    },
    async getSession(context, { sessionId }) {
      const session = await reader.getSession(callerOf(context), sessionId);
      return isRefusal(session) ? session : create(GetSessionResponseSchema, { session });
    },
    async listSessions(context, request) {
      const page = await reader.listSessions(callerOf(context), request, request);
      if (isRefusal(page)) return page;
      const { items: sessions, nextPageToken } = page;
      return create(ListSessionsResponseSchema, { sessions: [...sessions], nextPageToken });
    },
    async verifySession(context, request) {
      const head = await verifier.verify(callerOf(context), request, context);
      if (isRefusal(head)) return head;
      const { sessionId } = request;
      return create(VerifySessionResponseSchema, { head: { sessionId, ...head } });
    },
  };
}
