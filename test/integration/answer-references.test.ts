import { readFile, rm } from "node:fs/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { AnswerAskRequestSchema } from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { ReviewJob } from "../../gen/toolmark/v1/review_pb.js";
import { answerTokens } from "../../src/ledger/answer-token.js";
import {
  answer,
  answerTo,
  openAsk,
  publishReview,
  reviewOf,
  showAsk,
  startCall,
} from "../support/asking.js";
import {
  acceptCall,
  amendCall,
  complete,
  freshRequestId,
  given,
  newCall,
  openRun,
  readCall,
} from "../support/conversation.js";
import { expectNothingWritten, writtenTo } from "../support/nothing-written.js";
import { refused, type Refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

type AnswerInit = MessageInitShape<typeof AnswerAskRequestSchema>;
type Shown = Awaited<ReturnType<typeof showAsk>>;

const UNKNOWN = "00000000000000000000000000";
const BASE64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const TENANT = "default";

/** Asks in every state that a wrong reference can lead to. */
interface Scene {
  readonly sessionId: string;
  /** The open ask that is answered; it names a review. */
  readonly right: Shown;
  /** Earlier asks of the same call, as they were shown while they were open. */
  readonly answered: Shown;
  readonly superseded: Shown;
  readonly beforeAmending: Shown;
  /** An open ask of another call, without a review, which takes no ALLOW_ALWAYS. */
  readonly plain: Shown;
  readonly otherReviewId: string;
  /** An open ask of another session. */
  readonly foreign: Shown;
  /** What the right ask's token would be if its ids were those of another session, tenant or log. */
  readonly tokens: { readonly session: string; readonly tenant: string; readonly log: string };
}

async function makeScene(clients: Clients): Promise<Scene> {
  const run = await openRun(clients);
  const { sessionId } = run;
  const { toolCallId } = await acceptCall(clients, run);
  const open = async (reviewId?: string): Promise<Shown> => {
    const init = reviewId === undefined ? {} : { reviewId };
    return showAsk(clients, sessionId, (await openAsk(clients, run, toolCallId, init)).askId);
  };
  const action = await publishReview(clients, run, reviewOf(toolCallId));
  const permission = reviewOf(toolCallId, { job: ReviewJob.PERMISSION });
  const { hookId: otherReviewId } = await publishReview(clients, run, permission);
  const answered = await open(action.hookId);
  await answer(clients, answered.ask);
  const superseded = await open(action.hookId);
  const beforeAmending = await open(action.hookId);
  await amendCall(clients, run, toolCallId, '{"command":"ls -l"}');
  const right = await open(action.hookId);

  const other = await acceptCall(clients, run, newCall("", "bash", "{}"));
  const allowedVerdicts = [Verdict.DENY, Verdict.ALLOW_ONCE];
  const plainAsk = await openAsk(clients, run, other.toolCallId, { allowedVerdicts });
  const plain = await showAsk(clients, sessionId, plainAsk.askId);
  const foreign = await foreignAsk(clients);
  const tokens = await tokensElsewhere(right.ask, given(foreign.ask.origin, "origin").sessionId);
  const earlier = { answered, superseded, beforeAmending };
  return { sessionId, right, ...earlier, plain, otherReviewId, foreign, tokens };
}

async function foreignAsk(clients: Clients): Promise<Shown> {
  const run = await openRun(clients);
  const { toolCallId } = await acceptCall(clients, run);
  return showAsk(clients, run.sessionId, (await openAsk(clients, run, toolCallId)).askId);
}

/** Tokens that the service makes of the same ids and arguments in another place. */
async function tokensElsewhere(ask: Ask, otherSessionId: string): Promise<Scene["tokens"]> {
  const { sessionId } = given(ask.origin, "origin");
  const secret = await readSecret();
  const of = (tenant: string, session: string, generation: bigint): string =>
    answerTokens(secret, generation).tokenOf({ tenant, sessionId: session }, ask);
  const here = (await showAsk(service.clients(), sessionId, ask.askId)).answerToken;
  expect(of(TENANT, sessionId, GENERATION)).toBe(here);
  return {
    session: of(TENANT, otherSessionId, GENERATION),
    tenant: of("other", sessionId, GENERATION),
    log: of(TENANT, sessionId, GENERATION + 1n),
  };
}

/** That of a store that was never restored. */
const GENERATION = 0n;

async function readSecret(): Promise<Uint8Array> {
  const { secret } = JSON.parse(await readFile(`${folder.path}.secret`, "utf8")) as {
    secret: string;
  };
  return Buffer.from(secret, "base64url");
}

interface WrongAnswer {
  readonly what: string;
  /** What is wrong, and that alone. */
  readonly change: (scene: Scene) => AnswerInit;
  /** The open ask that is answered; `right` if absent. */
  readonly to?: "plain";
  /** What is left out instead. */
  readonly omits?: "review";
  readonly code: Code;
  readonly reason: string;
  readonly metadata?: (scene: Scene) => Record<string, string>;
}

function mismatch(what: string, field: string, change: WrongAnswer["change"]): WrongAnswer {
  const metadata = () => ({ field });
  return { what, change, code: Code.FailedPrecondition, reason: "ANSWER_MISMATCH", metadata };
}

function malformed(
  what: string,
  field: string,
  rule: string,
  change: WrongAnswer["change"],
): WrongAnswer {
  const metadata = () => ({ field, rule });
  return { what, change, code: Code.InvalidArgument, reason: "FIELD_INVALID", metadata };
}

function notFound(what: string, reason: string, change: WrongAnswer["change"]): WrongAnswer {
  return { what, change, code: Code.NotFound, reason };
}

function badToken(what: string, tokenOf: (scene: Scene) => string): WrongAnswer {
  return {
    what: `the token ${what}`,
    change: (scene) => ({ answerToken: tokenOf(scene) }),
    ...{ code: Code.FailedPrecondition, reason: "ANSWER_TOKEN_INVALID" },
  };
}

const receiptOf = ({ ask }: Shown): Promise<string> =>
  showAsk(service.clients(), given(ask.origin, "origin").sessionId, ask.askId).then((shown) =>
    given(shown.ask.receiptId, "receipt id"),
  );

/** The token with another bit in the character at a place. */
function damaged({ right: { answerToken } }: Scene, at: number): string {
  const place = at < 0 ? answerToken.length + at : at;
  const other = BASE64URL[BASE64URL.indexOf(given(answerToken[place], "character")) ^ 1] ?? "";
  return answerToken.slice(0, place) + other + answerToken.slice(place + 1);
}

const SESSIONS_AND_ASKS: readonly WrongAnswer[] = [
  notFound("an unknown session", "SESSION_NOT_FOUND", () => ({ sessionId: `ses_${UNKNOWN}` })),
  notFound("another session", "ASK_NOT_FOUND", ({ foreign }) => ({
    sessionId: given(foreign.ask.origin, "origin").sessionId,
  })),
  notFound("an unknown ask", "ASK_NOT_FOUND", () => ({ askId: `ask_${UNKNOWN}` })),
  notFound("the id of a call instead of the ask's", "ASK_NOT_FOUND", ({ right }) => ({
    askId: right.ask.toolCallId,
  })),
  notFound("an open ask of another session", "ASK_NOT_FOUND", ({ foreign }) => ({
    askId: foreign.ask.askId,
  })),
  mismatch("an open ask of another call", "tool_call_id", ({ plain }) => ({
    askId: plain.ask.askId,
  })),
  {
    what: "an ask of the same call that a newer one replaced",
    change: ({ superseded }) => ({ askId: superseded.ask.askId }),
    ...{ code: Code.FailedPrecondition, reason: "ASK_SUPERSEDED" },
    metadata: ({ superseded, beforeAmending }) => ({
      ask_id: superseded.ask.askId,
      superseded_by_ask_id: beforeAmending.ask.askId,
    }),
  },
  {
    what: "an ask of the same call that amended arguments replaced",
    change: ({ beforeAmending }) => ({ askId: beforeAmending.ask.askId }),
    ...{ code: Code.FailedPrecondition, reason: "ASK_SUPERSEDED" },
    metadata: ({ right, beforeAmending }) => ({
      ask_id: beforeAmending.ask.askId,
      superseded_by_ask_id: right.ask.askId,
    }),
  },
];

const CALLS_AND_REVIEWS: readonly WrongAnswer[] = [
  mismatch("another call", "tool_call_id", ({ plain }) => ({ toolCallId: plain.ask.toolCallId })),
  mismatch("an unknown call", "tool_call_id", () => ({ toolCallId: `tc_${UNKNOWN}` })),
  mismatch("a call of another session", "tool_call_id", ({ foreign }) => ({
    toolCallId: foreign.ask.toolCallId,
  })),
  mismatch("another review of the call", "review_id", ({ otherReviewId }) => ({
    reviewId: otherReviewId,
  })),
  { ...mismatch("no review", "review_id", () => ({})), omits: "review" },
  {
    ...mismatch("a review that the ask does not name", "review_id", ({ right }) => ({
      reviewId: given(right.ask.reviewId, "review"),
    })),
    to: "plain",
  },
  malformed("an empty review id", "review_id", "is required", () => ({ reviewId: "" })),
];

const TOKENS: readonly WrongAnswer[] = [
  malformed("no token", "answer_token", "must be 1 to 512 printable ASCII characters", () => ({
    answerToken: "",
  })),
  badToken("with another first character", (scene) => damaged(scene, 0)),
  badToken("with another last character", (scene) => damaged(scene, -1)),
  badToken("without its last character", ({ right }) => right.answerToken.slice(0, -1)),
  badToken("with padding", ({ right }) => `${right.answerToken}=`),
  badToken("of an answered ask of the same call", ({ answered }) => answered.answerToken),
  badToken("of a superseded ask of the same call", ({ superseded }) => superseded.answerToken),
  badToken(
    "of the same call before its arguments changed",
    ({ beforeAmending }) => beforeAmending.answerToken,
  ),
  badToken("of an ask of another call", ({ plain }) => plain.answerToken),
  badToken("of an ask of another session", ({ foreign }) => foreign.answerToken),
  badToken("of the same ids in another session", ({ tokens }) => tokens.session),
  badToken("of the same ids in another tenant", ({ tokens }) => tokens.tenant),
  badToken("of the same ids in a restored log", ({ tokens }) => tokens.log),
];

const DIGESTS_AND_VERDICTS: readonly WrongAnswer[] = [
  mismatch("the digest of other arguments", "presented_sha256", ({ beforeAmending }) => ({
    presentedSha256: given(beforeAmending.ask.presented, "body").sha256,
  })),
  malformed("half a digest", "presented_sha256", "must be 32 bytes", ({ right }) => ({
    presentedSha256: given(right.ask.presented, "body").sha256.subarray(0, 16),
  })),
  malformed("the unspecified verdict, which is no denial", "verdict", "is required", () => ({
    verdict: Verdict.UNSPECIFIED,
  })),
  ...[Verdict.EXPIRED, Verdict.WITHDRAWN].map((verdict) =>
    malformed(
      `the verdict ${Verdict[verdict]}`,
      "verdict",
      "must be one of the values allowed here",
      () => ({ verdict }),
    ),
  ),
  {
    what: "a verdict that the ask does not allow",
    change: () => ({ verdict: Verdict.ALLOW_ALWAYS }),
    to: "plain",
    ...{ code: Code.FailedPrecondition, reason: "VERDICT_NOT_ALLOWED" },
    metadata: ({ plain }) => ({ ask_id: plain.ask.askId, verdict: "ALLOW_ALWAYS" }),
  },
];

const WRONG_ANSWERS = [
  ...SESSIONS_AND_ASKS,
  ...CALLS_AND_REVIEWS,
  ...TOKENS,
  ...DIGESTS_AND_VERDICTS,
];

let folder: StoreFolder;
let service: TestService;
let scene: Scene;

beforeAll(async () => {
  folder = await makeStoreFolder();
  service = await startTestService({ store: folder.store });
  scene = await makeScene(service.clients());
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

async function restart(): Promise<void> {
  await service.stop();
  service = await startTestService({ store: folder.store });
}

/** The answer that the ask takes, made of what was shown before anything was restarted. */
function rightAnswer(to: "right" | "plain"): AnswerInit {
  return answerTo(scene[to]);
}

function wrongAnswer({ to, change, omits }: WrongAnswer, requestId: string): AnswerInit {
  const { reviewId, ...rest } = rightAnswer(to ?? "right");
  const review = reviewId === undefined || omits === "review" ? {} : { reviewId };
  return { ...rest, ...review, ...change(scene), requestId };
}

async function expectOpen({ ask, answerToken }: Shown): Promise<void> {
  const now = await showAsk(service.clients(), scene.sessionId, ask.askId);
  expect(now).toEqual({ ...now, ask, answerToken });
  expect(now.ask.state).toBe(AskState.OPEN);
}

describe.each([
  ["grpc", "at once", () => Promise.resolve()],
  ["connect-json", "after a restart", restart],
] as const)("over %s, %s", (wire, _when, prepare) => {
  beforeAll(prepare);

  test.each(WRONG_ANSWERS)(
    "$what is refused as $reason, and the ask stays open with nothing written",
    async (wrong) => {
      const refusal = await expectNothingWritten(service, scene.sessionId, (requestId) =>
        service.clients(wire).approvals.answerAsk(wrongAnswer(wrong, requestId)),
      );
      const metadata = wrong.metadata?.(scene) ?? {};
      const { code, reason } = wrong;
      expect(refusal).toEqual({ code, reason, metadata, message: refusal.message });
      await expectOpen(scene[wrong.to ?? "right"]);
    },
  );

  test("an answered ask of the same call is refused as ASK_NOT_OPEN with its receipt", async () => {
    const { askId } = scene.answered.ask;
    const refusal = await expectNothingWritten(service, scene.sessionId, (requestId) => {
      const request = { ...rightAnswer("right"), askId, requestId };
      return service.clients(wire).approvals.answerAsk(request);
    });
    expect(refusal).toMatchObject({
      ...{ code: Code.FailedPrecondition, reason: "ASK_NOT_OPEN" },
      metadata: { ask_id: askId, receipt_id: await receiptOf(scene.answered) },
    } satisfies Partial<Refused>);
    await expectOpen(scene.right);
  });
});

test("the right answer, with the token shown before the restart, is then taken", async () => {
  const presentedSha256 = given(scene.right.ask.presented, "body").sha256;
  const request = { ...rightAnswer("right"), presentedSha256 };
  const { receipt } = await service.clients("grpc-web").approvals.answerAsk(request);
  expect(receipt).toMatchObject({
    ...{ askId: scene.right.ask.askId, toolCallId: scene.right.ask.toolCallId },
    ...{ verdict: Verdict.ALLOW_ONCE, presentedSha256 },
  });
  const call = await readCall(service.clients(), scene.sessionId, scene.right.ask.toolCallId);
  expect(call.effective?.sha256).toEqual(presentedSha256);
  await expectOpen(scene.plain);
});

test("without the secret file old tokens are refused, and a newly shown one is taken", async () => {
  const clients = service.clients();
  const run = await openRun(clients);
  const { toolCallId } = await acceptCall(clients, run);
  const { askId } = await openAsk(clients, run, toolCallId);
  const before = await showAsk(clients, run.sessionId, askId);
  await service.stop();
  await rm(`${folder.path}.secret`);
  service = await startTestService({ store: folder.store });

  const refusal = await expectNothingWritten(service, run.sessionId, (requestId) =>
    service.clients().approvals.answerAsk({ ...answerTo(before), requestId }),
  );
  expect(refusal).toMatchObject({ reason: "ANSWER_TOKEN_INVALID", metadata: {} });
  const shown = await showAsk(service.clients(), run.sessionId, askId);
  expect(shown.ask).toEqual(before.ask);
  expect(shown.answerToken).not.toBe(before.answerToken);
  await answer(service.clients(), shown.ask);
  await startCall(service.clients(), run, toolCallId);
  await complete(service.clients(), run, toolCallId);
});

test("an ask whose answer was taken shows no token, and its old one opens nothing", async () => {
  const { ask } = scene.right;
  const shown = await showAsk(service.clients(), scene.sessionId, ask.askId);
  expect(shown.answerToken).toBe("");
  const before = await writtenTo(service, service.clients(), scene.sessionId);
  const late = { ...rightAnswer("right"), requestId: freshRequestId() };
  const refusal = await refused(service.clients().approvals.answerAsk(late));
  expect(refusal.reason).toBe("ASK_NOT_OPEN");
  expect(await writtenTo(service, service.clients(), scene.sessionId)).toEqual(before);
});
