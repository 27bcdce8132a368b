import { create } from "@bufbuild/protobuf";
import type { Session } from "../../../gen/toolmark/v1/session_pb.js";
import {
  CompactSessionResponseSchema,
  CreateSessionResponseSchema,
  EndSessionResponseSchema,
  ForkSessionResponseSchema,
  GetSessionResponseSchema,
  ImportSessionResponseSchema,
  ListSessionsResponseSchema,
  VerifySessionResponseSchema,
  type SessionService,
} from "../../../gen/toolmark/v1/session_service_pb.js";
import { invariant } from "../../domain/invariant.js";
import { isRefusal } from "../../domain/refusal.js";
import { sessionOf } from "../../domain/session-record.js";
import type { Replies } from "../../ledger/batch-context.js";
import type { SessionEnding } from "../../ledger/session-ending.js";
import type { Ledger } from "../../ledger/ledger.js";
import type { Reader } from "../../ledger/reader.js";
import type { SessionCompaction } from "../../ledger/session-compaction.js";
import type { SessionFork } from "../../ledger/session-fork.js";
import type { SessionImport } from "../../ledger/session-import.js";
import type { SessionVerifier } from "../../ledger/verify/session-verifier.js";
import type { Implementation } from "../call.js";
import { callerOf } from "../caller.js";

function repliedSession(replies: Replies): Session {
  const session = sessionOf(replies[0]?.[0]?.record ?? { case: undefined });
  invariant(session !== undefined, "a reply about a session has its record");
  return session;
}

/** What carries out the methods about sessions. */
export interface SessionParts {
  readonly ledger: Ledger;
  readonly reader: Reader;
  readonly ending: SessionEnding;
  readonly fork: SessionFork;
  readonly compaction: SessionCompaction;
  readonly importing: SessionImport;
  readonly verifier: SessionVerifier;
}

export function sessionHandlers({
  ledger,
  reader,
  ending,
  fork,
  compaction,
  importing,
  verifier,
}: SessionParts): Implementation<typeof SessionService> {
  return {
    async createSession(context, request) {
      const mutation = { kind: "createSession", request } as const;
      const replies = await ledger.submit(callerOf(context), mutation, context);
      if (isRefusal(replies)) return replies;
      return create(CreateSessionResponseSchema, { session: repliedSession(replies) });
    },
    async endSession(context, request) {
      const ended = await ending.end(callerOf(context), request, context);
      if (isRefusal(ended)) return ended;
      const session = repliedSession(ended.replies);
      return create(EndSessionResponseSchema, { session, descendants: [...ended.descendants] });
    },
    async forkSession(context, request) {
      const replies = await fork.fork(callerOf(context), request, context);
      if (isRefusal(replies)) return replies;
      return create(ForkSessionResponseSchema, { session: repliedSession(replies) });
    },
    async compactSession(context, request) {
      const replies = await compaction.compact(callerOf(context), request, context);
      if (isRefusal(replies)) return replies;
      const record = replies[0]?.[0]?.record;
      invariant(record?.case === "compaction", "a reply about a compaction has its record");
      const { throughSequence } = record.value;
      return create(CompactSessionResponseSchema, { throughSequence });
    },
    async importSession(context, request) {
      const imported = await importing.import(callerOf(context), request, context);
      if (isRefusal(imported)) return imported;
      const { adopted, receivedBytes, isNew } = imported;
      const { session, summary } = adopted ?? {};
      return create(ImportSessionResponseSchema, {
        progress: request.sources.map(({ format }, at) => ({
          ...{ format, receivedBytes: BigInt(receivedBytes[at] ?? 0) },
        })),
        ...(session === undefined ? {} : { session }),
        ...(summary === undefined ? {} : { summary }),
        isNew,
      });
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
