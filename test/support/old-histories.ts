import * as fc from "fast-check";
import { isEntry } from "./old-model.js";
import type {
  OldAsk,
  OldCall,
  OldGuardrail,
  OldHook,
  OldItem,
  OldModel,
  OldReview,
} from "./old-model.js";

const { boolean, constant, constantFrom, nat, record } = fc;
type Drawn<Of> = Of extends fc.Arbitrary<infer Value> ? Value : never;

function maybe<Value>(value: fc.Arbitrary<Value>): fc.Arbitrary<Value | undefined> {
  return fc.option(value, { nil: undefined, freq: 1 });
}

/** One of the keys, by weight. */
function weighted<Key extends string>(weights: Readonly<Record<Key, number>>): fc.Arbitrary<Key> {
  const entries = Object.entries(weights) as [Key, number][];
  return fc.oneof(...entries.map(([key, weight]) => ({ weight, arbitrary: constant(key) })));
}

/** Few ids, so that histories repeat them: three in four are plain, the rest hostile. */
const PLAIN_IDS = ["call_1", "call_2", "call_3", "toolu_01AbC", "bash:0"] as const;
const HOSTILE_IDS = [
  "",
  "",
  "s:1:call_1",
  " call 7",
  "вызов-λ",
  'a<b>&"c"\\',
  "x".repeat(300),
] as const;
const providerCallId = fc.oneof(
  { weight: 3, arbitrary: constantFrom(...PLAIN_IDS) },
  { weight: 1, arbitrary: constantFrom(...HOSTILE_IDS) },
);

/** Texts that a decoder which parses and writes again would change, and plain ones. */
const ODD_ARGUMENTS = [
  ...["{}", '{ "a" : 1.0e+2,  "b":[1, 2 ] }', '{"a":1,"a":2}', '{"n":12345678901234567890}'],
  ...["[]", '"text"', "0.10", "-0", "true", '{"s":"\\u003c\\/\\u00E9\\ud83d\\ude00"}'],
  ...['{"h":"<b>&\u2028é調"}', '{"ID":"call_1","Args":null}', '\t{"__proto__":{}} '],
];
const argumentsText = fc.oneof(
  { weight: 1, arbitrary: constant(null) },
  { weight: 5, arbitrary: constantFrom(...ODD_ARGUMENTS) },
  { weight: 4, arbitrary: fc.json({ maxDepth: 2 }).map((json) => `{"value":${json}}`) },
);

const text = fc.oneof(
  constantFrom("", "done", "line\nbreak <b>&\u2028\u0001", '{"ID":"call_1"}', "調べる"),
  fc.string({ unit: "grapheme", maxLength: 12 }),
);
const toolName = constantFrom("Shell", "Read", "Write", "get_weather", "PresentPlan", "");
const spoken = {
  text,
  reasoning: maybe(constantFrom("because", "gAAA<&>=")),
  phase: maybe(constantFrom("commentary", "final_answer")),
  reasoningItemId: maybe(constantFrom("rs_1", "rs_2")),
  fragments: nat({ max: 6 }),
};

const askDraft = record({
  form: weighted({ threePart: 3, fourPart: 3, plain: 1, child: 1 }),
  about: weighted({ permission: 4, plan: 1, hook: 1, action: 2, release: 1 }),
  provenance: weighted({ origin: 4, booleans: 2, none: 1 }),
  argumentsOf: weighted({ call: 3, other: 1 }),
  otherArguments: argumentsText,
  namesCall: fc.nat({ max: 3 }).map((drawn) => drawn > 0),
  repeatAvailable: boolean(),
});
type AskDraft = Drawn<typeof askDraft>;

const callDraft = record({
  ...{ providerCallId, itemId: maybe(constantFrom("fc_1", "fc_2")), name: toolName, argumentsText },
  ...{ ask: askDraft, content: text, isError: boolean() },
  gate: weighted({
    ...{ none: 8, hook: 2, earlyHook: 1, twoOutcomes: 1, review: 2, allowed: 3, denied: 1 },
    ...{ askedTwice: 1, retracted: 1, authorized: 1 },
  }),
  /** Hostile histories only; in the others every call is answered once. */
  fate: weighted({ answered: 8, unanswered: 1, answeredTwice: 1 }),
});
type CallDraft = Drawn<typeof callDraft>;

