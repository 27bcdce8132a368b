import type { AgentContext, RequestPermissionResponse } from "@agentclientprotocol/sdk";
import type { ShownAsk } from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskKind, AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import type { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { acpNotice } from "../projection/acp.js";
import type { BytesOf } from "../projection/acp-body-text.js";
import { permissionCard, permissionOptions, verdictOf } from "../projection/acp-permission.js";
import { serverFaultOf } from "../server/server-link.js";
import type { FollowMeans, SessionFollow } from "./acp-follow.js";
import { retried, waitToRetry } from "./acp-retry.js";

/** The card of the call is shown before the question about it, unless it takes longer than this. */
const CARD_TIMEOUT_MS = 2000;
const REQUEST_PERMISSION = "session/request_permission";

export interface AskMeans extends FollowMeans {
  readonly client: Pick<AgentContext, "request">;
  readonly follow: SessionFollow;
  /** Names a request that no other has: 1 to 128 printable ASCII characters. */
  readonly mintRequestId: () => string;
  /** Told of a fault of the program. */
  readonly fail: (error: unknown) => void;
}

/** Puts the open asks of a session and of those below it to the editor's user, each once, and sends the answers. */
export class AskDesk {
  readonly #means: AskMeans;
  /** Asks that were put to the user, with what takes the question back. */
  readonly #put = new Map<string, AbortController>();

  constructor(means: AskMeans) {
    this.#means = means;
  }

  /** Works until the signal aborts. What the server refuses for good is thrown. */
  async run(): Promise<void> {
    const { link, sessionId, signal, log } = this.#means;
    let cursor = "";
    for (let failures = 0; !signal.aborted; failures += 1) {
      const request = { sessionId, includeDescendants: true, cursor };
      try {
        for await (const message of link.approvals.watchAsks(request, { signal })) {
          failures = 0;
          ({ cursor } = message);
          if (message.ask?.ask !== undefined) this.#take(message.ask, message.ask.ask);
        }
      } catch (thrown) {
        if (isAborted(signal)) return;
        const { isPassing, message } = serverFaultOf(thrown);
        if (!isPassing) throw thrown;
        log(`the watch of asks is opened again: ${message}`);
      }
      await waitToRetry(failures, signal);
    }
  }

  #take(shown: ShownAsk, ask: Ask): void {
    const key = JSON.stringify([ask.origin?.sessionId, ask.askId]);
    const put = this.#put.get(key);
    if (ask.state !== AskState.OPEN) {
      // Settled elsewhere, or by the answer that was sent from here.
      put?.abort();
      return;
    }
    if (put !== undefined || shown.answerToken === "") return;
    if (permissionOptions(ask, this.#means.sessionId).length === 0) return;
    const settled = new AbortController();
    this.#put.set(key, settled);
    this.#ask(shown, ask, settled.signal).catch(this.#means.fail);
  }

  async #ask(shown: ShownAsk, ask: Ask, settled: AbortSignal): Promise<void> {
    const { follow, bodies, signal, sessionId: rootId } = this.#means;
    const sessionId = ask.origin?.sessionId ?? "";
    await follow.whenShown(sessionId, ask, CARD_TIMEOUT_MS);
    const bytesOf = await bodies.read(sessionId, this.#bodiesOf(ask));
    const over = AbortSignal.any([settled, signal]);
    const response = await this.#request(ask, bytesOf, over);
    // An answer that comes after all is to a question that is no longer asked.
    if (response?.outcome.outcome !== "selected" || over.aborted) return;
    const verdict = verdictOf(ask, rootId, response.outcome.optionId);
    if (verdict === undefined) {
      await this.#say(`The answer ${response.outcome.optionId} was not offered and is not sent.`);
      return;
    }
    await this.#answer(shown, ask, verdict, shownDigest(ask, bytesOf));
  }

  #bodiesOf({ origin, toolCallId, presented, kind }: Ask): readonly Body[] {
    const { projection } = this.#means.follow;
    const card = projection.bodiesOnCard(origin?.sessionId ?? "", toolCallId);
    return kind === AskKind.ACTION && presented !== undefined ? [presented, ...card] : card;
  }

  /** The client's response. Absent if the question was taken back, or the client cannot answer it. */
  async #request(
    ask: Ask,
    bytesOf: BytesOf,
    over: AbortSignal,
  ): Promise<RequestPermissionResponse | undefined> {
    if (over.aborted) return undefined;
    const { client, follow, sessionId, log } = this.#means;
    const card = follow.projection.cardOf(ask.origin?.sessionId ?? "", ask.toolCallId, bytesOf);
    const request = {
      sessionId,
      toolCall: permissionCard(ask, card, bytesOf),
      options: permissionOptions(ask, sessionId),
    };
    const options = { cancellationSignal: over, stopWaitingOnCancel: true };
    try {
      return await client.request(REQUEST_PERMISSION, request, options);
    } catch (error) {
      if (!isAborted(over)) log(`the client did not answer ${ask.askId}: ${String(error)}`);
      return undefined;
    }
  }

  async #answer(
    { answerToken }: ShownAsk,
    { askId, origin, toolCallId, reviewId }: Ask,
    verdict: Verdict,
    presentedSha256: Uint8Array,
  ): Promise<void> {
    const { link, signal, mintRequestId } = this.#means;
    const request = {
      requestId: mintRequestId(),
      sessionId: origin?.sessionId ?? "",
      askId,
      answerToken,
      toolCallId,
      verdict,
      presentedSha256,
      ...(reviewId === undefined ? {} : { reviewId }),
    };
    try {
      await retried(() => link.approvals.answerAsk(request, { signal }), signal);
    } catch (thrown) {
      const { reason, message } = serverFaultOf(thrown);
      await this.#say(`The answer was not taken: ${reason}: ${message}`);
    }
  }

  async #say(text: string): Promise<void> {
    await this.#means.send(acpNotice(text));
  }
}

function isAborted(signal: AbortSignal): boolean {
  return signal.aborted;
}

/** Digest of the arguments that were shown; empty if they were not shown as a whole. */
function shownDigest({ kind, presented }: Ask, bytesOf: BytesOf): Uint8Array {
  if (kind !== AskKind.ACTION || presented === undefined) return new Uint8Array();
  const isWhole = BigInt(bytesOf(presented)?.length ?? 0) === presented.sizeBytes;
  return isWhole ? presented.sha256 : new Uint8Array();
}
