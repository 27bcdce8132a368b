import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { answerTokens, type AnswerTokens } from "../../src/ledger/answer-token.js";
import { loadStoreSecret } from "../../src/server/store-secret.js";
import { allReceipts, answerTo, openAsk, showAsk, startCall } from "../support/asking.js";
import {
  acceptCall,
  amendCall,
  given,
  newCall,
  openRun,
  type OpenRun,
} from "../support/conversation.js";
import { expectNothingWritten } from "../support/nothing-written.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { TWO_WIRES } from "./cases-asks-fixture.js";

let folder: StoreFolder;
let service: TestService;
/** What whoever has the store's secret can make. */
let forge: AnswerTokens;

beforeAll(async () => {
  folder = await makeStoreFolder();
  let generation = 0n;
  service = await startTestService({
    store: folder.store,
    wrapStore: (store) => {
      ({ generation } = store);
      return store;
    },
  });
  forge = answerTokens((await loadStoreSecret(folder.path)).secret, generation);
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

type Shown = Awaited<ReturnType<typeof showAsk>>;
type Answer = ReturnType<typeof answerTo>;

async function shownAsk(clients: Clients, run: OpenRun, argumentsText?: string): Promise<Shown> {
  const call = await acceptCall(clients, run, newCall(undefined, "bash", argumentsText));
  const { askId } = await openAsk(clients, run, call.toolCallId);
  return showAsk(clients, run.sessionId, askId);
}

/** An ask that is open, and all that a forger knows beside it. */
interface Scene {
  readonly clients: Clients;
  readonly run: OpenRun;
  readonly target: Shown;
}

interface Forgery {
  readonly what: string;
  readonly reason: string;
  readonly code?: Code;
  readonly metadata?: Readonly<Record<string, string>>;
  make(scene: Scene): Promise<Answer> | Answer;
}

/** Of every forgery the rest is what the person with the target before its eyes would send. */
const FORGERIES: readonly Forgery[] = [
  {
    what: "an ask that was never opened",
    reason: "ASK_NOT_FOUND",
    code: Code.NotFound,
    make: ({ target }) => ({ ...answerTo(target), askId: "ask_00000000000000000000000000" }),
  },
  {
    what: "the call of the ask in place of the ask",
    reason: "ASK_NOT_FOUND",
    code: Code.NotFound,
    make: ({ target }) => ({ ...answerTo(target), askId: target.ask.toolCallId }),
  },
  {
    what: "the ask of another session",
    reason: "ASK_NOT_FOUND",
    code: Code.NotFound,
    make: async ({ clients, run }) => {
      const elsewhere = await shownAsk(clients, await openRun(clients));
      return { ...answerTo(elsewhere), sessionId: run.sessionId };
    },
  },
  {
    what: "the token of another session's ask about the same arguments",
    reason: "ANSWER_TOKEN_INVALID",
    make: async ({ clients, target }) => {
      const { answerToken } = await shownAsk(clients, await openRun(clients));
      return { ...answerTo(target), answerToken };
    },
  },
  {
    what: "the token of another open ask of the session about the same arguments",
    reason: "ANSWER_TOKEN_INVALID",
    make: async ({ clients, run, target }) => {
      const { answerToken } = await shownAsk(clients, run);
      return { ...answerTo(target), answerToken };
    },
  },
  {
    what: "a token that was used for another ask",
    reason: "ANSWER_TOKEN_INVALID",
    make: async ({ clients, run, target }) => {
      const used = await shownAsk(clients, run);
      await clients.approvals.answerAsk(answerTo(used));
      return { ...answerTo(target), answerToken: used.answerToken };
    },
  },
  {
    what: "the token of an earlier ask about the call with other arguments",
    reason: "ANSWER_TOKEN_INVALID",
    make: async ({ clients, run, target }) => {
      await amendCall(clients, run, target.ask.toolCallId, '{"command":"rm -r /"}');
      await openAsk(clients, run, target.ask.toolCallId);
      const { answerToken } = target;
      const newer = await newestAsk(clients, run, target);
      return { ...answerTo(newer), answerToken };
    },
  },
  {
    what: "a token that the store's own secret signed for other arguments",
    reason: "ANSWER_TOKEN_INVALID",
    make: ({ run, target }) => {
      const presented = { ...given(target.ask.presented, "body"), sha256: new Uint8Array(32) };
      const session = { tenant: "default", sessionId: run.sessionId };
      const answerToken = forge.tokenOf(session, { ...target.ask, presented });
      return { ...answerTo(target), answerToken };
    },
  },
  {
    what: "a token that the store's own secret signed for another tenant",
    reason: "ANSWER_TOKEN_INVALID",
    make: ({ run, target }) => {
      const session = { tenant: "other", sessionId: run.sessionId };
      return { ...answerTo(target), answerToken: forge.tokenOf(session, target.ask) };
    },
  },
  {
    what: "the digest of other arguments",
    reason: "ANSWER_MISMATCH",
    metadata: { field: "presented_sha256" },
    make: ({ target }) => ({ ...answerTo(target), presentedSha256: new Uint8Array(32) }),
  },
  {
    what: "a review that the ask does not name",
    reason: "ANSWER_MISMATCH",
    metadata: { field: "review_id" },
    make: ({ target }) => ({ ...answerTo(target), reviewId: "rv_00000000000000000000000000" }),
  },
  {
    what: "the call of another ask",
    reason: "ANSWER_MISMATCH",
    metadata: { field: "tool_call_id" },
    make: async ({ clients, run, target }) => {
      const { ask } = await shownAsk(clients, run);
      return { ...answerTo(target), toolCallId: ask.toolCallId };
    },
  },
];

/** The ask that took the place of one. */
async function newestAsk(clients: Clients, run: OpenRun, { ask }: Shown): Promise<Shown> {
  const { ask: older } = await showAsk(clients, run.sessionId, ask.askId);
  return showAsk(clients, run.sessionId, given(older.supersededByAskId, "newer ask"));
}

describe.each(TWO_WIRES)(
  "B42 over %s, an answer that is not the ask's own writes nothing",
  (wire) => {
    const connect = () => service.clients(wire);

    test.each(FORGERIES.map((one) => [one.what, one] as const))(
      "with %s",
      async (_what, forgery) => {
        const clients = connect();
        const run = await openRun(clients);
        const target = await shownAsk(clients, run);
        const request = await forgery.make({ clients, run, target });
        const receipts = await allReceipts(clients, run.sessionId);
        const refusal = await expectNothingWritten(service, run.sessionId, (requestId) =>
          clients.approvals.answerAsk({ ...request, requestId }),
        );
        expect(refusal).toMatchObject({
          code: forgery.code ?? Code.FailedPrecondition,
          reason: forgery.reason,
          metadata: forgery.metadata ?? {},
        });

        // Nothing came into being that would let the call start.
        expect(await allReceipts(clients, run.sessionId)).toEqual(receipts);
        const { toolCallId } = target.ask;
        expect(receipts.filter((receipt) => receipt.toolCallId === toolCallId)).toEqual([]);
        const start = await refused(startCall(clients, run, toolCallId));
        expect(start).toMatchObject({
          reason: "START_NOT_ALLOWED",
          metadata: { tool_call_id: toolCallId },
        });
      },
    );

    test("with the token of an ask that was answered, again", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const target = await shownAsk(clients, run);
      const { receipt } = await clients.approvals.answerAsk(answerTo(target, Verdict.DENY));
      for (const verdict of [Verdict.ALLOW_ONCE, Verdict.DENY]) {
        const replay = answerTo(target, verdict);
        const refusal = await expectNothingWritten(service, run.sessionId, (requestId) =>
          clients.approvals.answerAsk({ ...replay, requestId }),
        );
        expect(refusal).toMatchObject({
          reason: "ASK_NOT_OPEN",
          metadata: { ask_id: target.ask.askId, receipt_id: receipt?.receiptId },
        });
      }
      const { ask, answerToken } = await showAsk(clients, run.sessionId, target.ask.askId);
      expect([ask.state, answerToken]).toEqual([AskState.ANSWERED, ""]);
      const start = await refused(startCall(clients, run, ask.toolCallId));
      expect(start.reason).toBe("TOOL_CALL_ENDED");
    });

    test("while what the person saw is taken, and is what the store's secret signs", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const target = await shownAsk(clients, run);
      const session = { tenant: "default", sessionId: run.sessionId };
      expect(forge.tokenOf(session, target.ask)).toBe(target.answerToken);
      const { sha256: presentedSha256 } = given(target.ask.presented, "body");
      const { receipt } = await clients.approvals.answerAsk({
        ...answerTo(target),
        presentedSha256,
      });
      expect(receipt).toMatchObject({ askId: target.ask.askId, verdict: Verdict.ALLOW_ONCE });
      await startCall(clients, run, target.ask.toolCallId);
    });
  },
);