const exchange = record({
  ...{ ...spoken, kind: constant("exchange" as const) },
  calls: fc.array(callDraft, { minLength: 1, maxLength: 4 }),
  dispatch: weighted({ serial: 3, batch: 1 }),
  backwards: weighted({ no: 4, yes: 1 }),
  /** Hostile histories only: the second call takes the id of the first. */
  duplicate: weighted({ no: 4, yes: 1 }),
});
type Exchange = Drawn<typeof exchange>;

const run = record({
  kind: constant("run" as const),
  runId: constantFrom("run-1", "run_ü", "r:2"),
});
const stray = fc.oneof(
  record({ kind: constant("gap" as const), reason: constantFrom("append failed", "") }),
  constant({ kind: "restart" as const }),
  record({
    kind: constant("unknown" as const),
    type: constantFrom("tool.progress", "provider.route", "future.event", "no_progress", ""),
    text,
  }),
);

/** Every kind of step, in roughly the mix of a real history. */
const STEPS = fc.oneof(
  { weight: 20, arbitrary: exchange },
  { weight: 8, arbitrary: record({ kind: constant("user" as const), ...spoken }) },
  { weight: 4, arbitrary: record({ kind: constant("assistant" as const), ...spoken }) },
  { weight: 1, arbitrary: record({ kind: constant("system" as const), ...spoken }) },
  { weight: 4, arbitrary: stray },
  { weight: 2, arbitrary: run },
  {
    weight: 2,
    arbitrary: record({
      kind: constant("archive" as const),
      summary: text,
      keptSteps: nat({ max: 3 }),
      /** Hostile histories only: messages kept of one step more, which may part call and result. */
      more: nat({ max: 2 }),
      reach: weighted({ context: 1, session: 1 }),
    }),
  },
  {
    /** Hostile histories only. */
    weight: 2,
    arbitrary: record({
      kind: constant("result" as const),
      providerCallId,
      content: text,
      isError: boolean(),
    }),
  },
);
type Step = Drawn<typeof STEPS>;

/** How histories end: in two of three what is pending and the state agree with the last turn. */
const ending = record({
  kind: weighted({
    ...{ settled: 5, crashed: 2, awaiting: 8, authorizing: 5 },
    ...{ missingPending: 1, strayPending: 1, unmatched: 1, ambiguous: 2, answered: 1 },
    ...{ renamed: 1, shortDeferred: 1, unsafeId: 1 },
  }),
  exchange,
  at: nat({ max: 3 }),
  state: constantFrom(
    "idle" as const,
    "completed" as const,
    "failed" as const,
    "cancelled" as const,
  ),
  /** Effective arguments are stored as bytes, so that they alone may have line breaks. */
  effective: fc.oneof(argumentsText, constant('{\n  "h": "<&>\u2028" }\r\n')),
});
type Ending = Drawn<typeof ending>;

function askId(session: string, results: number, callId: string, form: AskDraft["form"]): string {
  if (form === "plain") return `ask-${results}`;
  if (form === "child") return `subagent-${session}-${callId}:${results}:call_1:r2`;
  return `${session}:${results}:${callId}${form === "fourPart" ? ":r12" : ""}`;
}

function makeGuardrail(session: string, call: OldCall, draft: AskDraft): OldGuardrail | undefined {
  const { about, repeatAvailable } = draft;
  if (about === "permission" || about === "plan") return undefined;
  const job = about === "release" ? "inbound" : "action";
  return {
    reviewId: about === "hook" ? "" : `${session}:${call.providerCallId}:${job}`,
    kind: about === "release" ? "result_release" : "action",
    grantDigest: about === "release" ? "" : "9f86d081",
    sessionOnly: repeatAvailable,
    repeatAvailable,
  };
}

