import { describe, expect, test } from "vitest";
import { AskKind, AskProvenance, AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { HookDecision, type Hook } from "../../gen/toolmark/v1/hook_pb.js";
import { LegacyEvidenceKind } from "../../gen/toolmark/v1/legacy_pb.js";
import { ReviewDisposition } from "../../gen/toolmark/v1/review_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { Ran } from "../../gen/toolmark/v1/tool_call_pb.js";
import { InvariantError } from "../../src/domain/invariant.js";
import { decodeSnapshot } from "../../src/legacy/decode-snapshot.js";
import { isMalformed } from "../../src/legacy/malformed.js";
import { translateSession } from "../../src/legacy/translate-session.js";
import type { AnyRecord, Translation } from "../../src/legacy/translation.js";
import {
  approval,
  ask,
  authorization,
  call,
  delta,
  end,
  gap,
  hook,
  prompt,
  result,
  retract,
  review,
  SESSION,
  start,
  translated,
  translatedBoth,
  type Line,
} from "../support/old-log-events.js";
import { bytesOf, recordsOf, told } from "../support/translations.js";

/** Each message as what was said. */
function said(translation: Translation): string[] {
  return recordsOf(translation, "message").map((message) =>
    bytesOf(translation, message.content?.bodyRef),
  );
}

/** Each piece of evidence as its kind, label and occurrence. */
function evidence(translation: Translation): string[] {
  return recordsOf(translation, "legacyEvidence").map(({ kind, label, occurrence }) =>
    [LegacyEvidenceKind[kind], label, occurrence].filter((text) => text !== "").join(" "),
  );
}

/** Each record as its kind. */
const kinds = ({ records }: Translation): AnyRecord["case"][] =>
  records.map((record) => record.case);
const callIds = (translation: Translation): string[] =>
  recordsOf(translation, "toolCall").map(({ toolCallId }) => toolCallId);
const states = (translation: Translation): string[] => told(translation).map(([state]) => state);
const hooksOf = (translation: Translation): Hook[] => recordsOf(translation, "hook");

describe("F: a log", () => {
  test("with two calls one after the other is one turn of two calls", () => {
    const lines = [prompt("go"), start(), call("a"), result("a"), call("b"), result("b"), end()];
    const translation = translated(...lines);
    expect(kinds(translation)).toEqual(["message", "turn", "toolCall", "toolCall"]);
    expect(told(translation)).toEqual([
      ["COMPLETED", "CANONICAL"],
      ["COMPLETED", "CANONICAL"],
    ]);
    const [turn] = recordsOf(translation, "turn");
    const calls = recordsOf(translation, "toolCall");
    expect(turn).toMatchObject({ runId: "run-1", toolCallIds: callIds(translation) });
    expect(calls).toMatchObject([{ ran: Ran.UNKNOWN, index: 0 }, { index: 1 }]);
    expect(calls.map(({ revision }) => revision)).toEqual([undefined, undefined]);
    expect(translation.occurrences.map(({ occurrence }) => occurrence)).toEqual(["log/3", "log/5"]);
    expect(translation.pairings.get(calls[1]?.toolCallId ?? "")).toMatchObject({
      providerCallId: "b",
    });
  });

  test("does not say what it is a log of, but what the session was last called", () => {
    const title = (Title: string) => ({ Type: "session.title", Title });
    expect(translated(title("one"), title("two"))).toMatchObject({
      ...{ sessionId: SESSION, kind: SessionKind.UNSPECIFIED, title: "two", records: [] },
      ...{ createTimeMs: undefined, relationship: { parentSessionId: undefined } },
    });
  });

  test("with a hook before its call attaches it when the call comes", () => {
    const translation = translated(start(), hook("a", { Tool: "?" }), call("a"), result("a"));
    expect(kinds(translation)).toEqual(["hook", "turn", "toolCall"]);
    const [toolCallId] = callIds(translation);
    expect(hooksOf(translation)).toMatchObject([{ toolCallId, toolName: "bash" }]);
  });

  test("with two outcomes of one hook run has two records", () => {
    const after = (Decision: string) => hook("a", { Phase: "PostToolUse", Decision });
    const translation = translated(start(), call("a"), after("blocked"), after("modified"));
    const [toolCallId] = callIds(translation);
    expect(hooksOf(translation)).toMatchObject([
      { toolCallId, decision: HookDecision.BLOCKED, phase: "PostToolUse" },
      { toolCallId, decision: HookDecision.MODIFIED },
    ]);
  });

  test("with a verdict but no result never lets its call be started", () => {
    const translation = translated(start(), call("a"), review("a"), ask("a"), {
      ...approval("old-1:0:a", "a", "allow_always"),
    });
    expect(states(translation)).toEqual(["OUTCOME_UNKNOWN"]);
    const [toolCallId] = callIds(translation);
    expect(recordsOf(translation, "ask")).toEqual([]);
    expect(recordsOf(translation, "legacyEvidence")).toMatchObject([
      { kind: LegacyEvidenceKind.ASK, toolCallId, legacyId: "old-1:0:a", text: "may it?" },
      { kind: LegacyEvidenceKind.APPROVAL, toolCallId, label: "allow_always", toolName: "bash" },
    ]);
    expect(hooksOf(translation)).toMatchObject([
      { toolCallId, review: { disposition: ReviewDisposition.ASK_ACTION } },
    ]);
  });

  test("with an inbound ask before its hook has both", () => {
    const guardrail = { ReviewID: "old-1:a:inbound", Kind: "result_release" };
    const translation = translated(
      ...[start(), call("a"), ask("a", { guardrail, Args: null, origin: "hook_guardrail" })],
      ...[approval("old-1:0:a", "a"), review("a", { ReviewID: "old-1:a:inbound" }), result("a")],
    );
    expect(kinds(translation)).toEqual([
      ...["turn", "toolCall", "legacyEvidence", "legacyEvidence", "hook"],
    ]);
    expect(hooksOf(translation)[0]).toMatchObject({
      ...{ hookId: "old-1:a:inbound", toolCallId: callIds(translation)[0] },
    });
  });

  test("with an ask that was taken back has no open ask", () => {
    const translation = translated(start(), call("a"), ask("a"), retract("another"));
    expect(evidence(translation)).toEqual(["ASK log/3", "RETRACTION log/4"]);
    expect(states(translation)).toEqual(["OUTCOME_UNKNOWN"]);
  });

  test("with an archive tells how much it holds, and nothing of it again", () => {
    const message = { Role: "user", Text: "secret" };
    const calls = [{ ID: "provider-1", Name: "bash", Args: {} }];
    const archive = (...Replaced: object[]) => ({
      Type: "compaction.archive",
      CompactionArchive: { Replaced },
    });
    const translation = translated(
      archive(message, { Role: "assistant", Text: "", ToolCalls: [...calls, ...calls] }),
      archive({ Role: "assistant", Text: "", ToolCalls: calls }),
      archive(),
    );
    expect(evidence(translation)).toEqual([
      "ARCHIVE 2 messages, 2 tool calls log/1",
      "ARCHIVE 1 message, 1 tool call log/2",
      "ARCHIVE 0 messages, 0 tool calls log/3",
    ]);
    expect(translation.bodies).toEqual([]);
  });

  test("with pieces of text has one message, where its first piece stands", () => {
    const translation = translated(
      ...[start(), { Type: "reasoning.delta", Text: "private" }, delta("I ", { Seq: 40 })],
      ...[{ Type: "reasoning.delta", Text: "more" }, delta("look", { Seq: 80 })],
      ...[{ Type: "turn.end" }, call("a"), result("a"), start({ Turn: 2 }), delta("done")],
    );
    expect(said(translation)).toEqual(["I look", "done"]);
    expect(kinds(translation)).toEqual(["message", "turn", "toolCall", "message"]);
    const first = translated(start(), prompt(""), delta("x"), end());
    const messageIds = [translation, first].map(
      (each) => recordsOf(each, "message")[0]?.messageId ?? "",
    );
    expect(messageIds[0]).toBe(messageIds[1]);
    expect(translation.replays.size).toBe(0);
  });

  test.each<[string, Line]>([
    ["a prompt", prompt("")],
    ["a turn", start({ Turn: 2 })],
    ["another turn that did not begin", delta("two", { Turn: 2 })],
    ["an ask", ask("x")],
    ["a result", result("x")],
    ["an end", end()],
    ["a hook", hook("")],
    ["a gap", gap],
    ["another try of the model", { Type: "model.retry" }],
    ["an event that is not known", { Type: "later.type" }],
  ])("ends a text with %s", (_, line) => {
    const texts = said(translated(start(), delta("one"), line, delta("two", { Turn: 2 })));
    expect(texts[0]).toBe("one");
    expect(texts.length).toBe(2);
  });

  test.each(["session.title", "network.attempt", "steer"])("keeps a text whole with %s", (Type) => {
    expect(said(translated(start(), delta("one"), { Type }, delta("two")))).toEqual(["onetwo"]);
  });

  test("with attachments of a prompt has each as a message", () => {
    const Parts = [{ Kind: "image", MIMEType: "image/png", Data: "AAEC", URL: "" }];
    const translation = translated({ Type: "user_prompt", UserPrompt: { Text: "look", Parts } });
    const media = recordsOf(translation, "message").map(({ content }) => content?.mediaType);
    expect(media).toEqual(["text/plain; charset=utf-8", "image/png"]);
  });

  test("with authorizations waits for none of them", () => {
    const translation = translated(
      ...[start(), call("a"), authorization("pending"), authorization("granted", "z")],
      ...[call("b"), authorization("pending", "")],
    );
    expect(recordsOf(translation, "authorization")).toEqual([]);
    expect(states(translation)).toEqual(["OUTCOME_UNKNOWN", "OUTCOME_UNKNOWN"]);
    const [toolCallId] = callIds(translation);
    const told_ = { kind: LegacyEvidenceKind.AUTHORIZATION, text: "Mail", legacyId: "auth-1" };
    const found = recordsOf(translation, "legacyEvidence");
    expect(found).toMatchObject([
      { ...told_, label: "pending", toolCallId },
      { ...told_, label: "granted" },
      { ...told_, label: "pending" },
    ]);
    expect(found.slice(1).map((each) => each.toolCallId)).toEqual([undefined, undefined]);
  });

  test("with an ask id of three parts that stays open keeps it", () => {
    const translation = translated(start(), call("a"), ask("a", { AskID: "old-1:3:a" }));
    expect(recordsOf(translation, "ask")).toMatchObject([
      {
        ...{ askId: "old-1:3:a", state: AskState.OPEN, kind: AskKind.ACTION, runId: "run-1" },
        ...{ provenance: AskProvenance.PERMISSION, toolCallId: callIds(translation)[0] },
      },
    ]);
    expect(states(translation)).toEqual(["AWAITING_ANSWER"]);
    expect(evidence(translation)).toEqual([]);
  });

  test("gives the same for the same, and keeps its ids when it grows", () => {
    const lines = [start(), hook("a"), delta("hm"), call("a"), result("a"), call("a"), ask("a")];
    const before = translated(...lines);
    expect(translated(...lines)).toEqual(before);
    const after = translated(...lines, approval("x", "a"), call("a"));
    expect(after.occurrences.slice(0, 2)).toEqual(before.occurrences);
    expect(after.occurrences.length).toBe(3);
  });
});

describe("a result", () => {
  const cases: readonly (readonly [string, readonly Line[], string[], number])[] = [
    ["of an earlier turn", [call("a"), start({ Turn: 2 }), result("a")], ["RESULT_MISSING"], 1],
    ["of another turn's number", [call("a"), result("a", { Turn: 2 })], ["RESULT_MISSING"], 1],
    ["of another run", [call("a"), result("a", { RunID: "run-2" })], ["RESULT_MISSING"], 1],
    ["behind a gap", [call("a"), gap, result("a")], ["OUTCOME_UNKNOWN"], 1],
    ["of an ended run", [call("a"), end(), result("a")], ["RESULT_MISSING"], 1],
    [
      "of two calls with one id",
      [call("x"), call("x"), result("x")],
      ["OUTCOME_UNKNOWN", "OUTCOME_UNKNOWN"],
      1,
    ],
    ["that comes twice", [call("a"), result("a"), result("a")], ["COMPLETED"], 1],
    ["of an empty id", [call(""), result("")], ["COMPLETED"], 0],
    [
      "that is provisional",
      [call("a"), { ...result("a"), Type: "tool.result.available" }],
      ["OUTCOME_UNKNOWN"],
      0,
    ],
    ["behind a prompt", [call("a"), prompt("wait"), result("a")], ["COMPLETED"], 0],
  ];
  test.each(cases)("%s is paired or stands alone", (_, lines, expected, loose) => {
    const translation = translated(start(), ...lines);
    expect(states(translation)).toEqual(expected);
    const results = recordsOf(translation, "legacyEvidence");
    expect(results.filter(({ kind }) => kind === LegacyEvidenceKind.RESULT).length).toBe(loose);
    expect(results.map(({ toolCallId }) => toolCallId)).toEqual(results.map(() => undefined));
  });

  test("of an id that comes again in another turn is of the call there", () => {
    const later = { Turn: 2 };
    const translation = translated(
      ...[start(), call("x"), result("x", {}, "first")],
      ...[start(later), call("x", later), result("x", later, "second")],
    );
    const contents = recordsOf(translation, "toolCall").map(({ result: of }) =>
      bytesOf(translation, of?.content?.bodyRef),
    );
    expect(contents).toEqual(["first", "second"]);
    expect(recordsOf(translation, "turn").length).toBe(2);
  });

  test.each<[string, readonly Line[], string[]]>([
    ["of a run that ended", [call("a"), end()], ["RESULT_MISSING"]],
    ["of a run that ended, with a gap", [call("a"), gap, end()], ["RESULT_MISSING"]],
    ["where the log stops", [call("a")], ["OUTCOME_UNKNOWN"]],
    ["before a gap, after which nothing comes", [call("a"), gap], ["OUTCOME_UNKNOWN"]],
    [
      "before a gap, after which it goes on",
      [call("a"), gap, call("b")],
      ["RESULT_MISSING", "OUTCOME_UNKNOWN"],
    ],
    [
      "of an earlier turn",
      [call("a"), call("b", { Turn: 2 })],
      ["RESULT_MISSING", "OUTCOME_UNKNOWN"],
    ],
  ])("is missing %s", (_, lines, expected) => {
    expect(states(translated(start(), ...lines))).toEqual(expected);
  });
});

describe("an ask at the end of a log", () => {
  const turn = [start(), call("a"), result("a"), call("b"), call("c")];

  test("is open, and the calls behind it wait", () => {
    const translation = translated(...turn, ask("b"), hook(""), { Type: "control.refused" });
    expect(states(translation)).toEqual(["COMPLETED", "AWAITING_ANSWER", "ACCEPTED"]);
    expect(recordsOf(translation, "ask")).toMatchObject([
      { askId: "old-1:0:b", toolCallId: callIds(translation)[1] },
    ]);
  });

  test("of an id that was asked before is the open one, and the earlier is evidence", () => {
    const again = ask("b", { AskID: "again" });
    const translation = translated(...turn, again, approval("again", "b"), again);
    expect(recordsOf(translation, "ask")).toMatchObject([{ askId: "again" }]);
    expect(evidence(translation)).toEqual(["ASK log/6", "APPROVAL allow_once log/7"]);
  });

  test.each<[string, Line]>([
    ["any approval", approval("another", "z", "deny")],
    ["any retraction", retract("another")],
    ["the end of the run", end()],
    ["a gap", gap],
    ["another ask", ask("c", { AskID: "old-1:0:c" })],
    ["the ask of a child", ask("c", { AskID: "subagent-1:0:c" })],
    ["a call", call("d")],
    ["a result", result("z")],
    ["a turn", start({ Turn: 2 })],
    ["a text", delta("so")],
    ["a thought", { Type: "reasoning.delta", Text: "so" }],
    ["a prompt", prompt("so")],
    ["a call of another run", call("b", { RunID: "run-2" })],
    ["what is asked of someone else", authorization("pending")],
    ["a hook about a call", hook("b")],
    ["progress of a call", { Type: "tool.progress" }],
  ])("is not open any more after %s", (_, line) => {
    const translation = translated(...turn, ask("b"), line);
    expect(recordsOf(translation, "ask").map(({ askId }) => askId)).not.toContain("old-1:0:b");
    const kept = recordsOf(translation, "legacyEvidence").find(({ legacyId }) => {
      return legacyId === "old-1:0:b";
    });
    expect(kept).toMatchObject({ kind: LegacyEvidenceKind.ASK, occurrence: "log/6" });
    expect(kept?.toolCallId).toBe(callIds(translation)[1]);
    if (recordsOf(translation, "ask").length > 0) return;
    expect(states(translation)).not.toContain("ACCEPTED");
    expect(states(translation)).not.toContain("AWAITING_ANSWER");
  });

  test.each<[string, readonly Line[]]>([
    ["of a child", [...turn, ask("b", { AskID: "subagent-1:0:b" })]],
    ["without a call, where two have no result", [...turn, ask(undefined)]],
    ["about a call that has its result", [...turn, ask("a")]],
    ["about a call of another tool", [...turn, ask("b", { Tool: "write" })]],
    ["about an id that two calls have", [...turn, call("b"), ask("b")]],
    ["without an id", [...turn, ask("b", { AskID: "" })]],
    ["after a gap", [...turn, gap, ask("b")]],
    ["after the end", [...turn, end(), ask("b")]],
    ["of another turn", [...turn, { ...ask("b"), Turn: 2 }]],
    ["of another run", [...turn, { ...ask("b"), RunID: "run-2" }]],
    ["of no turn", [ask("b")]],
  ])("%s is evidence about no call, and nothing can be started", (_, lines) => {
    const translation = translated(...lines);
    expect(recordsOf(translation, "ask")).toEqual([]);
    const asks = recordsOf(translation, "legacyEvidence").filter(
      ({ kind }) => kind === LegacyEvidenceKind.ASK,
    );
    expect(asks.map(({ toolCallId }) => toolCallId)).toEqual([undefined]);
    expect(states(translation)).not.toContain("ACCEPTED");
    expect(states(translation)).not.toContain("AWAITING_ANSWER");
  });

  test.each<[string, Line]>([
    ["of a child", approval("subagent-1:0:b", "b")],
    ["of another turn", { ...approval("x", "b"), Turn: 2 }],
    ["that names no call", approval("x", "")],
    ["that names a call twice", approval("x", "twice")],
  ])("or a verdict %s is about no call", (_, line) => {
    const lines = [...turn, call(""), call("twice"), call("twice"), line];
    const [found] = recordsOf(translated(...lines), "legacyEvidence");
    expect(found?.kind).toBe(LegacyEvidenceKind.APPROVAL);
    expect(found?.toolCallId).toBeUndefined();
  });
});

describe("what is not known of a log", () => {
  test("is evidence, and what is only of interest to the old system is not", () => {
    const translation = translated(
      ...[{ Type: "session.init" }, { Type: "later.type", Text: "words" }, gap],
      ...[{ Type: "subagent.start", Text: "child" }, { Type: "team.tasks" }, { Type: "" }],
      ...[{ Type: "turn.end" }, { Type: "compaction", Text: "short" }, { Type: "steer.outcome" }],
      '{"v":"eventlog-json/1","ev":{"Type":"tool.ca',
    );
    expect(evidence(translation)).toEqual([
      ...["EVENT later.type log/2", "GAP append failed log/3", "EVENT subagent.start log/4"],
      ...["EVENT team.tasks log/5", "EVENT log/6", "GAP the last line is cut off log/10"],
    ]);
    expect(recordsOf(translation, "legacyEvidence")[0]?.text).toBe("words");
  });

  test("a line that is cut off takes away the ask before it", () => {
    const translation = translated(start(), call("a"), ask("a"), '{"v":"event');
    expect(recordsOf(translation, "ask")).toEqual([]);
    expect(states(translation)).toEqual(["OUTCOME_UNKNOWN"]);
  });
});

describe("a log beside a snapshot", () => {
  const assistant = { role: "assistant", tool_calls: [{ ID: "a", Name: "bash", Args: { ls: 1 } }] };
  const messages = [{ role: "user", text: "go" }, assistant];
  const lines = [
    ...[prompt("go"), start(), delta("hm"), hook("a"), call("a"), review("a"), result("a")],
    ...[ask("a"), approval("old-1:0:a", "a"), gap, authorization("granted"), ask("a")],
  ];

  test("joins nothing with it", () => {
    const alone = translatedBoth({ messages });
    const translation = translatedBoth({ messages }, ...lines);
    expect(translation.records.slice(0, alone.records.length)).toEqual(alone.records);
    expect(translation.occurrences).toEqual(alone.occurrences);
    expect(evidence(translation)).toEqual([
      ...["MESSAGE user log/1", "MESSAGE assistant log/3", "CALL log/5", "RESULT log/7"],
      ...["ASK log/8", "APPROVAL allow_once log/9", "GAP append failed log/10"],
      ...["AUTHORIZATION granted log/11", "ASK log/12"],
    ]);
    const apart = [
      ...recordsOf(translation, "legacyEvidence"),
      ...hooksOf(translation),
      ...recordsOf(translation, "ask"),
    ];
    expect(apart.filter(({ toolCallId }) => toolCallId !== undefined)).toEqual([]);
    expect(told(translation)).toEqual([["RESULT_MISSING", "SYNTHETIC"]]);
    expect(hooksOf(translation).map(({ hookId }) => hookId.slice(0, 4))).toEqual(["hkl_", "old-"]);
    const [, , proposed, got] = recordsOf(translation, "legacyEvidence").map(({ content }) =>
      bytesOf(translation, content?.bodyRef),
    );
    expect([proposed, got]).toEqual(['{"ls":"a"}', "of a"]);
  });

  test("leaves open what the snapshot waits for", () => {
    const pending = { AskID: "old-1:0:a", Tool: "bash", Args: null, Reason: "may it?", call: "a" };
    const waiting = { state: "awaiting", messages, pending };
    const translation = translatedBoth(waiting, ...lines, approval("old-1:0:a", "a"));
    expect(states(translation)).toEqual(["AWAITING_ANSWER"]);
    expect(recordsOf(translation, "ask").length).toBe(1);
  });

  test("tells attachments of a prompt on their own", () => {
    const Parts = [{ Kind: "image", MIMEType: "image/png", Data: "AAEC", URL: "" }];
    const translation = translatedBoth({}, { Type: "user_prompt", UserPrompt: { Parts } });
    expect(evidence(translation)).toEqual(["MESSAGE user log/1/0"]);
  });

  test("must be of the session that the snapshot is of", () => {
    const snapshot = decodeSnapshot(new TextEncoder().encode('{"id":"another","state":"idle"}'));
    if (isMalformed(snapshot)) throw new Error(snapshot.malformed);
    const other = { sessionId: SESSION, snapshot, log: undefined };
    expect(() => translateSession(other)).toThrow(InvariantError);
  });
});
