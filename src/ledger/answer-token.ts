import { createHmac, createSecretKey, timingSafeEqual } from "node:crypto";
import type { Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { digestOf } from "../domain/sha256.js";
import type { SessionRef } from "./store-port.js";

/** Keeps these codes apart from whatever else the secret may come to be used for. */
const PURPOSE = "toolmark answer token 1";

/**
 * Shows that who answers an ask saw this very ask. A token is derived when it is shown and never stored: it is the same
 * each time, also after a restart, and another one once anything that was shown differs. Whether the ask is still open
 * is not in it.
 */
export interface AnswerTokens {
  /** 43 characters of base64url. A secret: for callers who may answer the ask only, never for a log. */
  tokenOf(session: SessionRef, ask: Ask): string;
  /** Compares in a time that tells nothing of where a wrong token differs. Exactly the text of `tokenOf` passes. */
  isTokenOf(session: SessionRef, ask: Ask, token: string): boolean;
}

/** The tokens of one store: of its secret, 32 bytes, and its log generation. */
export function answerTokens(secret: Uint8Array, generation: bigint): AnswerTokens {
  const key = createSecretKey(secret);
  const tokenOf = (session: SessionRef, ask: Ask): string =>
    createHmac("sha256", key)
      .update(shownDigest(generation, session, ask))
      .digest("base64url");
  return {
    tokenOf,
    isTokenOf: (session, ask, token) => equalText(tokenOf(session, ask), token),
  };
}

function shownDigest(generation: bigint, { tenant, sessionId }: SessionRef, ask: Ask): Uint8Array {
  const { askId, toolCallId, reviewId, presented } = ask;
  // In a digest an absent field is like an empty one; the number before it tells them apart.
  const review = [reviewId === undefined ? 0n : 1n, reviewId];
  const shown = [askId, toolCallId, ...review, presented?.sha256];
  return digestOf([PURPOSE, generation, tenant, sessionId, ...shown]);
}

function equalText(expected: string, given: string): boolean {
  // Before anything is copied: what was given may be huge. As many characters may still be more bytes.
  if (given.length !== expected.length) return false;
  const givenBytes = Buffer.from(given, "utf8");
  const expectedBytes = Buffer.from(expected, "utf8");
  return givenBytes.length === expectedBytes.length && timingSafeEqual(expectedBytes, givenBytes);
}
