import * as fc from "fast-check";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { DelegationKind } from "../../gen/toolmark/v1/session_pb.js";

/** A step about a call of a session. Picks are resolved against what is there when the step is taken. */
export interface OnCall<Kind> {
  readonly kind: Kind;
  readonly session: number;
  readonly call: number;
}

/** A step that changes which sessions there are. */
export type StructureStep =
  | { readonly kind: "createRoot"; readonly gate: StartGate }
  | (OnCall<"createChild"> & { readonly as: DelegationKind; readonly gate: StartGate })
  | { readonly kind: "compact"; readonly session: number; readonly percent: number }
  | { readonly kind: "fork"; readonly session: number; readonly percent: number }
  | { readonly kind: "endSession"; readonly session: number; readonly cancels: boolean };

/** A step of the agent that a session belongs to. */
export type AgentStep =
  | { readonly kind: "beginRun"; readonly session: number; readonly gate: StartGate }
  | { readonly kind: "endRun"; readonly session: number; readonly outcome: RunOutcome }
  | { readonly kind: "acceptTurn"; readonly session: number; readonly calls: number }
  | { readonly kind: "message"; readonly session: number }
  | OnCall<"start" | "ask" | "result" | "hook">
  /** A result, a hook record or an ask for a call that a fork copied. */
  | (OnCall<"touchCopied"> & { readonly as: "ask" | "result" | "hook" })
  | (OnCall<"answer"> & { readonly verdict: Verdict })
  | OnCall<"withdraw">;

/** What happens to a ledger beside its commands. */
export type OutsideStep =
  | { readonly kind: "restart" | "crash" | "loseSnapshot" }
  | { readonly kind: "retry"; readonly pick: number };

/** One step of a random history of trees of sessions. */
export type TreeStep = StructureStep | AgentStep | OutsideStep;

const { constant, constantFrom, record } = fc;
const pick = fc.nat({ max: 1_000 });
const gate = constantFrom(StartGate.OFF, StartGate.OFF, StartGate.REQUIRED);
const onCall = { session: pick, call: pick };

const createRoot = record({ kind: constant("createRoot" as const), gate });

const createChild = record({
  kind: constant("createChild" as const),
  ...onCall,
  as: constantFrom(
    DelegationKind.SUBAGENT,
    DelegationKind.PARALLEL_BRANCH,
    DelegationKind.TEAM_MEMBER,
  ),
  gate,
});

const compact = record({
  kind: constant("compact" as const),
  session: pick,
  percent: fc.integer({ min: 30, max: 100 }),
});

const fork = record({
  kind: constant("fork" as const),
  session: pick,
  percent: fc.integer({ min: 30, max: 100 }),
});

const touchCopied = record({
  kind: constant("touchCopied" as const),
  ...onCall,
  as: constantFrom("ask" as const, "result" as const, "hook" as const),
});

const endSession = record({
  kind: constant("endSession" as const),
  session: pick,
  cancels: fc.boolean(),
});

const acceptTurn = record({
  kind: constant("acceptTurn" as const),
  session: pick,
  calls: fc.integer({ min: 1, max: 3 }),
});

const run = fc.oneof(
  record({ kind: constant("beginRun" as const), session: pick, gate }),
  record({
    kind: constant("endRun" as const),
    session: pick,
    outcome: constantFrom(RunOutcome.COMPLETED, RunOutcome.PARKED, RunOutcome.INTERRUPTED),
  }),
);

const aboutCall = record({
  kind: constantFrom(
    "start" as const,
    "start" as const,
    "ask" as const,
    "ask" as const,
    "ask" as const,
    "ask" as const,
    "result" as const,
    "result" as const,
    "hook" as const,
  ),
  ...onCall,
});

const settling = fc.oneof(
  record({
    kind: constant("answer" as const),
    ...onCall,
    verdict: constantFrom(Verdict.ALLOW_ONCE, Verdict.ALLOW_ONCE, Verdict.DENY),
  }),
  record({ kind: constant("withdraw" as const), ...onCall }),
);

const outside = fc.oneof(
  record({
    kind: constantFrom("restart" as const, "crash" as const, "loseSnapshot" as const),
  }),
  record({ kind: constant("retry" as const), pick }),
);

/** Every kind of step, in roughly the mix of a real history. */
const TREE_STEPS: { readonly weight: number; readonly arbitrary: fc.Arbitrary<TreeStep> }[] = [
  { weight: 1, arbitrary: createRoot },
  { weight: 10, arbitrary: createChild },
  { weight: 4, arbitrary: compact },
  { weight: 4, arbitrary: fork },
  { weight: 2, arbitrary: touchCopied },
  { weight: 1, arbitrary: endSession },
  { weight: 4, arbitrary: acceptTurn },
  { weight: 3, arbitrary: run },
  { weight: 20, arbitrary: aboutCall },
  { weight: 7, arbitrary: settling },
  { weight: 1, arbitrary: record({ kind: constant("message" as const), session: pick }) },
  { weight: 4, arbitrary: outside },
];

/** Histories of trees: a root and a child to begin with, so that most steps find something to act on. */
export function treeHistories(maxLength: number): fc.Arbitrary<TreeStep[]> {
  const rest = fc.array(fc.oneof(...TREE_STEPS), { minLength: 15, maxLength, size: "max" });
  return fc.tuple(createRoot, createChild, rest).map(([root, child, steps]) => {
    return [root, child, ...steps];
  });
}
