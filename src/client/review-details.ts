import type { GetReviewDetailResponse } from "../../gen/toolmark/v1/history_service_pb.js";

/** A request of a review's rationale, to be sent with GetReviewDetail. */
export interface ReviewDetailRequest {
  /** Unique in the conversation. */
  readonly requestId: number;
  readonly sessionId: string;
  readonly reviewId: string;
}

/**
 * Where a rationale stands. It is live only: no record holds it.
 * - `empty`: none was given, or nobody asked.
 * - `requested`: a reply is awaited.
 * - `shown`: it is there.
 * - `unavailable`: the request failed.
 * - `mismatched`: the reply named another review; its text is not shown.
 */
export type ReviewDetailState = "empty" | "requested" | "shown" | "unavailable" | "mismatched";

export interface ReviewDetail {
  readonly state: ReviewDetailState;
  /** Empty unless the state is `shown`. */
  readonly text: string;
}

interface Kept {
  state: ReviewDetailState;
  text: string;
  outstanding: number | undefined;
  /** Whether it was requested before and after the review's ask was settled. */
  readonly asked: { before: boolean; after: boolean };
}

const NONE: ReviewDetail = { state: "empty", text: "" };

/** The rationales of reviews. */
export class ReviewDetails {
  readonly #kept = new Map<string, Kept>();
  #requests = 0;

  detailOf(sessionId: string, reviewId: string): ReviewDetail {
    const kept = this.#kept.get(keyOf(sessionId, reviewId));
    const { state, text } = kept ?? NONE;
    return { state, text };
  }

  /**
   * A new request, or undefined if there is nothing to ask for: the text is there, a reply is awaited, or it was asked
   * for already. Once the review's ask is settled it may be asked for once more.
   */
  request(
    sessionId: string,
    reviewId: string,
    isSettled: boolean,
  ): ReviewDetailRequest | undefined {
    const key = keyOf(sessionId, reviewId);
    const asked = { before: false, after: false };
    const kept: Kept = this.#kept.get(key) ?? { ...NONE, outstanding: undefined, asked };
    const when = isSettled ? "after" : "before";
    if (kept.text !== "" || kept.outstanding !== undefined || kept.asked[when]) return undefined;
    this.#requests += 1;
    kept.asked[when] = true;
    kept.outstanding = this.#requests;
    kept.state = "requested";
    this.#kept.set(key, kept);
    return { requestId: this.#requests, sessionId, reviewId };
  }

  /** Takes the reply to a request, undefined if it failed. Any but the awaited one is refused: false. */
  take(request: ReviewDetailRequest, reply: GetReviewDetailResponse | undefined): boolean {
    const kept = this.#kept.get(keyOf(request.sessionId, request.reviewId));
    if (kept?.outstanding !== request.requestId) return false;
    kept.outstanding = undefined;
    if (reply === undefined) {
      kept.state = "unavailable";
    } else if (reply.reviewId !== request.reviewId) {
      kept.state = "mismatched";
    } else {
      kept.text = reply.detail;
      kept.state = reply.detail === "" ? "empty" : "shown";
    }
    return true;
  }

  forget(sessionId: string): void {
    for (const key of this.#kept.keys()) {
      if (key.startsWith(keyOf(sessionId, ""))) this.#kept.delete(key);
    }
  }
}

/** No id has a control character. */
const keyOf = (sessionId: string, reviewId: string): string => `${sessionId}\0${reviewId}`;