function makeAsk(session: string, results: number, call: OldCall, draft: AskDraft): OldAsk {
  const { about, provenance, namesCall, form } = draft;
  const origin = about === "permission" || about === "plan" ? about : "hook_guardrail";
  const ownArguments = draft.argumentsOf === "call" ? call.argumentsText : draft.otherArguments;
  return {
    askId: askId(session, results, call.providerCallId, form),
    tool: call.name,
    argumentsText: about === "release" ? null : ownArguments,
    reason: `needs ${about} <&>`,
    ...{ providerCallId: call.providerCallId, namesCall },
    guardrail: makeGuardrail(session, call, draft),
    ...(provenance === "origin" && { origin }),
    ...(provenance === "booleans" && {
      hookOriginated: origin === "hook_guardrail",
      planOriginated: origin === "plan",
    }),
  };
}

function makeReview(session: string, call: OldCall, isInbound: boolean): OldReview {
  const job = isInbound ? "inbound" : "action";
  return {
    reviewId: `${session}:${call.providerCallId}:${job}`,
    ...{ job, assessment: isInbound ? "unresolved" : "acceptable", inspection: "complete" },
    disposition: isInbound ? "pass_advisory" : "execute",
    reasonCode: isInbound ? "inspection_unresolved" : "",
    concerns: isInbound ? [{ ref: "c1", category: "exfiltration" }] : [],
  };
}

/** Grows the items of one session. */
class HistoryBuilder {
  readonly items: OldItem[] = [];
  runId = "run-0";
  /** Results of the run so far. */
  #results = 0;
  /** How many messages of the context each step gave. */
  #sizes: number[] = [];

  constructor(
    readonly session: string,
    readonly isHostile: boolean,
  ) {}

  take(step: Step): void {
    const before = this.items.length;
    if (step.kind === "exchange") this.#exchange(step);
    else if (step.kind === "archive") this.#archive(step);
    else if (step.kind === "result") this.items.push(...(this.isHostile ? [step] : []));
    else if (step.kind === "run") this.#run(step.runId);
    else if (step.kind === "user" || step.kind === "system") {
      this.items.push({ kind: "message", role: step.kind, text: step.text });
    } else if (step.kind === "assistant") {
      this.items.push({ ...step, kind: "message", role: "assistant" });
    } else this.items.push(step);
    this.#sizes.push(this.items.slice(before).filter(isEntry).length);
  }

  /** The calls of a turn, with ids of their own unless `duplicate`. */
  distinct({ calls }: Exchange): CallDraft[] {
    const seen = new Set<string>();
    return calls.map((call, index) => {
      const isTaken = seen.has(call.providerCallId);
      const id = isTaken ? `${call.providerCallId}/${index}` : call.providerCallId;
      seen.add(id);
      return { ...call, providerCallId: id };
    });
  }

  turn(drawn: Exchange, drafts: readonly CallDraft[], undispatched: number): readonly OldCall[] {
    const { text: said, reasoning, phase, reasoningItemId, fragments, dispatch } = drawn;
    const calls = drafts.map(({ providerCallId: id, itemId, name, argumentsText: args }) => {
      return { providerCallId: id, itemId, name, argumentsText: args };
    });
    this.items.push({
      ...{ kind: "turn", text: said, reasoning, phase, reasoningItemId, fragments },
      ...{ calls, dispatch, undispatched },
    });
    return calls;
  }

  ask(call: CallDraft): OldAsk {
    const ask = makeAsk(this.session, this.#results, call, call.ask);
    this.items.push({ kind: "ask", ask });
    return ask;
  }

  /** What happens to a call before its result, and the result. */
  answer(call: CallDraft): void {
    this.#gate(call);
    const { providerCallId: id, content, isError } = call;
    this.items.push({ kind: "result", providerCallId: id, content, isError });
    this.#results += 1;
  }

  authorization(call: OldCall, authorizationId: string, status: string): void {
    const { providerCallId: id } = call;
    this.items.push({
      ...{ kind: "authorization", authorizationId, displayName: "Files", providerCallId: id },
      ...{ expiresAt: EXPIRES_AT, status },
    });
  }

  #exchange(drawn: Exchange): void {
    const calls = this.isHostile ? [...drawn.calls] : this.distinct(drawn);
    const [first, second] = calls;
    if (this.isHostile && drawn.duplicate === "yes" && first && second) {
      calls[1] = { ...second, providerCallId: first.providerCallId };
    }
    this.turn(drawn, calls, 0);
    for (const call of drawn.backwards === "yes" ? calls.toReversed() : calls) {
      const fate = this.isHostile ? call.fate : "answered";
      if (fate === "unanswered") this.#gate(call);
      else this.answer(call);
      if (fate === "answeredTwice") this.answer({ ...call, gate: "none" });
    }
  }

