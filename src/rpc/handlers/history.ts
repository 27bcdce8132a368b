import { create } from "@bufbuild/protobuf";
import {
  GetAuthorizationResponseSchema,
  GetHookResponseSchema,
  GetReviewDetailResponseSchema,
  GetToolCallResponseSchema,
  GetTranscriptResponseSchema,
  ListAuthorizationsResponseSchema,
  ListEventsResponseSchema,
  ListHooksResponseSchema,
  ListToolCallsResponseSchema,
  ReadBodyResponseSchema,
  type HistoryService,
} from "../../../gen/toolmark/v1/history_service_pb.js";
import { isRefusal } from "../../domain/refusal.js";
import type { Reader } from "../../ledger/reader.js";
import type { ReviewDetails } from "../../ledger/review-details.js";
import type { EventWatch } from "../../watch/event-watch.js";
import type { Implementation } from "../call.js";
import { callerOf } from "../caller.js";

/** What the methods read from. */
export interface HistoryParts {
  readonly reader: Reader;
  readonly details: ReviewDetails;
  readonly events: EventWatch;
}

export function historyHandlers({
  reader,
  details,
  events,
}: HistoryParts): Implementation<typeof HistoryService> {
  return {
    ...listHandlers(reader),
    watchEvents: (context, request) => events.watch(callerOf(context), request, context),
    async getToolCall(context, { sessionId, toolCallId }) {
      const toolCall = await reader.getToolCall(callerOf(context), sessionId, toolCallId);
      return isRefusal(toolCall) ? toolCall : create(GetToolCallResponseSchema, { toolCall });
    },
    async getHook(context, { sessionId, hookId }) {
      const hook = await reader.getHook(callerOf(context), sessionId, hookId);
      return isRefusal(hook) ? hook : create(GetHookResponseSchema, { hook });
    },
    async getReviewDetail(context, { sessionId, reviewId }) {
      const caller = callerOf(context);
      const review = await reader.getReview(caller, sessionId, reviewId);
      if (isRefusal(review)) return review;
      const session = { tenant: caller.tenant, sessionId };
      const { text: detail = "", revision } = details.get(session, reviewId) ?? {};
      const since = revision === undefined ? {} : { revision };
      return create(GetReviewDetailResponseSchema, { reviewId, detail, ...since });
    },
    async getAuthorization(context, { sessionId, authorizationId }) {
      const caller = callerOf(context);
      const authorization = await reader.getAuthorization(caller, sessionId, authorizationId);
      if (isRefusal(authorization)) return authorization;
      return create(GetAuthorizationResponseSchema, { authorization });
    },
    async *readBody(context, request) {
      const { sessionId, bodyRef } = request;
      const parts = await reader.readBody(callerOf(context), sessionId, bodyRef, request);
      if (isRefusal(parts)) {
        yield parts;
        return;
      }
      for (const part of parts) yield create(ReadBodyResponseSchema, part);
    },
  };
}

type Lists = "listToolCalls" | "listHooks" | "listAuthorizations" | "listEvents" | "getTranscript";

function listHandlers(reader: Reader): Pick<Implementation<typeof HistoryService>, Lists> {
  return {
    async listToolCalls(context, request) {
      const page = await reader.listToolCalls(callerOf(context), request, request);
      if (isRefusal(page)) return page;
      const { items, nextPageToken, places } = page;
      return create(ListToolCallsResponseSchema, {
        toolCalls: [...items],
        nextPageToken,
        sessions: [...places],
      });
    },
    async listHooks(context, request) {
      const page = await reader.listHooks(callerOf(context), request, request);
      if (isRefusal(page)) return page;
      const { items: hooks, nextPageToken, places } = page;
      return create(ListHooksResponseSchema, {
        hooks: [...hooks],
        nextPageToken,
        sessions: [...places],
      });
    },
    async listAuthorizations(context, request) {
      const { sessionId, toolCallId } = request;
      const caller = callerOf(context);
      const page = await reader.listAuthorizations(caller, sessionId, toolCallId, request);
      if (isRefusal(page)) return page;
      const { items, nextPageToken } = page;
      return create(ListAuthorizationsResponseSchema, {
        authorizations: [...items],
        nextPageToken,
      });
    },
    async listEvents(context, request) {
      const { sessionId, afterSequence } = request;
      const page = await reader.listEvents(callerOf(context), sessionId, afterSequence, request);
      if (isRefusal(page)) return page;
      const { items: events, nextPageToken } = page;
      return create(ListEventsResponseSchema, { events: [...events], nextPageToken });
    },
    async getTranscript(context, request) {
      const page = await reader.transcripts.page(callerOf(context), request);
      if (isRefusal(page)) return page;
      const { items: entries, nextPageToken } = page;
      return create(GetTranscriptResponseSchema, { entries: [...entries], nextPageToken });
    },
  };
}
