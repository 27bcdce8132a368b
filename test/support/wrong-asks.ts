import { Code } from "@connectrpc/connect";
import { AskKind, AskProvenance, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState, type Authorization } from "../../gen/toolmark/v1/authorization_pb.js";
import { ReceiptPath, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { ReviewAssessment, ReviewInspection, ReviewJob } from "../../gen/toolmark/v1/review_pb.js";
import { reviewOf } from "./asking.js";
import { bytes, of, type CommandInit } from "./conversation.js";
import { sendAlone } from "./retried-requests.js";
import { apply, malformed, start, type Scene, type WrongCall } from "./wrong-calls.js";

/** A command by its own method. */
function sendCommand(command: (scene: Scene) => CommandInit): WrongCall["send"] {
  return (scene, requestId) => {
    const head = of(scene.run, requestId);
    return sendAlone(scene.clients, head, command(scene));
  };
}

const ASK = { kind: AskKind.ACTION, provenance: AskProvenance.PERMISSION };
const RELEASE = {
  ...{ kind: AskKind.RESULT_RELEASE, provenance: AskProvenance.HOOK_GUARDRAIL },
  heldSha256: new Uint8Array(32).fill(7),
};
const RULE = { path: ReceiptPath.RULE, rule: "rule 1" };
const NOT_ALLOWED_HERE = "must be one of the values allowed here";
const GRANTED = AuthorizationState.GRANTED;

function wrongField(
  what: string,
  field: string,
  rule: string,
  command: (scene: Scene) => CommandInit,
): WrongCall {
  return malformed(what, field, rule, sendCommand(command));
}

const MALFORMED_ASKS: readonly WrongCall[] = [
  wrongField("an ask of no kind", "command.kind", "is required", ({ accepted }) => ({
    case: "openAsk",
    value: { ...ASK, kind: AskKind.UNSPECIFIED, toolCallId: accepted.toolCallId },
  })),
  wrongField("an ask of nobody", "command.provenance", "is required", ({ accepted }) => ({
    case: "openAsk",
    value: { ...ASK, provenance: AskProvenance.UNSPECIFIED, toolCallId: accepted.toolCallId },
  })),
  wrongField(
    "an ask that is over when it is opened",
    "command.expire_time",
    "must be later than now",
    ({ accepted: { toolCallId } }) => ({
      case: "openAsk",
      value: { ...ASK, toolCallId, expireTime: { seconds: 1n } },
    }),
  ),
  wrongField(
    "an ask that cannot be denied",
    "command.allowed_verdicts",
    "must have DENY unless empty",
    ({ accepted: { toolCallId } }) => ({
      case: "openAsk",
      value: { ...ASK, toolCallId, allowedVerdicts: [Verdict.ALLOW_ONCE] },
    }),
  ),
  wrongField(
    "a release of nothing",
    "command.held_sha256",
    "must be 32 bytes",
    ({ started: { toolCallId } }) => ({
      case: "openAsk",
      value: { ...RELEASE, toolCallId, heldSha256: new Uint8Array(0) },
    }),
  ),
  wrongField("a settlement of no verdict", "command.verdict", "is required", ({ asks }) => ({
    case: "settleAsk",
    value: { ...RULE, askId: asks.open.askId },
  })),
  wrongField("a settlement by nothing", "command.path", "is required", ({ asks }) => ({
    case: "settleAsk",
    value: { askId: asks.open.askId, verdict: Verdict.DENY },
  })),
  wrongField("a settlement as a human's", "command.path", NOT_ALLOWED_HERE, ({ asks }) => ({
    case: "settleAsk",
    value: { askId: asks.open.askId, path: ReceiptPath.HUMAN, verdict: Verdict.DENY },
  })),
  wrongField("a settlement by an unnamed rule", "command.rule", "is required", ({ asks }) => ({
    case: "settleAsk",
    value: { askId: asks.open.askId, path: ReceiptPath.RULE, verdict: Verdict.DENY },
  })),
  wrongField(
    "an authorization that is over when it is asked for",
    "command.expire_time",
    "must be later than now",
    ({ accepted: { toolCallId } }) => ({
      case: "parkToolCall",
      value: { toolCallId, displayName: "calendar", expireTime: { seconds: 1n } },
    }),
  ),
  wrongField("an unnamed authorization", "command.display_name", "is required", (scene) => ({
    case: "parkToolCall",
    value: { toolCallId: scene.accepted.toolCallId },
  })),
  ...[AuthorizationState.UNSPECIFIED, AuthorizationState.PENDING, AuthorizationState.CLOSED].map(
    (outcome) =>
      wrongField(
        `the outcome ${AuthorizationState[outcome]} of an authorization`,
        "command.outcome",
        outcome === AuthorizationState.UNSPECIFIED ? "is required" : NOT_ALLOWED_HERE,
        ({ pending: { authorizationId } }) => ({
          case: "settleAuthorization",
          value: { authorizationId, outcome },
        }),
      ),
  ),
  wrongField("a review for no job", "command.review.job", "is required", ({ accepted }) => ({
    case: "publishReview",
    value: reviewOf(accepted.toolCallId, { job: ReviewJob.UNSPECIFIED }),
  })),
  wrongField(
    "a finding of an inspection that failed",
    "command.review.assessment",
    "must be UNRESOLVED if inspection is OPERATIONAL_FAILURE",
    ({ accepted }) => ({
      case: "publishReview",
      value: reviewOf(accepted.toolCallId, {
        inspection: ReviewInspection.OPERATIONAL_FAILURE,
        assessment: ReviewAssessment.PROHIBITED,
      }),
    }),
  ),
];

/** A refusal of a command for a reason of its own. */
function wrongCommand(
  what: string,
  reason: string,
  metadata: (scene: Scene) => Record<string, string>,
  command: (scene: Scene) => CommandInit,
  code = Code.FailedPrecondition,
): WrongCall {
  return { what, code, reason, metadata, send: sendCommand(command) };
}

const none = (): Record<string, string> => ({});
const atField = (field: string) => () => ({ field });

const FOREIGN_ASKS: readonly WrongCall[] = [
  wrongCommand(
    ...(["an ask about another session's call", "TOOL_CALL_NOT_FOUND", none] as const),
    ({ other }) => ({ case: "openAsk", value: { ...ASK, toolCallId: other.call.toolCallId } }),
    Code.NotFound,
  ),
  wrongCommand(
    ...(["a withdrawal of another session's ask", "ASK_NOT_FOUND", none] as const),
    ({ other }) => ({ case: "withdrawAsk", value: { askId: other.ask.askId } }),
    Code.NotFound,
  ),
  wrongCommand(
    ...(["a settlement of another session's ask", "ASK_NOT_FOUND", none] as const),
    ({ other }) => ({
      case: "settleAsk",
      value: { ...RULE, askId: other.ask.askId, verdict: Verdict.DENY },
    }),
    Code.NotFound,
  ),
  wrongCommand(
    ...(["a settlement by another session's hook", "HOOK_NOT_FOUND", none] as const),
    ({ asks, other: { hookId } }) => ({
      case: "settleAsk",
      value: { askId: asks.open.askId, path: ReceiptPath.HOOK, hookId, verdict: Verdict.DENY },
    }),
    Code.NotFound,
  ),
  wrongCommand(
    ...(["a grant of another session's authorization", "AUTHORIZATION_NOT_FOUND", none] as const),
    ({ other: { pending } }) => ({
      case: "settleAuthorization",
      value: { authorizationId: pending.authorizationId, outcome: GRANTED },
    }),
    Code.NotFound,
  ),
  wrongCommand(
    ...(["a parking of another session's call", "TOOL_CALL_NOT_FOUND", none] as const),
    ({ other: { call } }) => ({
      case: "parkToolCall",
      value: { toolCallId: call.toolCallId, displayName: "calendar" },
    }),
    Code.NotFound,
  ),
  wrongCommand(
    "a review that was born in another session",
    ...(["ORIGIN_MISMATCH", atField("command.origin")] as const),
    ({ accepted, other: { run } }) => ({
      case: "publishReview",
      value: reviewOf(accepted.toolCallId, {}, { origin: { sessionId: run.sessionId } }),
    }),
    Code.InvalidArgument,
  ),
];

const ASK_REFERENCES: readonly WrongCall[] = [
  wrongCommand(
    "a review with an id of its own",
    ...(["REVIEW_ID_MISMATCH", atField("command.review.review_id")] as const),
    ({ accepted }) => ({
      case: "publishReview",
      value: reviewOf(accepted.toolCallId, { reviewId: "rv_1" }),
    }),
    Code.InvalidArgument,
  ),
  wrongCommand(
    ...(["an ask for an unknown review", "HOOK_NOT_FOUND", none] as const),
    ({ accepted: { toolCallId } }) => ({
      case: "openAsk",
      value: { ...ASK, toolCallId, reviewId: "rv_1" },
    }),
    Code.NotFound,
  ),
  wrongCommand(
    "an ask for a hook that is no review",
    ...(["REFERENCE_MISMATCH", atField("command.review_id")] as const),
    ({ asks: { open }, hookId }) => ({
      case: "openAsk",
      value: { ...ASK, toolCallId: open.toolCallId, reviewId: hookId },
    }),
    Code.InvalidArgument,
  ),
  wrongCommand(
    "an ask for the review of another call",
    ...(["REFERENCE_MISMATCH", atField("command.review_id")] as const),
    ({ asks: { open }, reviewId }) => ({
      case: "openAsk",
      value: { ...ASK, toolCallId: open.toolCallId, reviewId },
    }),
    Code.InvalidArgument,
  ),
  wrongCommand(
    "a release for the review of an action",
    ...(["REFERENCE_MISMATCH", atField("command.review_id")] as const),
    ({ accepted: { toolCallId }, reviewId }) => ({
      case: "openAsk",
      value: { ...RELEASE, toolCallId, reviewId },
    }),
    Code.InvalidArgument,
  ),
  wrongCommand(
    "a settlement by a hook about another call",
    ...(["REFERENCE_MISMATCH", atField("command.hook_id")] as const),
    ({ asks, reviewId: hookId }) => ({
      case: "settleAsk",
      value: { askId: asks.open.askId, path: ReceiptPath.HOOK, hookId, verdict: Verdict.DENY },
    }),
    Code.InvalidArgument,
  ),
  wrongCommand(
    "a parking that names a call of another turn as deferred",
    ...(["REFERENCE_MISMATCH", atField("command.deferred_tool_call_ids")] as const),
    ({ accepted: { toolCallId }, started }) => ({
      case: "parkToolCall",
      value: {
        ...{ toolCallId, displayName: "calendar" },
        deferredToolCallIds: [started.toolCallId],
      },
    }),
    Code.InvalidArgument,
  ),
];

type SettledAsk = "answered" | "withdrawn" | "expired" | "superseded";
const SETTLED_REASON: Record<SettledAsk, string> = {
  answered: "ASK_NOT_OPEN",
  withdrawn: "ASK_NOT_OPEN",
  expired: "ASK_EXPIRED",
  superseded: "ASK_SUPERSEDED",
};

/** What is told of a settled ask: its receipt if it has one. */
function told({ askId, receiptId }: Ask): Record<string, string> {
  return { ask_id: askId, ...(receiptId === undefined ? {} : { receipt_id: receiptId }) };
}

function ofSettledAsk(name: SettledAsk): WrongCall[] {
  const reason = SETTLED_REASON[name];
  const metadata = ({ asks }: Scene) => told(asks[name]);
  return [
    wrongCommand(`a withdrawal of an ask that was ${name}`, reason, metadata, ({ asks }) => ({
      case: "withdrawAsk",
      value: { askId: asks[name].askId },
    })),
    wrongCommand(`a settlement of an ask that was ${name}`, reason, metadata, ({ asks }) => ({
      case: "settleAsk",
      value: { ...RULE, askId: asks[name].askId, verdict: Verdict.ALLOW_ONCE },
    })),
    {
      ...{ what: `an answer to an ask that was ${name}`, reason, metadata },
      code: Code.FailedPrecondition,
      send: ({ clients, asks, run: { sessionId } }, requestId) =>
        clients.approvals.answerAsk({
          ...{ requestId, sessionId, askId: asks[name].askId, answerToken: "any" },
          ...{ toolCallId: asks[name].toolCallId, verdict: Verdict.DENY },
        }),
    },
  ];
}

function startOf({ toolCallId }: { toolCallId: string }): CommandInit {
  return { case: "startToolCall", value: { toolCallId, argumentsSha256: new Uint8Array(32) } };
}

function resultOf({ toolCallId }: { toolCallId: string }, text: string): CommandInit {
  const value = { content: { data: bytes(text) } };
  return { case: "recordResult", value: { toolCallId, result: { case: "canonical", value } } };
}

function waitingCall(what: string, command: (ask: Ask) => CommandInit): WrongCall {
  return wrongCommand(
    `${what} of a call that waits for an answer`,
    "START_NOT_ALLOWED",
    ({ asks: { open } }) => ({ tool_call_id: open.toolCallId, ask_id: open.askId }),
    ({ asks: { open } }) => command(open),
  );
}

function parkedCall(what: string, command: (call: Authorization) => CommandInit): WrongCall {
  return wrongCommand(
    `${what} of a call that waits for an authorization`,
    "START_NOT_ALLOWED",
    ({ pending }) => ({
      tool_call_id: pending.toolCallId,
      authorization_id: pending.authorizationId,
    }),
    ({ pending }) => command(pending),
  );
}

const WRONG_STATES_OF_ASKS: readonly WrongCall[] = [
  ...(["answered", "withdrawn", "expired", "superseded"] as const).flatMap(ofSettledAsk),
  wrongCommand(
    "a verdict that the ask does not allow",
    "VERDICT_NOT_ALLOWED",
    ({ asks: { open } }) => ({ ask_id: open.askId, verdict: "ALLOW_ALWAYS" }),
    ({ asks: { open } }) => ({
      case: "settleAsk",
      value: { ...RULE, askId: open.askId, verdict: Verdict.ALLOW_ALWAYS },
    }),
  ),
  {
    what: "an answer with a token of no ask",
    code: Code.FailedPrecondition,
    reason: "ANSWER_TOKEN_INVALID",
    metadata: {},
    send: ({ clients, asks: { open }, run: { sessionId } }, requestId) =>
      clients.approvals.answerAsk({
        ...{ requestId, sessionId, askId: open.askId, answerToken: "any" },
        ...{ toolCallId: open.toolCallId, verdict: Verdict.DENY },
      }),
  },
  {
    what: "an answer about another call",
    code: Code.FailedPrecondition,
    reason: "ANSWER_MISMATCH",
    metadata: { field: "tool_call_id" },
    send: ({ clients, accepted, asks: { open }, run: { sessionId } }, requestId) =>
      clients.approvals.answerAsk({
        ...{ requestId, sessionId, askId: open.askId, answerToken: "any" },
        ...{ toolCallId: accepted.toolCallId, verdict: Verdict.DENY },
      }),
  },
  waitingCall("a start", startOf),
  waitingCall("a result", (ask) => resultOf(ask, "x")),
  waitingCall("a parking", ({ toolCallId }) => ({
    case: "parkToolCall",
    value: { toolCallId, displayName: "calendar" },
  })),
  parkedCall("a start", startOf),
  parkedCall("a result", (call) => resultOf(call, "x")),
  parkedCall("an ask", ({ toolCallId }) => ({ case: "openAsk", value: { ...ASK, toolCallId } })),
  parkedCall("a second parking", ({ toolCallId }) => ({
    case: "parkToolCall",
    value: { toolCallId, displayName: "calendar" },
  })),
  wrongCommand(
    "a settlement of a settled authorization",
    "AUTHORIZATION_NOT_PENDING",
    ({ granted: { authorizationId } }) => ({ authorization_id: authorizationId, state: "GRANTED" }),
    ({ granted: { authorizationId } }) => ({
      case: "settleAuthorization",
      value: { authorizationId, outcome: AuthorizationState.DENIED },
    }),
  ),
  {
    what: "a start after the arguments that were asked about changed",
    code: Code.FailedPrecondition,
    reason: "START_NOT_ALLOWED",
    metadata: ({ asks: { superseded } }) => ({ tool_call_id: superseded.toolCallId }),
    send: async ({ clients, run, asks: { superseded } }, requestId) => {
      const { toolCallId } = superseded;
      const { toolCall } = await clients.history.getToolCall({ ...run, toolCallId });
      if (toolCall === undefined) throw new Error("the reply has no call");
      return start(clients, run, toolCall, requestId);
    },
  },
  wrongCommand(
    "an ask about a call that has started",
    "TOOL_CALL_STARTED",
    ({ started: { toolCallId } }) => ({ tool_call_id: toolCallId }),
    ({ started: { toolCallId } }) => ({ case: "openAsk", value: { ...ASK, toolCallId } }),
  ),
  wrongCommand(
    "an ask about a call that has ended",
    "TOOL_CALL_ENDED",
    ({ completed: { toolCallId } }) => ({ tool_call_id: toolCallId, state: "COMPLETED" }),
    ({ completed: { toolCallId } }) => ({ case: "openAsk", value: { ...ASK, toolCallId } }),
  ),
  ...(["held", "barred"] as const).map((name) =>
    wrongCommand(
      `a result whose release is ${name === "held" ? "asked for" : "denied"}`,
      "RESULT_HELD",
      ({ asks }) => ({ tool_call_id: asks[name].toolCallId }),
      ({ asks }) => resultOf(asks[name], "x"),
    ),
  ),
  wrongCommand(
    "a result other than the released one",
    "RESULT_MISMATCH",
    ({ asks: { released } }) => ({ tool_call_id: released.toolCallId }),
    ({ asks: { released } }) => resultOf(released, "another"),
  ),
  wrongCommand(
    "more open asks than a session may have",
    "QUOTA_EXCEEDED",
    () => ({ field: "command", limit: "3" }),
    ({ accepted: { toolCallId } }) => ({ case: "openAsk", value: { ...ASK, toolCallId } }),
    Code.ResourceExhausted,
  ),
  {
    what: "an Apply whose last command takes back an unknown ask",
    code: Code.NotFound,
    reason: "ASK_NOT_FOUND",
    metadata: { command: "1" },
    send: (scene, requestId) =>
      apply(
        scene,
        requestId,
        { case: "withdrawAsk", value: { askId: scene.asks.open.askId } },
        { case: "withdrawAsk", value: { askId: "ask_1" } },
      ),
  },
];

/** Requests about asks, authorizations and reviews that must be refused. */
export const WRONG_ASKS: readonly WrongCall[] = [
  ...MALFORMED_ASKS,
  ...FOREIGN_ASKS,
  ...ASK_REFERENCES,
  ...WRONG_STATES_OF_ASKS,
];