  #archive({ summary, keptSteps, more, reach }: Extract<Step, { kind: "archive" }>): void {
    const sizes = keptSteps === 0 ? [] : this.#sizes.slice(-keptSteps);
    const kept = sizes.reduce((sum, size) => sum + size, this.isHostile ? more : 0);
    this.items.push({ kind: "archive", summary, kept, reach });
    this.#sizes = [1, ...sizes];
  }

  #run(runId: string): void {
    this.items.push({ kind: "runEnd", stop: "end_turn" }, { kind: "run", runId });
    this.runId = runId;
    this.#results = 0;
  }

  #hook(call: CallDraft, more: Partial<OldHook>): void {
    const { name: tool, providerCallId: id } = call;
    const about = { kind: "hook" as const, phase: "PreToolUse", tool, providerCallId: id };
    this.items.push({ ...about, decision: "info", text: "", beforeCard: false, ...more });
  }

  #asked(call: CallDraft, verdict: string): void {
    const { askId: id, tool, providerCallId: callId, origin } = this.ask(call);
    const kind = "approval" as const;
    this.items.push({ kind, askId: id, verdict, tool, providerCallId: callId, origin });
  }

  #gate(call: CallDraft): void {
    const phase = "PostToolUse";
    switch (call.gate) {
      case "none":
        return;
      case "hook": {
        this.#hook(call, { decision: "modified", text: "rewrote <&>" });
        return;
      }
      case "earlyHook": {
        this.#hook(call, { decision: "advisory", text: "early", beforeCard: true });
        return;
      }
      case "twoOutcomes":
        this.#hook(call, { phase, decision: "blocked", text: "no" });
        {
          this.#hook(call, { phase, decision: "modified" });
          return;
        }
      case "review": {
        this.#hook(call, { review: makeReview(this.session, call, call.isError) });
        return;
      }
      case "allowed": {
        this.#asked(call, call.ask.repeatAvailable ? "allow_always" : "allow_once");
        return;
      }
      case "denied": {
        this.#asked(call, "deny");
        return;
      }
      case "askedTwice":
        this.#asked(call, "allow_once");
        {
          this.#asked(call, "allow_once");
          return;
        }
      case "retracted":
        this.items.push({ kind: "retraction", askId: this.ask(call).askId });
        return;
      case "authorized":
        this.authorization(call, "auth_1", "pending");
        this.authorization(call, "auth_1", "granted");
    }
  }
}

type Ended = Pick<OldModel, "state" | "pendingAsk" | "parked">;
const EXPIRES_AT = "2026-09-22T10:45:00Z";
const STOPS = { completed: "end_turn", failed: "error", cancelled: "cancelled" } as const;

/** A trailing turn that stopped at its call `at`; the later ones were never dispatched. */
function stopAt(
  history: HistoryBuilder,
  drawn: Exchange,
  drafts: readonly CallDraft[],
  at: number,
) {
  const calls = history.turn(drawn, drafts, drafts.length - 1 - at);
  for (const call of drafts.slice(0, at)) history.answer(call);
  return { draft: drafts[at]!, call: calls[at]!, later: calls.slice(at + 1) };
}

