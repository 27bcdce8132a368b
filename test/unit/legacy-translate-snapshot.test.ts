import { describe, expect, test } from "vitest";
import { AskKind, AskProvenance, AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { LegacyEvidenceKind } from "../../gen/toolmark/v1/legacy_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { Ran, ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { decodeSnapshot } from "../../src/legacy/decode-snapshot.js";
import { isMalformed } from "../../src/legacy/malformed.js";
import { translateSession } from "../../src/legacy/translate-session.js";
import type { Translation } from "../../src/legacy/translation.js";
import { bytesOf, recordsOf, told } from "../support/translations.js";

const utf8 = new TextEncoder();

function translated(snapshot: object): Translation {
  const decoded = decodeSnapshot(utf8.encode(JSON.stringify({ id: "old-1", ...snapshot })));
  if (isMalformed(decoded)) throw new Error(`${decoded.path}: ${decoded.malformed}`);
  return translateSession({ sessionId: decoded.sessionId, snapshot: decoded, log: undefined });
}

const call = (ID: string, Name = "bash", Args: object | null = { ls: ID }) => ({ ID, Name, Args });
const assistant = (...tool_calls: object[]) => ({ role: "assistant", tool_calls });
const result = (CallID: string, Content = `of ${CallID}`, IsError = false) => {
  return { role: "tool", tool_result: { CallID, Content, IsError } };
};
const user = (text: string) => ({ role: "user", text });
const ASK = { AskID: "old-1:0:b:r1", Tool: "bash", Args: { ls: "b" }, Reason: "may it?" };
const asked = (pending: object, ...messages: object[]) =>
  translated({ state: "awaiting", run_id: "run-7", messages, pending: { ...ASK, ...pending } });

describe("A: a provider's id that comes again", () => {
  const messages = [
    user("go"),
    assistant({ ...call("x"), item_id: "fc_1" }),
    result("x", "first"),
    assistant(call("x")),
    result("x", "second", true),
  ];

  test("is another call with its own result", () => {
    const translation = translated({ state: "completed", messages });
    const calls = recordsOf(translation, "toolCall");
    expect(calls.map(({ result: of }) => bytesOf(translation, of?.content?.bodyRef))).toEqual([
      "first",
      "second",
    ]);
    expect(calls.map(({ result: of }) => of?.isError)).toEqual([false, true]);
    expect(told(translation)).toEqual([
      ["COMPLETED", "CANONICAL"],
      ["COMPLETED", "CANONICAL"],
    ]);
    expect(new Set(calls.map(({ toolCallId }) => toolCallId)).size).toBe(2);
    expect(calls.map(({ ran }) => ran)).toEqual([Ran.UNKNOWN, Ran.UNKNOWN]);
    const pairing = translation.pairings.get(calls[0]?.toolCallId ?? "");
    expect(pairing).toMatchObject({ providerCallId: "x", providerItemId: "fc_1" });
  });

  test("keeps its ids when the history grows, and gives the same for the same", () => {
    const before = translated({ state: "completed", messages });
    const after = translated({ state: "idle", messages: [...messages, assistant(call("x"))] });
    expect(translated({ state: "completed", messages })).toEqual(before);
    expect(after.occurrences.slice(0, 2)).toEqual(before.occurrences);
    expect(after.occurrences.length).toBe(3);
  });
});

describe("B: a question that waits", () => {
  const turn = [assistant(call("a"), call("b"), call("c")), result("a")];

  test("is about the call that it names, and keeps its id", () => {
    const translation = asked({ call: "b", origin: "permission" }, ...turn);
    expect(told(translation)).toEqual([
      ["COMPLETED", "CANONICAL"],
      ["AWAITING_ANSWER", "none"],
      ["ACCEPTED", "none"],
    ]);
    const [ask] = recordsOf(translation, "ask");
    const [, waiting] = recordsOf(translation, "toolCall");
    expect(ask).toMatchObject({
      ...{ askId: ASK.AskID, toolCallId: waiting?.toolCallId, runId: "run-7", prompt: "may it?" },
      ...{ kind: AskKind.ACTION, provenance: AskProvenance.PERMISSION, state: AskState.OPEN },
      ...{ display: "", presented: waiting?.effective },
    });
    expect(ask?.revision).toBeUndefined();
    expect(ask?.allowedVerdicts).toContain(Verdict.ALLOW_ONCE);
  });

  test.each([[{}], [{ plan_originated: true }], [{ hook_originated: true }], [{ origin: "new" }]])(
    "whose asker is not written down can only be denied: %j",
    (origin) => {
      const [ask] = recordsOf(asked({ call: "b", ...origin }, ...turn), "ask");
      expect(ask?.provenance).toBe(AskProvenance.UNSPECIFIED);
      expect(ask?.allowedVerdicts).toEqual([Verdict.DENY]);
    },
  );

  test("names its review as it was written", () => {
    const guardrail = { ReviewID: "old-1:b:action", Kind: "action", GrantDigest: "secret" };
    const [ask] = recordsOf(
      asked({ call: "b", origin: "hook_guardrail", guardrail }, ...turn),
      "ask",
    );
    expect(ask).toMatchObject({ reviewId: "old-1:b:action", kind: AskKind.ACTION });
  });

  test("of a guardrail that names no review is a question without one", () => {
    const guardrail = { ReviewID: "", Kind: "action" };
    const [ask] = recordsOf(
      asked({ call: "b", origin: "hook_guardrail", guardrail }, ...turn),
      "ask",
    );
    expect(ask?.reviewId).toBeUndefined();
  });

  test("for the release of a result, which is gone, can only be denied", () => {
    const guardrail = { ReviewID: "old-1:b:inbound", Kind: "result_release" };
    const release = { call: "b", Args: null, origin: "hook_guardrail", guardrail };
    const translation = asked(release, ...turn);
    expect(told(translation)[1]).toEqual(["STARTED", "none"]);
    const [ask] = recordsOf(translation, "ask");
    expect(ask).toMatchObject({ kind: AskKind.RESULT_RELEASE, allowedVerdicts: [Verdict.DENY] });
  });

  test("without a call is about the only one that has no result", () => {
    const translation = asked({ origin: "permission" }, assistant(call("b")));
    expect(told(translation)).toEqual([["AWAITING_ANSWER", "none"]]);
  });

  test("that was shown with other arguments tells them beside those of the call", () => {
    const other = { call: "b", Args: { system: true } };
    const [ask] = recordsOf(asked(other, ...turn), "ask");
    expect(ask?.display).toBe('{"system":true}');
  });

  const unclear: readonly (readonly [string, object, readonly object[]])[] = [
    ["without a call, where two have no result", {}, turn],
    ["about an id that the turn does not have", { call: "d" }, turn],
    ["about a call that has its result", { call: "a" }, turn],
    ["about a call of another tool", { call: "b", Tool: "write" }, turn],
    ["about an id that two calls have", { call: "b" }, [assistant(call("b"), call("b"))]],
    ["of a kind that is not known", { call: "b", guardrail: { Kind: "new", ReviewID: "" } }, turn],
    ["without an id", { call: "b", AskID: "" }, turn],
    ["where nothing waits for an answer", { call: "b" }, [...turn, user("next")]],
  ];

  test.each(unclear)(
    "%s is evidence, and nothing of its turn can be started",
    (_, ask, history) => {
      const translation = asked({ origin: "permission", ...ask }, ...history);
      expect(recordsOf(translation, "ask")).toEqual([]);
      const [evidence] = recordsOf(translation, "legacyEvidence");
      expect(evidence).toMatchObject({ kind: LegacyEvidenceKind.ASK, text: "may it?" });
      for (const { state } of recordsOf(translation, "toolCall")) {
        expect([
          ToolCallState.COMPLETED,
          ToolCallState.OUTCOME_UNKNOWN,
          ToolCallState.RESULT_MISSING,
        ]).toContain(state);
      }
    },
  );

  test("in a session that says that it waits for nothing is evidence", () => {
    const messages = [assistant(call("b"))];
    const translation = translated({
      state: "completed",
      messages,
      pending: { ...ASK, call: "b" },
    });
    expect(recordsOf(translation, "ask")).toEqual([]);
    expect(told(translation)).toEqual([["RESULT_MISSING", "SYNTHETIC"]]);
  });

  test("leaves a call before it, which may have run, with an unknown outcome", () => {
    const translation = asked({ call: "b" }, assistant(call("a"), call("b")));
    expect(told(translation)).toEqual([
      ["OUTCOME_UNKNOWN", "SYNTHETIC"],
      ["AWAITING_ANSWER", "none"],
    ]);
  });
});

describe("C: a call that waits for a consent", () => {
  const bytes = '{"a" :"<&\\u2028" ,\r\n"n":1e400}';
  const parkedCall = (id: string, args: string) => ({ id, name: "bash", args: btoa(args) });
  const parked = {
    authorization: {
      ...{ id: "auth-1", display_name: "Mail", binding: "b" },
      expires_at: "2026-09-21T12:00:00.5Z",
    },
    call: parkedCall("b", bytes),
    deferred: [parkedCall("x", '{"ls": "x"}'), parkedCall("d", '{"ls":"d"}')],
  };
  const messages = [
    ...[assistant(call("x")), result("x")],
    ...[assistant(call("a"), call("b"), call("x"), call("d")), result("a")],
  ];
  const waiting = (change: object = {}, history: readonly object[] = messages) =>
    translated({
      ...{ state: "authorizing", messages: history },
      pending_authorization: { ...parked, ...change },
    });

  test("waits with the calls behind it, and keeps the bytes that it would be carried out with", () => {
    const translation = waiting();
    expect(told(translation).map(([state]) => state)).toEqual([
      ...["COMPLETED", "COMPLETED"],
      ...["AWAITING_AUTHORIZATION", "AWAITING_AUTHORIZATION", "AWAITING_AUTHORIZATION"],
    ]);
    const calls = recordsOf(translation, "toolCall").map(({ toolCallId }) => toolCallId);
    const [authorization] = recordsOf(translation, "authorization");
    expect(authorization).toMatchObject({
      ...{ authorizationId: "auth-1", state: AuthorizationState.PENDING, displayName: "Mail" },
      ...{ toolCallId: calls[2], deferredToolCallIds: calls.slice(3) },
    });
    const parkedOne = recordsOf(translation, "toolCall")[2];
    expect(bytesOf(translation, parkedOne?.effective?.bodyRef)).toBe(bytes);
    expect(bytesOf(translation, parkedOne?.proposed?.bodyRef)).toBe('{"ls":"b"}');
  });

  const unclear: readonly (readonly [string, object, readonly object[]])[] = [
    ["whose siblings are fewer", { deferred: parked.deferred.slice(1) }, messages],
    ["whose siblings stand in another order", { deferred: parked.deferred.toReversed() }, messages],
    [
      "whose sibling has other arguments",
      { deferred: [parkedCall("x", "{}"), parked.deferred[1]] },
      messages,
    ],
    ["that the turn does not have", { call: parkedCall("z", "{}") }, messages],
    ["behind one that has no result", {}, messages.slice(0, -1)],
    ["in a turn with an id twice", {}, [...messages.slice(0, 2), assistant(call("b"), call("b"))]],
  ];

  test.each(unclear)("%s does not wait: its turn has unknown outcomes", (_, change, history) => {
    const translation = waiting(change, history);
    expect(recordsOf(translation, "authorization")).toEqual([]);
    const [evidence] = recordsOf(translation, "legacyEvidence");
    expect(evidence).toMatchObject({ legacyId: "auth-1", label: "pending" });
    const states = told(translation).map(([state]) => state);
    expect(states).not.toContain("AWAITING_AUTHORIZATION");
    expect(states).not.toContain("ACCEPTED");
  });
});

describe("D: two calls of a turn with one id", () => {
  test("load, and their result is of neither", () => {
    const messages = [assistant(call("x"), call("x")), result("x")];
    const translation = translated({ state: "completed", messages });
    expect(told(translation)).toEqual([
      ["RESULT_MISSING", "SYNTHETIC"],
      ["RESULT_MISSING", "SYNTHETIC"],
    ]);
    const [evidence] = recordsOf(translation, "legacyEvidence");
    expect(evidence).toMatchObject({ kind: LegacyEvidenceKind.RESULT });
    expect(evidence?.toolCallId).toBeUndefined();
    expect(bytesOf(translation, evidence?.content?.bodyRef)).toBe("of x");
  });

  test("of an empty id each stand alone, and pair where there is only one", () => {
    const messages = [assistant(call(""), call("")), result(""), assistant(call("")), result("")];
    const translation = translated({ state: "completed", messages });
    expect(told(translation).map(([state]) => state)).toEqual([
      ...["RESULT_MISSING", "RESULT_MISSING", "COMPLETED"],
    ]);
  });

  test("do not lend a result of an earlier turn, nor take a second one", () => {
    const messages = [
      assistant(call("x")),
      assistant(call("y")),
      result("x"),
      result("y"),
      result("y"),
    ];
    const translation = translated({ state: "completed", messages });
    expect(told(translation).map(([state]) => state)).toEqual(["RESULT_MISSING", "COMPLETED"]);
    expect(recordsOf(translation, "legacyEvidence").length).toBe(2);
  });
});

test("E: a child keeps its id, what it works for, and the id of its question", () => {
  const sessionId = "parallel-old-1-x-2";
  const relationship = { parent_session_id: "old-1", call_id: "x", branch_index: 2 };
  const askId = `${sessionId}:0:b`;
  const translation = translated({
    ...{ id: sessionId, kind: "parallel_branch", relationship, state: "awaiting" },
    messages: [assistant(call("b"))],
    pending: { ...ASK, AskID: askId, call: "b", origin: "permission" },
  });
  expect(translation).toMatchObject({
    ...{ sessionId, kind: SessionKind.PARALLEL_BRANCH },
    relationship: { parentSessionId: "old-1", providerCallId: "x", branchIndex: 2 },
  });
  const [ask] = recordsOf(translation, "ask");
  expect(ask).toMatchObject({ askId, origin: { sessionId } });
});

test("a session that was running has calls of which nobody knows the outcome", () => {
  const messages = [assistant(call("a"), call("b")), result("a")];
  expect(told(translated({ state: "running", messages }))).toEqual([
    ["COMPLETED", "CANONICAL"],
    ["OUTCOME_UNKNOWN", "SYNTHETIC"],
  ]);
});

test("what was said stays in order with its attachments, and unknown roles are evidence", () => {
  const part = { kind: "image", mime_type: "image/png", data: "AAEC" };
  const messages = [
    { role: "user", text: "look", parts: [part] },
    { role: "narrator", text: "meanwhile" },
    { role: "assistant", text: "I see", reasoning: "private thought" },
  ];
  const translation = translated({ state: "idle", messages });
  const said = recordsOf(translation, "message");
  expect(said.map(({ content }) => content?.mediaType)).toEqual([
    "text/plain; charset=utf-8",
    "image/png",
    "text/plain; charset=utf-8",
  ]);
  const [evidence] = recordsOf(translation, "legacyEvidence");
  expect(evidence).toMatchObject({ kind: LegacyEvidenceKind.MESSAGE, label: "narrator" });
  expect([...translation.replays.values()]).toMatchObject([{ reasoning: "private thought" }]);
  const shown = JSON.stringify(translation.records, (_key, value: unknown) =>
    typeof value === "bigint" ? String(value) : value,
  );
  expect(shown).not.toContain("private thought");
});
