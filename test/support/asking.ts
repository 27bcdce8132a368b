import type { Message, MessageInitShape } from "@bufbuild/protobuf";
import type { SettleAuthorizationResponse } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import type {
  OpenAskCommandSchema,
  ParkToolCallCommandSchema,
  PublishReviewCommandSchema,
  SettleAskCommandSchema,
} from "../../gen/toolmark/engine/v1/command_pb.js";
import type {
  AnswerAskRequestSchema,
  ListAsksRequestSchema,
  ShownAsk,
  WatchAsksRequestSchema,
  WatchAsksResponse,
} from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskKind, AskProvenance, AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import type { Authorization, AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import type { Hook } from "../../gen/toolmark/v1/hook_pb.js";
import { Verdict, type Receipt } from "../../gen/toolmark/v1/receipt_pb.js";
import {
  ReviewAssessment,
  ReviewDisposition,
  ReviewInspection,
  ReviewJob,
  type ReviewSchema,
} from "../../gen/toolmark/v1/review_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  acceptCall,
  acceptTurn,
  freshRequestId,
  given,
  newCall,
  of,
  readCall,
  type CallInit,
  type OpenRun,
} from "./conversation.js";
import type { Clients } from "./service.js";

/** Opens an ask about a call; an ACTION ask unless `changed` says otherwise. */
export async function openAsk(
  clients: Clients,
  run: OpenRun,
  toolCallId: string,
  changed: MessageInitShape<typeof OpenAskCommandSchema> = {},
): Promise<Ask> {
  const kind = AskKind.ACTION;
  const provenance = AskProvenance.PERMISSION;
  const command = { toolCallId, kind, provenance, ...changed };
  return given((await clients.calls.openAsk({ ...of(run), command })).ask, "ask");
}

/** Accepts a call and opens an ask about it. */
export async function askAbout(
  clients: Clients,
  run: OpenRun,
  changed: MessageInitShape<typeof OpenAskCommandSchema> = {},
  call: CallInit = newCall(),
): Promise<Ask> {
  return openAsk(clients, run, (await acceptCall(clients, run, call)).toolCallId, changed);
}

/** Accepts calls and opens an ask about each of them, in one commit. In the order of opening. */
export async function askAboutEach(
  clients: Clients,
  run: OpenRun,
  calls: readonly CallInit[],
  changed: MessageInitShape<typeof OpenAskCommandSchema> = {},
): Promise<Ask[]> {
  const accepted = await acceptTurn(clients, run, [...calls]);
  const kind = AskKind.ACTION;
  const provenance = AskProvenance.PERMISSION;
  const commands = accepted.map(({ toolCallId }) => {
    const value = { toolCallId, kind, provenance, ...changed };
    return { command: { case: "openAsk" as const, value } };
  });
  const { results } = await clients.runs.apply({ ...of(run), commands });
  return results.map(({ result }) =>
    given(result.case === "openAsk" ? result.value.ask : undefined, "ask"),
  );
}

/** An ask as the caller is shown it. */
export async function showAsk(
  clients: Clients,
  sessionId: string,
  askId: string,
): Promise<ShownAsk & { ask: Ask }> {
  const shown = given((await clients.approvals.getAsk({ sessionId, askId })).ask, "ask");
  return { ...shown, ask: given(shown.ask, "ask") };
}

/** The request that answers an ask as it was shown. */
export function answerTo(
  shown: ShownAsk & { ask: Ask },
  verdict = Verdict.ALLOW_ONCE,
): MessageInitShape<typeof AnswerAskRequestSchema> {
  const { ask, answerToken } = shown;
  return {
    requestId: freshRequestId(),
    sessionId: given(ask.origin, "origin").sessionId,
    askId: ask.askId,
    answerToken,
    toolCallId: ask.toolCallId,
    ...(ask.reviewId === undefined ? {} : { reviewId: ask.reviewId }),
    verdict,
  };
}

/** Answers an open ask as a person who has just been shown it. */
export async function answer(
  clients: Clients,
  { origin, askId }: Pick<Ask, "origin" | "askId">,
  verdict = Verdict.ALLOW_ONCE,
): Promise<Receipt> {
  const shown = await showAsk(clients, given(origin, "origin").sessionId, askId);
  return given((await clients.approvals.answerAsk(answerTo(shown, verdict))).receipt, "receipt");
}

/** Starts a call with its effective arguments. */
export async function startCall(
  clients: Clients,
  run: OpenRun,
  toolCallId: string,
): Promise<ToolCall> {
  const { effective } = await readCall(clients, run.sessionId, toolCallId);
  const command = { toolCallId, argumentsSha256: given(effective, "body").sha256 };
  return given((await clients.calls.startToolCall({ ...of(run), command })).toolCall, "call");
}

/** Takes an open ask back. */
export async function withdraw(clients: Clients, run: OpenRun, askId: string): Promise<Receipt> {
  const command = { askId, reason: "no longer needed" };
  return given((await clients.calls.withdrawAsk({ ...of(run), command })).receipt, "receipt");
}

