import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { oldHistories } from "../support/old-histories.js";
import { archivedEntries, LOG_FORMS, logFile, type LogForm } from "../support/old-log-file.js";
import type { OldCall, OldItem, OldModel, OldResult, OldTurn } from "../support/old-model.js";
import {
  SNAPSHOT_GENERATIONS,
  snapshotEntries,
  snapshotFile,
  type SnapshotGeneration,
} from "../support/old-snapshot-file.js";

type Json = Readonly<Record<string, unknown>>;
type Ending = "state" | "pendingAsk" | "parked";

const STEPS_MAX = 12;
const samples = fc.sample(oldHistories(STEPS_MAX), { numRuns: 400, seed: 7 });

function textOf(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
}

/** The snapshot as text without its envelope's base64. */
function snapshotText(model: OldModel, generation: SnapshotGeneration): string {
  const text = textOf(snapshotFile(model, generation));
  if (generation !== "enveloped-base64") return text;
  return Buffer.from((JSON.parse(text) as { payload: string }).payload, "base64").toString("utf8");
}

/** The records of a log as text, without base64. */
function logLines(model: OldModel, form: LogForm): string[] {
  const lines = textOf(logFile(model, form)).split("\n");
  expect(lines.pop()).toBe("");
  if (form !== "enveloped-base64") return lines;
  return lines.map((line) => {
    const { payload } = JSON.parse(line) as { payload: string };
    return Buffer.from(payload, "base64").toString("utf8");
  });
}

const eventsOf = (model: OldModel) =>
  logLines(model, "bare").map((line) => JSON.parse(line) as Json);

/** The paths of the keys in a value, in order; elements of a list are one path. */
function keyPaths(value: unknown, path = ""): string[] {
  if (typeof value !== "object" || value === null) return [];
  const isList = Array.isArray(value);
  return Object.entries(value).flatMap(([key, member]) => {
    const at = isList ? path : `${path}${path && "."}${key}`;
    return isList ? keyPaths(member, at) : [at, ...keyPaths(member, at)];
  });
}

const callOf = (providerCallId: string, argumentsText: string | null): OldCall => {
  return { providerCallId, name: "Shell", argumentsText };
};

function modelOf(items: readonly OldItem[], more: Partial<OldModel> = {}): OldModel {
  return {
    ...{ id: "s-1", kind: "main", title: "T", state: "completed", runId: "run-1", items },
    ...{ createdAt: "2026-09-21T12:00:00Z", tokens: 3, permanentFailure: false },
    ...more,
  };
}

const ODD = '{ "a" : 1.0e+2,  "h":"<&>" }';
const TURN: OldTurn = {
  ...{ kind: "turn", text: "hm", reasoning: "r", phase: "p", reasoningItemId: "rs_1" },
  calls: [{ ...callOf("call_1", ODD), itemId: "fc_1" }, callOf("call_2", null)],
  ...{ dispatch: "serial", undispatched: 0, fragments: 5 },
};
const result = (providerCallId: string): OldResult => {
  return { kind: "result", providerCallId, content: "out", isError: false };
};
const ASK = {
  ...{ askId: "s-1:0:call_1", tool: "Shell", argumentsText: ODD, reason: "why" },
  ...{ providerCallId: "call_1", namesCall: true },
};
const GUARDRAIL = {
  ...{ reviewId: "s-1:call_1:action", kind: "action" as const, grantDigest: "d" },
  ...{ sessionOnly: true, repeatAvailable: false },
};

describe.each(SNAPSHOT_GENERATIONS)("a snapshot file, %s", (generation) => {
  test("is JSON and has every argument text as it is", () => {
    for (const model of samples) {
      const text = snapshotText(model, generation);
      JSON.parse(textOf(snapshotFile(model, generation)));
      for (const entry of snapshotEntries(model.items)) {
        if (entry.kind !== "turn") continue;
        for (const { argumentsText } of entry.calls) {
          expect(text).toContain(`"Args":${argumentsText ?? "null"}`);
        }
      }
      const { pendingAsk, parked } = model;
      if (pendingAsk) {
        expect(text).toContain(`"Args":${pendingAsk.argumentsText ?? "null"},"Reason"`);
      }
      for (const { argumentsText } of parked ? [parked.call, ...parked.deferred] : []) {
        const bytes = Buffer.from(argumentsText ?? "").toString("base64");
        expect(text).toContain(argumentsText === null ? '"args":null' : `"args":"${bytes}"`);
      }
    }
  });

  test("holds a message for each entry that compactions left", () => {
    for (const model of samples) {
      const file = JSON.parse(snapshotText(model, generation)) as Json;
      const inner = (file["snapshot"] ?? file["payload"] ?? file) as { messages: unknown[] };
      expect(inner.messages).toHaveLength(snapshotEntries(model.items).length);
    }
  });

  test("of 10,000 turns is written", () => {
    expect(snapshotFile(longModel(), generation).length).toBeGreaterThan(1_000_000);
  });
});

