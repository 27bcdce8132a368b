import * as fc from "fast-check";
import { TakeOver } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { AskKind } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { ReviewDisposition, ReviewJob } from "../../gen/toolmark/v1/review_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";

/** A reference of an answer that is changed. */
export type WrongReference = "token" | "call" | "review" | "digest";

/** A step about a call. Picks are resolved against what is there when the step is taken. */
export type CallStep =
  | { readonly kind: "amend" | "start" | "reconcile"; readonly pick: number; readonly salt: number }
  | {
      readonly kind: "result";
      readonly pick: number;
      readonly end: ToolCallState;
      readonly bare: boolean;
    }
  | { readonly kind: "provisional" | "hook"; readonly pick: number }
  | {
      readonly kind: "review";
      readonly pick: number;
      readonly job: ReviewJob;
      readonly disposition: ReviewDisposition;
    }
  | {
      readonly kind: "openAsk";
      readonly pick: number;
      readonly asks: AskKind;
      /** Until when, from now. Absent: for ever. */
      readonly lifeMs: number | undefined;
      readonly reviewed: boolean;
      /** Other bytes are held than the later result has. */
      readonly other: boolean;
    }
  | {
      readonly kind: "park";
      readonly pick: number;
      /** The calls named to wait behind it: the right ones, also those whose result is held, or one that is none. */
      readonly behind: "right" | "held too" | "wrong";
      readonly lifeMs: number | undefined;
    };

/** A step by a command of the active run. */
export type CommandStep =
  | CallStep
  | { readonly kind: "endRun"; readonly outcome: RunOutcome; readonly listed: number }
  | { readonly kind: "acceptTurn"; readonly providerIds: readonly string[] }
  | { readonly kind: "withdraw"; readonly pick: number }
  | {
      readonly kind: "settle";
      readonly pick: number;
      readonly verdict: Verdict;
      readonly byHook: boolean;
    }
  | {
      readonly kind: "settleAuthorization";
      readonly pick: number;
      readonly outcome: AuthorizationState;
    }
  | { readonly kind: "message" };

/** A step that the rules decide. */
export type RuleStep =
  | CommandStep
  | { readonly kind: "beginRun"; readonly gate: StartGate; readonly takeOver: TakeOver | undefined }
  | {
      readonly kind: "answer";
      readonly pick: number;
      readonly verdict: Verdict;
      readonly wrong: WrongReference | undefined;
    }
  | { readonly kind: "jump"; readonly byMs: number }
  | { readonly kind: "expire"; readonly pick: number; readonly named: boolean }
  | { readonly kind: "endSession" };

/** What happens to a ledger beside its commands. */
export type FaultStep =
  | { readonly kind: "restart" | "crash" | "loseSnapshot" }
  | { readonly kind: "failCommit"; readonly stored: boolean }
  | { readonly kind: "retry"; readonly pick: number; readonly changed: boolean };

/** One step of a random history. */
export type Step = RuleStep | FaultStep;

const { constant, constantFrom, record } = fc;
const pick = fc.nat({ max: 100 });
const lifeMs = constantFrom(undefined, undefined, 20, 30_000);
const verdict = constantFrom(
  Verdict.ALLOW_ONCE,
  Verdict.ALLOW_ONCE,
  Verdict.ALLOW_ALWAYS,
  Verdict.DENY,
);

export const beginRunStep = record({
  kind: constant("beginRun" as const),
  gate: constantFrom(StartGate.REQUIRED, StartGate.OFF),
  takeOver: constantFrom(undefined, undefined, TakeOver.END, TakeOver.RESUME, TakeOver.RESUME),
});

export const acceptTurnStep = record({
  kind: constant("acceptTurn" as const),
  providerIds: fc.array(constantFrom("", "", "", "call_0", "call_1", "bash", "x", "y", "z"), {
    minLength: 1,
    maxLength: 3,
  }),
});

const endRunStep = record({
  kind: constant("endRun" as const),
  outcome: constantFrom(
    RunOutcome.COMPLETED,
    RunOutcome.PARKED,
    RunOutcome.PARKED,
    RunOutcome.INTERRUPTED,
  ),
  listed: pick,
});

const callStep = record({
  kind: constantFrom(
    "amend" as const,
    "start" as const,
    "start" as const,
    "start" as const,
    "start" as const,
    "reconcile" as const,
  ),
  pick,
  salt: fc.nat({ max: 3 }),
});