/** Settles an open ask by a rule or a hook. */
export async function settle(
  clients: Clients,
  run: OpenRun,
  command: MessageInitShape<typeof SettleAskCommandSchema>,
): Promise<Receipt> {
  return given((await clients.calls.settleAsk({ ...of(run), command })).receipt, "receipt");
}

/** Every ask that matches, page by page: open ones, unless the filter says otherwise. */
export async function listedAsks(
  { approvals }: Clients,
  filter: MessageInitShape<typeof ListAsksRequestSchema>,
): Promise<(ShownAsk & { ask: Ask })[]> {
  const all: ShownAsk[] = [];
  let pageToken = "";
  do {
    const page = await approvals.listAsks({ ...filter, pageSize: 500, pageToken });
    all.push(...page.asks);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return all.map((shown) => ({ ...shown, ask: given(shown.ask, "ask") }));
}

/** Every state that an ask can be in. */
export const ASK_STATES = [
  AskState.OPEN,
  AskState.ANSWERED,
  AskState.EXPIRED,
  AskState.WITHDRAWN,
  AskState.SUPERSEDED,
];

/** Every ask of a session, whatever its state. */
export async function allAsks(clients: Clients, sessionId: string): Promise<Ask[]> {
  const listed = await Promise.all(
    ASK_STATES.map((state) => listedAsks(clients, { sessionId, state })),
  );
  return listed.flat().map(({ ask }) => ask);
}

/** Every receipt of a session, page by page. */
export async function allReceipts({ approvals }: Clients, sessionId: string): Promise<Receipt[]> {
  const all: Receipt[] = [];
  let pageToken = "";
  do {
    const page = await approvals.listReceipts({ sessionId, pageSize: 500, pageToken });
    all.push(...page.receipts);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return all;
}

/** Parks a call, and with it those that are named. */
export async function park(
  clients: Clients,
  run: OpenRun,
  toolCallId: string,
  changed: MessageInitShape<typeof ParkToolCallCommandSchema> = {},
): Promise<Authorization> {
  const command = { toolCallId, displayName: "calendar", ...changed };
  const { authorization } = await clients.calls.parkToolCall({ ...of(run), command });
  return given(authorization, "authorization");
}

export async function settleAuthorization(
  clients: Clients,
  run: OpenRun,
  authorizationId: string,
  outcome: AuthorizationState,
): Promise<SettleAuthorizationResponse> {
  const command = { authorizationId, outcome };
  return clients.calls.settleAuthorization({ ...of(run), command });
}

export async function readAuthorization(
  { history }: Clients,
  sessionId: string,
  authorizationId: string,
): Promise<Authorization> {
  const { authorization } = await history.getAuthorization({ sessionId, authorizationId });
  return given(authorization, "authorization");
}

type ReviewInit = Exclude<MessageInitShape<typeof ReviewSchema>, Message>;
type PublishReviewInit = Exclude<MessageInitShape<typeof PublishReviewCommandSchema>, Message>;

/** A review that finds nothing wrong with the call, unless `review` says otherwise. */
export function reviewOf(
  toolCallId: string,
  review: ReviewInit = {},
  changed: PublishReviewInit = {},
): PublishReviewInit {
  const found = {
    job: ReviewJob.ACTION,
    assessment: ReviewAssessment.ACCEPTABLE,
    inspection: ReviewInspection.COMPLETE,
    disposition: ReviewDisposition.PASS_ADVISORY,
    ...review,
  };
  return { toolCallId, phase: "pre_tool_use", review: found, ...changed };
}

export async function publishReview(
  clients: Clients,
  run: OpenRun,
  command: PublishReviewInit,
): Promise<Hook> {
  return given((await clients.evidence.publishReview({ ...of(run), command })).hook, "review");
}

/** A watch of asks that a test reads message by message. */
export class AskWatcher {
  /** That of the last message. */
  cursor = "";
  readonly #canceller = new AbortController();
  readonly #messages: AsyncIterator<WatchAsksResponse>;

  constructor(
    { approvals }: Pick<Clients, "approvals">,
    request: MessageInitShape<typeof WatchAsksRequestSchema>,
    headers: Readonly<Record<string, string>> = {},
  ) {
    const { signal } = this.#canceller;
    this.#messages = approvals.watchAsks(request, { signal, headers })[Symbol.asyncIterator]();
  }

  async next(): Promise<WatchAsksResponse> {
    const next = await this.#messages.next();
    if (next.done === true) throw new Error("the watch has ended");
    this.cursor = next.value.cursor;
    return next.value;
  }

  /** The next message with an ask. */
  async nextAsk(): Promise<ShownAsk & { ask: Ask }> {
    for (;;) {
      const { ask: shown } = await this.next();
      if (shown !== undefined) return { ...shown, ask: given(shown.ask, "ask") };
    }
  }

  /** The asks that were open, up to the message that says that these were all. */
  async openOnes(): Promise<(ShownAsk & { ask: Ask })[]> {
    const open: (ShownAsk & { ask: Ask })[] = [];
    for (;;) {
      const { ask: shown } = await this.next();
      if (shown === undefined) return open;
      open.push({ ...shown, ask: given(shown.ask, "ask") });
    }
  }

  stop(): void {
    this.#canceller.abort();
  }
}