/** 10,000 turns of one call, all with one provider id. */
function longModel(): OldModel {
  const turn: OldItem = { ...TURN, calls: [callOf("call_1", "{}")] };
  return modelOf(Array.from({ length: 10_000 }, () => [turn, result("call_1")]).flat());
}

describe("keys of a snapshot", () => {
  const counters = [
    "counters",
    ...["Turns", "ToolCalls", "ConsecutiveFailures"].map((key) => `counters.${key}`),
  ];
  const limits = [
    "limits",
    ...["MaxTurns", "MaxToolCalls", "MaxConsecutiveFailures"].map((key) => `limits.${key}`),
  ];
  const tokens = ["Input", "Output", "CacheRead", "CacheWrite", "Reasoning"].map(
    (key) => `${key}Tokens`,
  );
  const tokensAt = (path: string) => [path, ...tokens.map((key) => `${path}.${key}`)];
  const tokenUsage = [
    ...["token_usage", "token_usage.main", ...tokensAt("token_usage.main.Total")],
    ...["token_usage.main.Models", ...tokensAt("token_usage.main.Models.unknown")],
  ];
  const environment = [
    "environment_ref",
    ...["Kind", "ID", "Revision"].map((key) => `environment_ref.${key}`),
  ];
  const messages = ["messages", "messages.role", "messages.text"];
  const model = modelOf([{ kind: "message", role: "user", text: "hi" }], {
    ...{ state: "failed", permanentFailure: true },
  });
  const retries = ["retry_disposition", "stream_progress"];
  const late = [
    ...["id", "state", "mode", ...limits, ...counters, "created_at", "incarnation", ...messages],
    ...["kind", "title", "title_generation", ...tokenUsage, ...tokensAt("usage"), "permanent"],
    ...[...retries, "run_id", ...environment, "placement"],
  ];
  const middle = [
    ...["id", "state", "mode", ...limits, ...counters, "created_at", "incarnation", ...messages],
    ...["kind", "title", ...tokenUsage, "run_id", ...environment],
  ];
  const metadata = ["id", "state", ...counters, "kind", ...environment, "created_at"];

  test.each<[SnapshotGeneration, string[]]>([
    [
      "inner",
      [
        ...["id", "state", "mode", ...limits, ...counters, "workspace", "created_at", ...messages],
        ...["kind", "title", ...tokensAt("usage"), "permanent", "run_id"],
      ],
    ],
    ["enveloped", ["format", "payload", ...middle.map((key) => `payload.${key}`)]],
    ["enveloped-base64", middle],
    [
      "wrapped",
      [
        ...["v", "modified_at", "metadata", ...metadata.map((key) => `metadata.${key}`)],
        ...["activity", "snapshot", ...late.map((key) => `snapshot.${key}`)],
      ],
    ],
  ])("at the top, %s", (generation, keys) => {
    expect(keyPaths(JSON.parse(snapshotText(model, generation)))).toEqual(keys);
  });

  test("of messages, calls and results", () => {
    const { messages: written } = JSON.parse(
      snapshotText(
        modelOf([TURN, result("call_1"), { ...result("call_2"), isError: true }]),
        "inner",
      ),
    ) as { messages: unknown[] };
    expect(written.map((message) => JSON.stringify(message))).toEqual([
      '{"role":"assistant","text":"hm","tool_calls":[{"ID":"call_1","Name":"Shell","Args":' +
        '{"a":100,"h":"<&>"},"item_id":"fc_1"},{"ID":"call_2","Name":"Shell","Args":null}],' +
        '"reasoning":"r","phase":"p","reasoning_item_id":"rs_1"}',
      '{"role":"tool","tool_result":{"CallID":"call_1","Content":"out","IsError":false}}',
      '{"role":"tool","tool_result":{"CallID":"call_2","Content":"out","IsError":true}}',
    ]);
  });

  const scope = ["ReviewID", "Kind", "GrantDigest", "SessionOnly", "RepeatAvailable"];
  test.each<[string, Partial<OldModel["pendingAsk"]>, string[]]>([
    ["with an origin", { origin: "permission" }, ["call", "origin"]],
    ["of unknown origin", { origin: "" }, ["call"]],
    ["without a call", { namesCall: false }, []],
    ["about an empty id", { providerCallId: "" }, []],
    [
      "of a hook, by a boolean",
      { hookOriginated: true, planOriginated: false },
      ["call", "hook_originated"],
    ],
    ["of a plan, by a boolean", { planOriginated: true }, ["call", "plan_originated"]],
    [
      "with a guardrail",
      { guardrail: GUARDRAIL },
      ["call", "guardrail", ...scope.map((key) => `guardrail.${key}`)],
    ],
  ])("of an ask %s", (_name, more, keys) => {
    const asking = modelOf([], {
      state: "awaiting",
      pendingAsk: { ...ASK, argumentsText: null, ...more },
    });
    const { pending } = JSON.parse(snapshotText(asking, "inner")) as Json;
    expect(keyPaths(pending)).toEqual(["AskID", "Tool", "Args", "Reason", ...keys]);
  });
});