const resultStep = record({
  kind: constant("result" as const),
  pick,
  end: constantFrom(
    ToolCallState.UNSPECIFIED,
    ToolCallState.UNSPECIFIED,
    ToolCallState.FAILED,
    ToolCallState.BLOCKED,
    ToolCallState.WITHHELD,
    ToolCallState.TIMED_OUT,
  ),
  bare: fc.boolean(),
});

const evidenceStep = fc.oneof(
  record({ kind: constantFrom("provisional" as const, "hook" as const), pick }),
  record({
    kind: constant("review" as const),
    pick,
    job: constantFrom(ReviewJob.ACTION, ReviewJob.PERMISSION, ReviewJob.INBOUND),
    disposition: constantFrom(ReviewDisposition.DENY, ReviewDisposition.PASS_ADVISORY),
  }),
);

const openAskStep = record({
  kind: constant("openAsk" as const),
  pick,
  asks: constantFrom(AskKind.ACTION, AskKind.RESULT_RELEASE),
  lifeMs,
  reviewed: fc.nat({ max: 3 }).map((drawn) => drawn === 0),
  other: fc.nat({ max: 3 }).map((drawn) => drawn === 0),
});

const settlingStep = fc.oneof(
  {
    weight: 5,
    arbitrary: record({
      kind: constant("answer" as const),
      pick,
      verdict,
      wrong: constantFrom(undefined, undefined, undefined, "token", "call", "review", "digest"),
    }),
  },
  { weight: 1, arbitrary: record({ kind: constant("withdraw" as const), pick }) },
  {
    weight: 1,
    arbitrary: record({
      kind: constant("settle" as const),
      pick,
      verdict,
      byHook: fc.boolean(),
    }),
  },
);

const parkingStep = fc.oneof(
  record({
    kind: constant("park" as const),
    pick,
    behind: constantFrom("right" as const, "right" as const, "held too" as const, "wrong" as const),
    lifeMs,
  }),
  record({
    kind: constant("settleAuthorization" as const),
    pick,
    outcome: constantFrom(
      AuthorizationState.GRANTED,
      AuthorizationState.GRANTED,
      AuthorizationState.DENIED,
      AuthorizationState.CANCELLED,
      AuthorizationState.EXPIRED,
      AuthorizationState.INTERRUPTED,
      AuthorizationState.FAILED,
    ),
  }),
);

const timeStep = fc.oneof(
  record({ kind: constant("jump" as const), byMs: constantFrom(30, 1000, 40_000, -5000) }),
  record({ kind: constant("expire" as const), pick, named: fc.boolean() }),
);

/** What the rules decide, in roughly the mix of a real history. */
const RULE_STEPS: { readonly weight: number; readonly arbitrary: fc.Arbitrary<RuleStep> }[] = [
  { weight: 4, arbitrary: beginRunStep },
  { weight: 1, arbitrary: endRunStep },
  { weight: 4, arbitrary: acceptTurnStep },
  { weight: 12, arbitrary: callStep },
  { weight: 10, arbitrary: resultStep },
  { weight: 6, arbitrary: evidenceStep },
  { weight: 12, arbitrary: openAskStep },
  { weight: 20, arbitrary: settlingStep },
  { weight: 6, arbitrary: parkingStep },
  { weight: 4, arbitrary: timeStep },
  { weight: 1, arbitrary: record({ kind: constant("message" as const) }) },
];

export const ruleStep: fc.Arbitrary<RuleStep> = fc.oneof(...RULE_STEPS);

const faultStep = fc.oneof(
  {
    weight: 3,
    arbitrary: record({
      kind: constantFrom("restart" as const, "crash" as const, "loseSnapshot" as const),
    }),
  },
  {
    weight: 2,
    arbitrary: record({ kind: constant("failCommit" as const), stored: fc.boolean() }),
  },
  {
    weight: 4,
    arbitrary: record({ kind: constant("retry" as const), pick, changed: fc.boolean() }),
  },
);

/** The same with faults in between. */
export const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 7, arbitrary: ruleStep },
  { weight: 1, arbitrary: faultStep },
);

/** A run and a turn to begin with, so that most steps find something to act on; now and then the session's end. */
export function histories<S extends Step>(
  steps: fc.Arbitrary<S>,
  maxLength: number,
): fc.Arbitrary<(S | RuleStep)[]> {
  const end = fc.nat({ max: 15 }).map((drawn): RuleStep[] => {
    return drawn === 0 ? [{ kind: "endSession" }, { kind: "message" }] : [];
  });
  return fc
    .tuple(
      beginRunStep,
      acceptTurnStep,
      fc.array(steps, { minLength: 10, maxLength, size: "max" }),
      end,
    )
    .map(([begin, turn, rest, last]) => [begin, turn, ...rest, ...last]);
}
