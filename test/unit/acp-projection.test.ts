import { create } from "@bufbuild/protobuf";
import type { SessionUpdate } from "@agentclientprotocol/sdk";
import { beforeEach, describe, expect, test } from "vitest";
import { AskKind, AskProvenance, AskSchema, AskState } from "../../gen/toolmark/v1/ask_pb.js";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import { LegacyEvidenceKind, LegacyEvidenceSchema } from "../../gen/toolmark/v1/legacy_pb.js";
import { ReceiptPath, ReceiptSchema, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import {
  ReviewAssessment,
  ReviewDisposition,
  ReviewInspection,
  ReviewJob,
} from "../../gen/toolmark/v1/review_pb.js";
import { MessageRole, MessageSchema } from "../../gen/toolmark/v1/run_pb.js";
import { CompactionSchema, SessionSchema } from "../../gen/toolmark/v1/session_pb.js";
import { ProvisionalResultSchema, Ran, ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { AcpProjection } from "../../src/projection/acp.js";
import { CARD_NOTES } from "../../src/projection/acp-card.js";
import {
  permissionCard,
  permissionOptions,
  verdictOf,
} from "../../src/projection/acp-permission.js";
import { TAIL_BYTES } from "../../src/projection/acp-tail.js";
import { toolKindOf } from "../../src/projection/acp-tool-kind.js";
import {
  bodyOf,
  bytesOf,
  callOf,
  EventWriter,
  hookOf,
  resultOf,
  ROOT_ID,
} from "../support/acp-events.js";
import { bytes } from "../support/conversation.js";

let projection: AcpProjection;
let log: EventWriter;

beforeEach(() => {
  projection = new AcpProjection(ROOT_ID);
  log = new EventWriter();
});

function add(...events: Event[]): SessionUpdate[] {
  return events.flatMap((event) => projection.add(event, bytesOf));
}

/** Status and text of an update of a card, or the text of a message. */
function shown(update: SessionUpdate | undefined): { status?: unknown; text: string } {
  switch (update?.sessionUpdate) {
    case "tool_call":
    case "tool_call_update": {
      const parts = (update.content ?? []).map((part) =>
        part.type === "content" && part.content.type === "text" ? part.content.text : "?",
      );
      return { status: update.status, text: parts.join("\n") };
    }
    case "agent_message_chunk":
    case "user_message_chunk":
      return { text: update.content.type === "text" ? update.content.text.trim() : "?" };
    default:
      return { text: "" };
  }
}

const { ACCEPTED, STARTED, COMPLETED, BLOCKED } = ToolCallState;

describe("a card", () => {
  test("is made once, with our id, name, kind and arguments as they parse", () => {
    expect(add(log.call(callOf()))).toEqual([
      {
        sessionUpdate: "tool_call",
        toolCallId: "tc_1",
        title: "bash",
        kind: "execute",
        status: "pending",
        rawInput: { command: "ls" },
      },
    ]);
  });

  test("shows arguments that are no object as text", () => {
    const [update] = add(log.call(callOf({ effective: bodyOf("[1,") })));
    expect(update).not.toHaveProperty("rawInput");
    expect(shown(update).text).toBe("Arguments: [1,");
  });

  test("shows amended arguments, and drops those it had", () => {
    add(log.call(callOf()));
    const amended = callOf({ revision: 2n, effective: bodyOf('{"command":"pwd"}') });
    expect(add(log.call(amended))).toMatchObject([{ rawInput: { command: "pwd" } }]);
    const broken = callOf({ revision: 3n, effective: bodyOf("ls") });
    expect(add(log.call(broken))).toMatchObject([{ rawInput: null }]);
  });

  const NO = Ran.NO;
  const YES = Ran.YES;
  test.each([
    ["AWAITING_ANSWER", NO, "pending", "Waits for an answer.\ntext"],
    ["AWAITING_AUTHORIZATION", NO, "pending", "Waits for an authorization.\ntext"],
    ["STARTED", YES, "in_progress", "text"],
    ["COMPLETED", YES, "completed", "text"],
    ["FAILED", YES, "failed", "Failed: it could not be carried out or finished. It ran.\ntext"],
    ["BLOCKED", NO, "failed", "Blocked by a hook. It did not run.\ntext"],
    ["DENIED", NO, "failed", "Denied. It did not run.\ntext"],
    [
      "EXPIRED",
      NO,
      "failed",
      "Expired: what it waited for did not come in time. It did not run.\ntext",
    ],
    [
      "WITHHELD",
      YES,
      "failed",
      "Withheld: the model was given this text instead of the result. It ran.\ntext",
    ],
    ["CANCELLED", NO, "failed", "Cancelled before it started.\ntext"],
    ["INTERRUPTED", YES, "failed", "Interrupted while it ran.\ntext"],
    ["TIMED_OUT", YES, "failed", "Timed out. It ran.\ntext"],
    [
      "OUTCOME_UNKNOWN",
      Ran.UNKNOWN,
      "failed",
      "Outcome unknown: nobody knows how it ended. Whether it ran is not known.\ntext",
    ],
    [
      "RESULT_MISSING",
      Ran.UNKNOWN,
      "failed",
      "Result missing: an older system kept none. Whether it ran is not known.\ntext",
    ],
  ] as const)("of a call that is %s says so", (name, ran, status, text) => {
    add(log.call(callOf()));
    const state = ToolCallState[name];
    const [update] = add(log.call(callOf({ revision: 2n, state, ran, result: resultOf("text") })));
    expect(shown(update)).toEqual({ status, text });
  });

  test.each(Object.values(ToolCallState).filter((state) => typeof state === "number"))(
    "has a status for state %i",
    (state) => {
      const [update] = add(log.call(callOf({ state })));
      const ended = state === COMPLETED ? "completed" : "failed";
      const open = state === STARTED ? "in_progress" : "pending";
      expect(shown(update).status).toBe(state >= COMPLETED ? ended : open);
    },
  );

  test("tells that the tool reported an error", () => {
    const call = callOf({ state: COMPLETED, result: resultOf("no such file", true) });
    expect(shown(add(log.call(call))[0])).toEqual({
      status: "completed",
      text: "The tool reported an error.\nno such file",
    });
  });

  test("of a blocked call has the reason of the hook that the call names, of no other", () => {
    add(log.call(callOf()));
    add(log.hook(hookOf({ hookId: "hk_other", text: "another reason" })));
    add(log.hook(hookOf({ revision: 3n })));
    const blocked = { revision: 4n, state: BLOCKED, blockedByHookId: "hk_1", ran: Ran.NO };
    const [update] = add(log.call(callOf(blocked)));
    const { status, text } = shown(update);
    expect(status).toBe("failed");
    expect(text.split("\n")[0]).toBe("Blocked by policy: not here");
  });

  test("does not take the reason of a hook of another call", () => {
    add(log.call(callOf()), log.call(callOf({ toolCallId: "tc_2", revision: 2n })));
    add(log.hook(hookOf({ revision: 3n, toolCallId: "tc_2" })));
    const blocked = { revision: 4n, state: BLOCKED, blockedByHookId: "hk_1", ran: Ran.NO };
    expect(shown(add(log.call(callOf(blocked)))[0]).text).toBe("Blocked by hk_1. It did not run.");
  });

  test("says what is known of a result that was not read, or is no text", () => {
    const call = log.call(callOf({ state: COMPLETED, result: resultOf("abc") }));
    const [unread] = projection.add(call, () => undefined);
    expect(shown(unread).text).toContain("(3 bytes, not read)");
    const other = log.call(callOf({ toolCallId: "tc_2", state: COMPLETED, result: resultOf("a") }));
    const [binary] = projection.add(other, () => new Uint8Array([0xff]));
    expect(shown(binary).text).toContain("(1 bytes that are no text)");
  });
});

describe("evidence about a call", () => {
  test("goes onto its card, and an update of it takes its place", () => {
    add(log.call(callOf()));
    const review = {
      reviewId: "rv_1",
      job: ReviewJob.ACTION,
      assessment: ReviewAssessment.UNRESOLVED,
      inspection: ReviewInspection.OPERATIONAL_FAILURE,
      disposition: ReviewDisposition.ASK_ACTION,
    };
    const first = hookOf({ hookId: "rv_1", review, text: "timeout" });
    expect(shown(add(log.hook(first))[0]).text).toBe(
      "Review of the call: it could not be carried out; a person is asked: timeout",
    );
    const found = {
      ...review,
      assessment: ReviewAssessment.PROHIBITED,
      inspection: ReviewInspection.COMPLETE,
      disposition: ReviewDisposition.DENY,
    };
    const second = hookOf({ hookId: "rv_1", review: found, text: "", revision: 3n });
    expect(shown(add(log.hook(second))[0]).text).toBe(
      "Review of the call: prohibited; it is refused.",
    );
  });

  test("of asks and receipts is told in words", () => {
    add(log.call(callOf()));
    const about = { origin: { sessionId: ROOT_ID }, toolCallId: "tc_1", askId: "ask_1" };
    const open = { ...about, toolName: "bash", kind: AskKind.ACTION, revision: 2n };
    const ask = create(AskSchema, { ...open, state: AskState.OPEN });
    const receipt = create(ReceiptSchema, {
      ...about,
      receiptId: "rcp_1",
      revision: 3n,
      verdict: Verdict.DENY,
      path: ReceiptPath.RULE,
      rule: "no-shell",
      reason: "too risky",
    });
    const updates = add(
      log.write({ case: "ask", value: ask }),
      log.write({ case: "receipt", value: receipt }),
    );
    expect(shown(updates[1]).text).toBe(
      "Asks: May bash run with these arguments?\nDenied by rule no-shell: too risky",
    );
  });

  test("of another origin, or whose review names another record, is a message", () => {
    add(log.call(callOf()));
    const foreign = hookOf({ origin: { sessionId: "ses_other" } });
    const mismatched = hookOf({ hookId: "rv_1", review: { reviewId: "rv_2" } });
    for (const hook of [foreign, mismatched]) {
      const [update, ...more] = add(log.hook(hook));
      expect(update?.sessionUpdate).toBe("agent_message_chunk");
      expect(shown(update).text).toContain("not here (about tc_1)");
      expect(more).toEqual([]);
    }
  });

  test("about no call is a message", () => {
    const { toolCallId, ...plain } = hookOf({ phase: "session_start" });
    expect(toolCallId).toBeDefined();
    expect(shown(add(log.hook(plain))[0]).text).toBe(
      "Hook policy (session_start) blocks: not here",
    );
  });

  test("whose call is not known yet waits for it, or is a message in the end", () => {
    expect(add(log.hook(hookOf()))).toEqual([]);
    expect(add(log.hook(hookOf({ hookId: "hk_2", toolCallId: "tc_never" })))).toEqual([]);
    expect(projection.isSettled).toBe(false);
    expect(shown(add(log.call(callOf({ revision: 5n })))[0]).text).toContain("not here");
    expect(projection.settle().map((update) => shown(update).text)).toEqual([
      "Hook policy (pre_tool_use) blocks: not here (about tc_never)",
    ]);
    expect(projection.settle()).toEqual([]);
  });

  test("for which the card has no room is a message", () => {
    add(log.call(callOf()));
    const kinds = Array.from({ length: CARD_NOTES + 1 }, (_, index) => {
      const hook = hookOf({ hookId: `hk_${index}`, revision: BigInt(index + 2) });
      return add(log.hook(hook)).map(({ sessionUpdate }) => sessionUpdate);
    });
    expect(kinds.flat()).toEqual([
      ...Array.from({ length: CARD_NOTES }, () => "tool_call_update"),
      "agent_message_chunk",
    ]);
  });

  test("of an older system follows the same rule", () => {
    add(log.call(callOf()));
    const evidence = (sessionId: string) =>
      create(LegacyEvidenceSchema, {
        evidenceId: `lev_${sessionId}`,
        origin: { sessionId },
        toolCallId: "tc_1",
        kind: LegacyEvidenceKind.APPROVAL,
        label: "granted",
      });
    const of = (sessionId: string) =>
      add(log.write({ case: "legacyEvidence", value: evidence(sessionId) }))[0];
    expect(of(ROOT_ID)?.sessionUpdate).toBe("tool_call_update");
    expect(of("ses_other")?.sessionUpdate).toBe("agent_message_chunk");
  });
});

describe("what was added before", () => {
  test("changes nothing, nor does an older revision", () => {
    const message = create(MessageSchema, { content: bodyOf("hello"), role: MessageRole.USER });
    const events = [
      log.call(callOf()),
      log.write({ case: "message", value: message }),
      log.hook(hookOf()),
      log.call(callOf({ revision: 3n, state: STARTED })),
    ];
    add(...events);
    expect(add(...events, ...events)).toEqual([]);
    expect(add(log.call(callOf({ revision: 2n, state: ACCEPTED })))).toEqual([]);
  });

  test("and is contradicted is told as a message, and the card stays", () => {
    add(log.call(callOf({ revision: 2n })));
    const contradiction = callOf({ revision: 2n, state: COMPLETED });
    const updates = add(log.call(contradiction));
    expect(updates.map(({ sessionUpdate }) => sessionUpdate)).toEqual(["agent_message_chunk"]);
    expect(projection.cardOf(ROOT_ID, "tc_1", bytesOf)).toMatchObject({ status: "pending" });
  });
});

describe("a session below", () => {
  test("never touches the cards of the root, not even with equal ids", () => {
    const root = callOf();
    add(log.call(root));
    const session = create(SessionSchema, { sessionId: "ses_child", title: "helper" });
    expect(add(log.write({ case: "session", value: session }, "ses_child"))).toEqual([]);
    const updates = add(
      log.call(callOf({ revision: 9n, state: COMPLETED }, "ses_child"), "ses_child"),
      // A child's log with a record that claims to be the root's.
      log.hook(hookOf({ revision: 10n }), "ses_child"),
      log.call(callOf({ revision: 11n, state: COMPLETED }), "ses_child"),
    );
    expect(updates[0]).toMatchObject({ toolCallId: "ses_child/tc_1", title: "bash (in helper)" });
    const touched = updates.filter((update) => "toolCallId" in update);
    expect(touched).toHaveLength(1);
    expect(updates.slice(1).every((update) => shown(update).text.startsWith("In helper:"))).toBe(
      true,
    );
    expect(projection.cardOf(ROOT_ID, "tc_1", bytesOf)).toMatchObject({ status: "pending" });
  });
});

describe("output of a running tool", () => {
  const output = (offsetBytes: bigint, chunk: Uint8Array): Event =>
    log.write({
      case: "provisional",
      value: create(ProvisionalResultSchema, { toolCallId: "tc_1", offsetBytes, chunk }),
    });

  test("is shown as its latest part, at a cost that does not grow", () => {
    add(log.call(callOf({ state: STARTED })));
    const chunk = bytes("x".repeat(512));
    const sizes = Array.from({ length: 400 }, (_, index) =>
      JSON.stringify(add(output(BigInt(index * 512), chunk))),
    );
    const early = sizes.slice(0, 50).join("").length;
    expect(sizes.slice(-50).join("").length).toBeLessThan(early * 1.5);
    expect(Math.max(...sizes.map(({ length }) => length))).toBeLessThan(TAIL_BYTES + 500);
  });

  test("is shown at once, then in steps, and settled in the end", () => {
    add(log.call(callOf({ state: STARTED })));
    expect(shown(add(output(0n, bytes("a")))[0]).text).toBe("a");
    expect(add(output(1n, bytes("é").subarray(0, 1)))).toEqual([]);
    expect(projection.isSettled).toBe(false);
    expect(shown(projection.settle()[0]).text).toBe("a");
    expect(add(output(2n, bytes("é").subarray(1)))).toEqual([]);
    expect(shown(projection.settle()[0]).text).toBe("aé");
    expect(add(output(0n, bytes("aé")))).toEqual([]);
    expect(projection.isSettled).toBe(true);
  });

  test("is shown from behind the last part that is missing", () => {
    add(log.call(callOf({ state: STARTED })));
    expect(shown(add(output(0n, bytes("one ")))[0]).text).toBe("one ");
    add(output(8n, bytes("three")));
    expect(shown(projection.settle()[0]).text).toBe("(8 bytes before)\nthree");
  });

  test("gives way to the result, and is nothing after it", () => {
    add(log.call(callOf({ state: STARTED })), output(0n, bytes("so far")));
    const ended = callOf({ revision: 2n, state: COMPLETED, result: resultOf("all") });
    expect(shown(add(log.call(ended))[0])).toEqual({ status: "completed", text: "all" });
    expect(add(output(6n, bytes("late")))).toEqual([]);
    expect(projection.settle()).toEqual([]);
  });
});

describe("messages", () => {
  test.each([
    [MessageRole.USER, "user_message_chunk", "hello"],
    [MessageRole.ASSISTANT, "agent_message_chunk", "hello"],
    [MessageRole.SYSTEM, "agent_message_chunk", "\n\nSystem: hello\n\n"],
  ])("of role %i are %s", (role, sessionUpdate, text) => {
    const value = create(MessageSchema, { messageId: "msg_1", role, content: bodyOf("hello") });
    expect(add(log.write({ case: "message", value }))).toEqual([
      { sessionUpdate, messageId: "msg_1", content: { type: "text", text } },
    ]);
  });

  test("say what was archived, and name the session", () => {
    const session = create(SessionSchema, { sessionId: ROOT_ID, title: "Mend the build" });
    const compaction = create(CompactionSchema, { throughSequence: 1n, summary: "It was long." });
    const updates = add(
      log.write({ case: "session", value: session }),
      log.write({ case: "compaction", value: compaction }),
    );
    expect(updates[0]).toEqual({
      sessionUpdate: "session_info_update",
      title: "Mend the build",
    });
    expect(shown(updates[1]).text).toBe("What came before was archived. It was long.");
  });

  test("of kinds that are not known are kept out", () => {
    expect(add(log.write({ case: undefined }, ROOT_ID, "FROM_THE_FUTURE"))).toEqual([]);
  });
});

describe("a permission request", () => {
  const { DENY, ALLOW_ONCE } = Verdict;

  test("offers exactly what the ask takes", () => {
    const taken = { kind: AskKind.ACTION, provenance: AskProvenance.PERMISSION };
    const ask = create(AskSchema, {
      ...{ ...taken, origin: { sessionId: ROOT_ID }, allowedVerdicts: [DENY, ALLOW_ONCE] },
    });
    expect(permissionOptions(ask, ROOT_ID).map(({ kind }) => kind)).toEqual([
      "allow_once",
      "reject_once",
    ]);
    expect(verdictOf(ask, ROOT_ID, "allow_once")).toBe(ALLOW_ONCE);
    expect(verdictOf(ask, ROOT_ID, "deny")).toBe(DENY);
    expect(verdictOf(ask, ROOT_ID, "allow_always")).toBeUndefined();
    expect(verdictOf(ask, ROOT_ID, "anything")).toBeUndefined();
    expect(permissionOptions(create(AskSchema, {}), ROOT_ID)).toEqual([]);
  });

  test("shows what the ask presents", () => {
    const presented = bodyOf('{"path":"a"}');
    const about = { toolCallId: "tc_1", toolName: "read_file", presented, prompt: "Read it?" };
    const ask = create(AskSchema, { kind: AskKind.ACTION, ...about });
    expect(permissionCard(ask, undefined, bytesOf)).toMatchObject({
      toolCallId: "tc_1",
      title: "read_file",
      kind: "read",
      rawInput: { path: "a" },
      content: [{ content: { text: "Read it?" } }],
    });
    const release = create(AskSchema, { ...about, kind: AskKind.RESULT_RELEASE });
    const card = permissionCard(release, undefined, bytesOf);
    expect(card).not.toHaveProperty("rawInput");
    expect(JSON.stringify(card.content)).toContain("(12 bytes)");
  });
});

test.each([
  ["read_file", "read"],
  ["WriteFile", "edit"],
  ["bash", "execute"],
  ["mcp__repo__delete-branch", "delete"],
  ["grep", "search"],
  ["WebFetch", "fetch"],
  ["spread", "other"],
  ["", "other"],
])("the tool %j is of kind %s", (name, kind) => {
  expect(toolKindOf(name)).toBe(kind);
});