test("keys of a parked turn are lower case, its arguments base64", () => {
  const parked = {
    ...{
      authorizationId: "auth",
      displayName: "",
      binding: "b",
      expiresAt: "2026-09-22T10:45:00Z",
    },
    call: { ...callOf("call_1", "{\r\n}"), itemId: "fc_1" },
    deferred: [callOf("call_2", null)],
  };
  const text = snapshotText(modelOf([], { state: "authorizing", parked }), "inner");
  expect(text).toContain(
    '"pending_authorization":{"authorization":{"id":"auth","binding":"b","expires_at":' +
      '"2026-09-22T10:45:00Z"},"call":{"id":"call_1","name":"Shell","args":"ew0KfQ==",' +
      '"item_id":"fc_1"},"deferred":[{"id":"call_2","name":"Shell","args":null}]}',
  );
});

test("keys of a relationship", () => {
  const relationship = {
    ...{ scheduleName: "a", originSessionId: "b", originIncarnation: "c", parentSessionId: "d" },
    ...{ parentIncarnation: "e", callId: "f", branchIndex: 0, teamId: "g", memberName: "h" },
    ...{ debugTargetId: "i", debugTargetIncarnation: "j" },
  };
  expect(snapshotText(modelOf([], { relationship }), "inner")).toContain(
    '"relationship":{"schedule_name":"a","origin_session_id":"b","origin_incarnation":"c",' +
      '"parent_session_id":"d","parent_incarnation":"e","call_id":"f","branch_index":0,' +
      '"team_id":"g","member_name":"h","debug_target_id":"i","debug_target_incarnation":"j"}',
  );
});

describe.each(LOG_FORMS)("a log file, %s", (form) => {
  test("is JSON by line and has every argument text as it is", () => {
    for (const model of samples) {
      const lines = logLines(model, form);
      for (const line of lines) JSON.parse(line);
      const text = lines.join("\n");
      for (const item of model.items) {
        if (item.kind === "ask") {
          expect(text).toContain(`"Args":${item.ask.argumentsText ?? "null"}`);
        }
        if (item.kind !== "turn") continue;
        for (const { argumentsText } of item.calls.slice(
          0,
          item.calls.length - item.undispatched,
        )) {
          expect(text).toContain(`"Args":${argumentsText ?? "null"}`);
        }
      }
    }
  });
});

test.each<[LogForm, string[]]>([
  [
    "jsonl",
    [
      '{"v":"eventlog-gen/1","g":"0123456789abcdef"}',
      '{"v":"eventlog-gap/1","r":"lost"}',
      '{"v":"eventlog-json/1","ev":{"Type"',
    ],
  ],
  [
    "redis",
    [
      '{"v":"redisstore-eventlog/1","ev":null,"r":"lost"}',
      '{"v":"redisstore-eventlog/1","ev":{"Type"',
    ],
  ],
  ["enveloped", ['{"format":"eventlog-json/1","payload":{"Type"']],
  ["bare", ['{"Type"']],
])("records of a log, %s", (form, starts) => {
  const model = modelOf([
    { kind: "gap", reason: "lost" },
    { kind: "unknown", type: "x", text: "" },
  ]);
  const lines = logLines(model, form);
  expect(lines.map((line, index) => line.slice(0, starts[index]?.length))).toEqual(starts);
});