function endAwaiting(history: HistoryBuilder, { exchange: drawn, at, kind }: Ending): Ended {
  const drafts = history.distinct(drawn);
  if (kind === "ambiguous") {
    const [first] = drafts;
    const twins = [first!, { ...first!, argumentsText: '{"twin":true}' }];
    history.turn(drawn, twins, 0);
    return { state: "awaiting", pendingAsk: history.ask(first!) };
  }
  const { draft } = stopAt(history, drawn, drafts, at % drafts.length);
  const pendingAsk = history.ask(draft);
  if (kind === "missingPending") return { state: "awaiting" };
  if (kind === "strayPending") return { state: "idle", pendingAsk };
  if (kind === "answered") history.answer({ ...draft, gate: "none" });
  if (kind !== "unmatched") return { state: "awaiting", pendingAsk };
  return { state: "awaiting", pendingAsk: { ...pendingAsk, providerCallId: "call_gone" } };
}

function endAuthorizing(history: HistoryBuilder, drawn: Ending): Ended {
  const { kind, at, effective } = drawn;
  const drafts = drawn.exchange.calls.map((call, index) => {
    return { ...call, providerCallId: kind === "unsafeId" ? " " : PLAIN_IDS[index]! };
  });
  const { call, later } = stopAt(history, drawn.exchange, drafts, at % drafts.length);
  history.authorization(call, "auth_2", "pending");
  const parked = {
    ...{ authorizationId: "auth_2", displayName: "Files", binding: "b<&>1", expiresAt: EXPIRES_AT },
    call: { ...call, argumentsText: effective, name: kind === "renamed" ? "Other" : call.name },
    deferred: kind === "shortDeferred" ? later.slice(1) : later,
  };
  return { state: "authorizing", parked };
}

function end(history: HistoryBuilder, drawn: Ending): Ended {
  switch (drawn.kind) {
    case "settled":
      if (drawn.state !== "idle") history.items.push({ kind: "runEnd", stop: STOPS[drawn.state] });
      return { state: drawn.state };
    case "crashed":
      history.turn(drawn.exchange, history.distinct(drawn.exchange), 0);
      return { state: "running" };
    case "authorizing":
    case "renamed":
    case "shortDeferred":
    case "unsafeId":
      return endAuthorizing(history, drawn);
    default:
      return endAwaiting(history, drawn);
  }
}

type Place = Pick<OldModel, "kind" | "relationship">;
const parent = { parentSessionId: "s-parent", parentIncarnation: "inc_2" };
const PLACES: readonly Place[] = [
  ...[{ kind: "" }, { kind: "unknown" }, { kind: "main" }, { kind: "main" }, { kind: "main" }],
  { kind: "subagent", relationship: { ...parent, callId: "call_1" } },
  { kind: "parallel_branch", relationship: { ...parent, callId: "a:b c", branchIndex: 0 } },
  { kind: "team_member", relationship: { teamId: "t", memberName: "reviewer <1>" } },
  { kind: "scheduled", relationship: { scheduleName: "nightly", originSessionId: "s-0" } },
  { kind: "debug", relationship: { debugTargetId: "s-1", debugTargetIncarnation: "inc_3" } },
];

/**
 * Old sessions of at most `maxLength` steps and an ending. Three in five are tame: calls of a turn
 * have ids of their own and one result each, though ids repeat across turns. The rest are hostile.
 */
export function oldHistories(maxLength: number): fc.Arbitrary<OldModel> {
  const drawn = record({
    isHostile: weighted({ no: 3, yes: 2 }),
    steps: fc.array(STEPS, { maxLength, size: "max" }),
    ending,
    id: constantFrom("s-1", "s:1", "сессия 1", "subagent-s-parent-call_1"),
    place: constantFrom(...PLACES),
    title: text,
    createdAt: constantFrom("2026-09-21T12:00:00Z", "2026-09-21T14:00:00.050169043+02:00"),
    tokens: nat({ max: 100 }),
    permanentFailure: boolean(),
  });
  return drawn.map(({ isHostile, steps, ending: last, place, permanentFailure, ...rest }) => {
    const history = new HistoryBuilder(rest.id, isHostile === "yes");
    history.items.push({ kind: "run", runId: history.runId });
    for (const step of steps) history.take(step);
    const ended = end(history, last);
    const { items, runId } = history;
    const isPermanent = permanentFailure && ended.state === "failed";
    return { ...rest, ...place, ...ended, items, runId, permanentFailure: isPermanent };
  });
}
