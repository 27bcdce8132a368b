import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { AskSchema, AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { answerTokens, type AnswerTokens } from "../../src/ledger/answer-token.js";

const SECRET = new Uint8Array(32).fill(7);

interface Shown {
  readonly secret: Uint8Array;
  readonly generation: bigint;
  readonly tenant: string;
  readonly sessionId: string;
  readonly askId: string;
  readonly toolCallId: string;
  readonly reviewId: string | undefined;
  readonly sha256: Uint8Array;
}

const SHOWN: Shown = {
  secret: SECRET,
  generation: 1n,
  tenant: "default",
  sessionId: "ses_1",
  askId: "ask_1",
  toolCallId: "tc_1",
  reviewId: "rev_1",
  sha256: new Uint8Array(32).fill(1),
};
type MakeTokens = (secret: Uint8Array, generation: bigint) => AnswerTokens;

/** Everything that a token depends on, each time with one thing changed. */
const OTHERS: Record<string, Shown> = {
  secret: { ...SHOWN, secret: new Uint8Array(32).fill(8) },
  generation: { ...SHOWN, generation: 2n },
  tenant: { ...SHOWN, tenant: "other" },
  session: { ...SHOWN, sessionId: "ses_2" },
  ask: { ...SHOWN, askId: "ask_2" },
  call: { ...SHOWN, toolCallId: "tc_2" },
  review: { ...SHOWN, reviewId: "rev_2" },
  "no review": { ...SHOWN, reviewId: undefined },
  "empty review": { ...SHOWN, reviewId: "" },
  presented: { ...SHOWN, sha256: new Uint8Array(32).fill(2) },
  "no bytes presented": { ...SHOWN, sha256: new Uint8Array() },
  "session ends in the ask": { ...SHOWN, sessionId: "ses_1ask", askId: "_1" },
  "tenant ends in the session": { ...SHOWN, tenant: "defaultses", sessionId: "_1" },
  "call ends in the review": { ...SHOWN, toolCallId: "tc_1rev", reviewId: "_1" },
};

function askOf({ askId, toolCallId, reviewId, sha256 }: Shown) {
  const fields: MessageInitShape<typeof AskSchema> = { askId, toolCallId, presented: { sha256 } };
  return create(AskSchema, reviewId === undefined ? fields : { ...fields, reviewId });
}

function tokenFor(shown: Shown, makeTokens: MakeTokens = answerTokens): string {
  return makeTokens(shown.secret, shown.generation).tokenOf(shown, askOf(shown));
}

/** Which of two different things have the same token. */
function collisions(makeTokens: MakeTokens): string[] {
  const names = new Map<string, string>();
  const found: string[] = [];
  for (const [name, shown] of Object.entries({ itself: SHOWN, ...OTHERS })) {
    const token = tokenFor(shown, makeTokens);
    const other = names.get(token);
    if (other !== undefined) found.push(`${other}, ${name}`);
    names.set(token, name);
  }
  return found;
}

describe("an answer token", () => {
  test("is 32 bytes of base64url, the same each time", () => {
    expect(tokenFor(SHOWN)).toMatch(/^[A-Za-z0-9_-]{43}$/);
    expect(tokenFor(SHOWN)).toBe(tokenFor(SHOWN));
  });

  test("stays what it is across versions", () => {
    expect(tokenFor(SHOWN)).toBe("H_Q3cwVv1UrhhWb_DSXm_wMcc0N3fxPvBD17-gku2XM");
  });

  test("differs with everything that it stands for", () => {
    expect(collisions(answerTokens)).toEqual([]);
  });

  test("does not depend on how the ask stands", () => {
    const tokens = answerTokens(SECRET, 1n);
    const settled = { ...askOf(SHOWN), state: AskState.ANSWERED, receiptId: "rcp_1", display: "x" };
    expect(tokens.tokenOf(SHOWN, settled)).toBe(tokenFor(SHOWN));
  });

  test("passes for its own ask alone", () => {
    const tokens = answerTokens(SECRET, 1n);
    expect(tokens.isTokenOf(SHOWN, askOf(SHOWN), tokenFor(SHOWN))).toBe(true);
    for (const shown of Object.values(OTHERS)) {
      expect(tokens.isTokenOf(SHOWN, askOf(SHOWN), tokenFor(shown))).toBe(false);
    }
  });

  test("passes as exactly its text", () => {
    const tokens = answerTokens(SECRET, 1n);
    const token = tokenFor(SHOWN);
    const bytes = Buffer.from(token, "base64url");
    const sameBytes = Array.from("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
      .map((letter) => token.slice(0, -1) + letter)
      .filter((text) => text !== token && Buffer.from(text, "base64url").equals(bytes));
    expect(sameBytes.length).toBeGreaterThan(0);
    const wrong = [
      ...sameBytes,
      "",
      token.slice(0, -1),
      `${token}=`,
      `${token} `,
      ` ${token.slice(1)}`,
      token.toUpperCase(),
      bytes.toString("hex"),
      "é".repeat(token.length),
      `${token.slice(0, -1)}\ud800`,
      token + "x".repeat(1_000_000),
    ];
    for (const text of wrong) {
      expect(tokens.isTokenOf(SHOWN, askOf(SHOWN), text), text.slice(0, 60)).toBe(false);
    }
  });
});

describe("a weaker token is found out", () => {
  const weak = (change: (shown: Shown) => Shown): MakeTokens => {
    return (secret, generation) => {
      const tokenOf: AnswerTokens["tokenOf"] = ({ tenant, sessionId }, ask) => {
        const { askId, toolCallId, reviewId, presented } = ask;
        const { sha256 } = presented!;
        const shown = {
          secret,
          generation,
          tenant,
          sessionId,
          askId,
          toolCallId,
          reviewId,
          sha256,
        };
        return tokenFor(change(shown));
      };
      return { tokenOf, isTokenOf: () => false };
    };
  };

  test.each<[string, (shown: Shown) => Shown]>([
    ["itself, secret", (shown) => ({ ...shown, secret: SECRET })],
    ["itself, generation", (shown) => ({ ...shown, generation: 1n })],
    ["itself, tenant", (shown) => ({ ...shown, tenant: "default" })],
    ["no review, empty review", (shown) => ({ ...shown, reviewId: shown.reviewId ?? "" })],
    [
      "itself, session ends in the ask",
      (shown) => ({ ...shown, sessionId: shown.sessionId + shown.askId, askId: "" }),
    ],
  ])("by the pair %s", (pair, change) => {
    expect(collisions(weak(change))).toContain(pair);
  });
});