test("a log file of 10,000 turns is written", () => {
  expect(logFile(longModel(), "jsonl").length).toBeGreaterThan(10_000_000);
});

describe("events", () => {
  test("have every key, the absent payloads as null", () => {
    const items: OldItem[] = [{ kind: "unknown", type: "x.y", text: "<" }];
    expect(logLines(modelOf(items), "bare")).toEqual([
      '{"Type":"x.y","Seq":1,"Turn":0,"Text":"\\u003c","Title":null,"ToolCall":null,' +
        '"ToolResult":null,"Ask":null,"ModelRetry":null,"RequestManifest":null,' +
        '"NetworkAttempt":null,"Authorization":null,"Result":null,"TurnEnd":null,"Hook":null,' +
        '"Approval":null,"CompactionArchive":null,"UserPrompt":null,"Usage":null,' +
        '"Subagent":null,"Team":null,"Parallel":null,"RunID":"run-1","Actor":null,' +
        '"Schedule":null,"Steer":null}',
    ]);
  });

  const hook = {
    ...{ kind: "hook" as const, phase: "PreToolUse", tool: "Shell", decision: "info", text: "t" },
    ...{ providerCallId: "call_1", beforeCard: true },
  };
  const review = {
    ...{ reviewId: "r", job: "action", assessment: "acceptable", inspection: "complete" },
    ...{ disposition: "execute", reasonCode: "", concerns: [{ ref: "c", category: "k" }] },
  };
  const expiresAt = "2026-09-22T10:45:00Z";
  const authorization = {
    ...{ kind: "authorization" as const, authorizationId: "a", displayName: "d", expiresAt },
    ...{ providerCallId: "call_1", status: "pending" },
  };
  const approval = {
    ...{ kind: "approval" as const, askId: "k", verdict: "allow_always", tool: "Shell" },
    providerCallId: "call_1",
  };
  test.each<[string, OldItem, string]>([
    [
      "permission.ask",
      { kind: "ask", ask: { ...ASK, origin: "plan" } },
      `"Ask":{"AskID":"s-1:0:call_1","Tool":"Shell","Args":${ODD},"Reason":"why","call":"call_1","origin":"plan"}`,
    ],
    [
      "permission.retract",
      { kind: "retraction", askId: "k" },
      '"Ask":{"AskID":"k","Tool":"","Args":null,"Reason":""}',
    ],
    [
      "approval",
      approval,
      '"Approval":{"AskID":"k","Verdict":"allow_always","Tool":"Shell","Call":"call_1","AllowAlways":true}',
    ],
    [
      "approval",
      { ...approval, origin: "permission" },
      '"AllowAlways":true,"Origin":"permission"}',
    ],
    [
      "hook",
      hook,
      '"Hook":{"Phase":"PreToolUse","Tool":"Shell","Decision":"info","CallID":"call_1","Guardrail":null}',
    ],
    [
      "hook",
      { ...hook, review },
      '"Guardrail":{"ReviewID":"r","Job":"action","Assessment":"acceptable","Inspection":"complete",' +
        '"Disposition":"execute","ReasonCode":"","RuleID":"","RuleOrigin":"","CheckerProviderID":"p",' +
        '"CheckerModelID":"m","Concerns":[{"Ref":"c","Category":"k"}],"Sources":null}}',
    ],
    [
      "authorization.required",
      authorization,
      '"Authorization":{"AuthorizationID":"a","DisplayName":"d","Call":"call_1",' +
        `"ExpiresAt":"${expiresAt}","Status":"pending"}`,
    ],
    ["authorization.resolved", { ...authorization, status: "denied" }, '"Status":"denied"}'],
    ["result", { kind: "runEnd", stop: "end_turn" }, '"Result":{"Stop":"end_turn","Usage":{'],
  ])("of type %s have their payload", (type, item, payload) => {
    const [line] = logLines(modelOf([item]), "bare");
    expect(line).toContain(`{"Type":"${type}"`);
    expect(line).toContain(payload);
  });

  const cases: [string, OldItem[], string[]][] = [
    ["serial", [TURN, result("call_1"), result("call_2")], ["call", "result", "call", "result"]],
    ["batch", [{ ...TURN, dispatch: "batch" }, result("call_1")], ["call", "call", "result"]],
    [
      "parked",
      [
        { ...TURN, undispatched: 1 },
        { kind: "ask", ask: ASK },
      ],
      ["call", "ask"],
    ],
    ["an orphan", [TURN, result("call_9"), result("call_1")], ["result", "call", "result", "call"]],
    ["an early hook", [TURN, hook, result("call_1")], ["hook", "call", "result", "call"]],
    ["a hook", [TURN, { ...hook, beforeCard: false }], ["call", "hook", "call"]],
  ];
  test.each(cases)("of calls come in order: %s", (_name, items, types) => {
    const written = eventsOf(modelOf(items)).map((event) => String(event["Type"]));
    const fromTurnEnd = written.slice(written.indexOf("turn.end") + 1);
    expect(fromTurnEnd.map((type) => type.split(".").at(-1))).toEqual(types);
  });

  test("of text are coalesced and keep the first seq; a run and a restart begin again", () => {
    const items: OldItem[] = [
      TURN,
      { kind: "restart" },
      result("call_1"),
      { kind: "run", runId: "r2" },
    ];
    const written = eventsOf(modelOf(items)).map((event) => {
      return [event["Type"], event["Seq"], event["RunID"], event["Text"]];
    });
    expect(written).toEqual([
      ["turn.start", 1, "run-1", ""],
      ["reasoning.delta", 2, "run-1", "r"],
      ["message.delta", 7, "run-1", "h"],
      ["message.delta", 12, "run-1", "m"],
      ["turn.end", 17, "run-1", ""],
      ["tool.call", 1, "run-1", ""],
      ["tool.result", 2, "run-1", ""],
      ["tool.call", 3, "run-1", ""],
      ["session.init", 1, "r2", ""],
    ]);
  });
});

