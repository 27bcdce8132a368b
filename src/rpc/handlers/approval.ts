import { create } from "@bufbuild/protobuf";
import {
  AnswerAskResponseSchema,
  GetAskResponseSchema,
  GetReceiptResponseSchema,
  ListAsksResponseSchema,
  ListReceiptsResponseSchema,
  type ApprovalService,
} from "../../../gen/toolmark/v1/approval_service_pb.js";
import { invariant } from "../../domain/invariant.js";
import { isRefusal } from "../../domain/refusal.js";
import type { AskReader } from "../../ledger/ask-reader.js";
import type { Ledger } from "../../ledger/ledger.js";
import type { Reader } from "../../ledger/reader.js";
import type { AskWatch } from "../../watch/ask-watch.js";
import type { Implementation } from "../call.js";
import { callerOf, viewerOf } from "../caller.js";

export interface ApprovalParts {
  readonly ledger: Ledger;
  readonly reader: Reader;
  readonly asks: AskReader;
  readonly watch: AskWatch;
}

export function approvalHandlers({
  ledger,
  reader,
  asks,
  watch,
}: ApprovalParts): Implementation<typeof ApprovalService> {
  return {
    async listAsks(context, request) {
      const page = await asks.listAsks(viewerOf(context), request, request);
      if (isRefusal(page)) return page;
      const { items, nextPageToken } = page;
      return create(ListAsksResponseSchema, { asks: [...items], nextPageToken });
    },
    async getAsk(context, { sessionId, askId }) {
      const ask = await asks.getAsk(viewerOf(context), sessionId, askId);
      return isRefusal(ask) ? ask : create(GetAskResponseSchema, { ask });
    },
    async answerAsk(context, request) {
      const mutation = { kind: "answerAsk", request } as const;
      const replies = await ledger.submit(callerOf(context), mutation, context);
      if (isRefusal(replies)) return replies;
      const record = replies[0]?.[0]?.record;
      invariant(record?.case === "receipt", "a reply about an answer has its receipt");
      return create(AnswerAskResponseSchema, { receipt: record.value });
    },
    watchAsks: (context, request) => watch.watch(viewerOf(context), request, context),
    async getReceipt(context, { sessionId, receiptId }) {
      const receipt = await reader.getReceipt(callerOf(context), sessionId, receiptId);
      return isRefusal(receipt) ? receipt : create(GetReceiptResponseSchema, { receipt });
    },
    async listReceipts(context, request) {
      const { sessionId, toolCallId } = request;
      const page = await reader.listReceipts(callerOf(context), sessionId, toolCallId, request);
      if (isRefusal(page)) return page;
      const { items: receipts, nextPageToken } = page;
      return create(ListReceiptsResponseSchema, { receipts: [...receipts], nextPageToken });
    },
  };
}