describe("an archive", () => {
  const first: OldItem = { kind: "message", role: "user", text: "one" };
  const archive = { kind: "archive" as const, summary: "sum", kept: 1, reach: "context" as const };
  const items: OldItem[] = [first, TURN, result("call_1"), archive, result("call_2"), archive];

  test("leaves a snapshot its summary and what it kept", () => {
    const summary = { kind: "message", role: "user", text: "sum" };
    expect(snapshotEntries(items.slice(0, 4))).toEqual([summary, result("call_1")]);
    expect(snapshotEntries(items)).toEqual([summary, result("call_2")]);
  });

  test("holds the context or the whole session, in untagged keys", () => {
    expect(archivedEntries(items, 3)).toEqual([first, TURN, result("call_1")]);
    expect(archivedEntries(items, 5)).toHaveLength(3);
    expect(archivedEntries([...items, { ...archive, reach: "session" }], 6)).toHaveLength(4);
    const line = logLines(modelOf(items), "bare").find((text) =>
      text.includes("compaction.archive"),
    );
    expect(line).toContain(
      '"CompactionArchive":{"Replaced":[{"Role":"user","Text":"one","ToolCalls":null,' +
        '"ToolResult":null,"Reasoning":"","ProviderPhase":"","ReasoningItemID":"","Parts":null},' +
        `{"Role":"assistant","Text":"hm","ToolCalls":[{"ID":"call_1","Name":"Shell","Args":${ODD},` +
        '"item_id":"fc_1"},{"ID":"call_2","Name":"Shell","Args":null}],"ToolResult":null,' +
        '"Reasoning":"r","ProviderPhase":"p","ReasoningItemID":"rs_1","Parts":null},' +
        '{"Role":"tool","Text":"","ToolCalls":null,"ToolResult":{"CallID":"call_1",' +
        '"Content":"out","IsError":false},"Reasoning":"","ProviderPhase":"",' +
        '"ReasoningItemID":"","Parts":null}]}',
    );
  });
});

/** The calls and the results of each turn, up to the next turn. */
function turnsOf({ items }: OldModel): { ids: string[]; results: string[] }[] {
  const turns: { ids: string[]; results: string[] }[] = [{ ids: [], results: [] }];
  for (const item of items) {
    if (item.kind === "turn") {
      turns.push({ ids: item.calls.map((call) => call.providerCallId), results: [] });
    }
    if (item.kind === "result") turns.at(-1)?.results.push(item.providerCallId);
  }
  return turns;
}

/** How often `what` is in `list`. */
const times = (list: readonly string[], what: string) => list.filter((one) => one === what).length;

/** Whether pending and state agree with the turn that they are about. */
function agrees({ items, state, pendingAsk, parked }: Pick<OldModel, "items" | Ending>): boolean {
  const isAwaiting = state === "awaiting";
  if (isAwaiting !== (pendingAsk !== undefined)) return false;
  if ((state === "authorizing") !== (parked !== undefined)) return false;
  const turn = turnsOf({ items } as OldModel).at(-1)!;
  const open = turn.ids.filter((id) => !turn.results.includes(id));
  const pending = pendingAsk?.providerCallId ?? parked?.call.providerCallId;
  return pending === undefined || times(open, pending) === 1;
}

describe("histories", () => {
  const kinds = (model: OldModel) => new Set<string>(model.items.map(({ kind }) => kind));
  const idsOf = (model: OldModel) => turnsOf(model).flatMap(({ ids }) => ids);

  test.each<[string, number, (model: OldModel) => boolean]>([
    ["no step, only an ending", 3, ({ items }) => items.length <= 3],
    [
      "an id in two turns",
      100,
      (m) => {
        const perTurn = turnsOf(m).flatMap(({ ids }) => [...new Set(ids)]);
        return new Set(perTurn).size < perTurn.length;
      },
    ],
    [
      "an id twice in a turn",
      40,
      (m) => turnsOf(m).some(({ ids }) => new Set(ids).size < ids.length),
    ],
    ["an empty id", 40, (m) => idsOf(m).includes("")],
    ["an id with a colon", 40, (m) => idsOf(m).some((id) => id.includes(":"))],
    ["an id with a space", 40, (m) => idsOf(m).some((id) => id.includes(" "))],
    ["an id in another script", 30, (m) => idsOf(m).includes("вызов-λ")],
    [
      "null arguments",
      40,
      (m) =>
        m.items.some((item) => {
          return (
            item.kind === "turn" && item.calls.some(({ argumentsText }) => argumentsText === null)
          );
        }),
    ],
    [
      "a result of no call of its turn",
      30,
      (m) =>
        turnsOf(m).some(({ ids, results }) => {
          return results.some((id) => !ids.includes(id));
        }),
    ],
    [
      "a call answered twice",
      30,
      (m) =>
        turnsOf(m).some(({ ids, results }) => {
          return ids.some((id) => times(results, id) > times(ids, id));
        }),
    ],
    [
      "an unanswered call before the last turn",
      30,
      (m) => {
        return turnsOf(m)
          .slice(0, -1)
          .some(({ ids, results }) => ids.some((id) => !results.includes(id)));
      },
    ],
    ["an unanswered ask", 60, ({ pendingAsk }) => pendingAsk !== undefined],
    ["a parked turn", 40, ({ parked }) => parked !== undefined],
    ["deferred siblings", 20, ({ parked }) => (parked?.deferred.length ?? 0) > 0],
    ["an ask without a call", 15, ({ pendingAsk }) => pendingAsk?.namesCall === false],
    ["an ask with old booleans", 15, ({ pendingAsk }) => pendingAsk?.hookOriginated !== undefined],
    ["a guardrail ask", 15, ({ pendingAsk }) => pendingAsk?.guardrail !== undefined],
    ["an archive", 60, (m) => kinds(m).has("archive")],
    ["a gap", 30, (m) => kinds(m).has("gap")],
    ["an unknown event", 30, (m) => kinds(m).has("unknown")],
    ["a retraction", 20, (m) => kinds(m).has("retraction")],
    ["an approval", 60, (m) => kinds(m).has("approval")],
    ["a hook", 60, (m) => kinds(m).has("hook")],
    ["an authorization", 60, (m) => kinds(m).has("authorization")],
    ["a second run", 40, ({ runId }) => runId !== "run-0"],
    ["a relationship", 60, ({ relationship }) => relationship !== undefined],
    ["a pending that agrees", 100, (m) => (m.pendingAsk ?? m.parked) !== undefined && agrees(m)],
    ["a pending that disagrees", 30, (m) => !agrees(m)],
  ])("have %s in at least %i of 400", (_name, least, has) => {
    expect(samples.filter(has).length).toBeGreaterThanOrEqual(least);
  });

  test("mostly end as their state says", () => {
    expect(samples.filter(agrees).length).toBeGreaterThan(samples.length / 2);
  });
});
