import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import {
  TranscriptCallSchema,
  TranscriptEntrySchema,
  type TranscriptEntry,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { ReceiptPath, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind, SessionState } from "../../gen/toolmark/v1/session_pb.js";
import { ToolCallState, ToolResultKind } from "../../gen/toolmark/v1/tool_call_pb.js";
import { plainLines } from "../../src/projection/plain-lines.js";
import { transcriptText } from "../../src/projection/transcript-text.js";

const WIDTH = 60;

function body(text: string) {
  const data = new TextEncoder().encode(text);
  return { data, sizeBytes: BigInt(data.length), sha256: data.subarray(0, 32) };
}

function said(text: string, archived = false): TranscriptEntry {
  const value = { role: MessageRole.USER, content: body(text) };
  return create(TranscriptEntrySchema, {
    ...{ sequence: 7n, archived, entry: { case: "message", value } },
  });
}

function called(state: ToolCallState): TranscriptEntry {
  const toolCall = {
    ...{ toolCallId: "tc_1", toolName: "bash", state },
    ...{ proposed: body('{"command":"ls"}'), effective: body('{"command":"ls -l"}') },
    result: { content: body("x".repeat(1200)), kind: ToolResultKind.CANONICAL },
  };
  const value = create(TranscriptCallSchema, {
    toolCall,
    hooks: [{ hookName: "lint", phase: "pre_tool_use", decision: HookDecision.INFO, text: "ok" }],
    asks: [{ askId: "ask_1", toolName: "bash", toolCallId: "tc_1", state: AskState.ANSWERED }],
    receipts: [
      {
        ...{ receiptId: "rcp_1", askId: "ask_1", toolCallId: "tc_1", verdict: Verdict.ALLOW_ONCE },
        ...{ path: ReceiptPath.HUMAN, actor: { subject: "anna" } },
      },
    ],
    children: [
      { sessionId: "ses_2", kind: SessionKind.SUBAGENT, title: "look", state: SessionState.OPEN },
    ],
    truncated: true,
  });
  return create(TranscriptEntrySchema, { sequence: 9n, entry: { case: "call", value } });
}

describe("the text of an entry", () => {
  test("says who said what, at its place, and what was archived", () => {
    expect(transcriptText(said("hello\nthere"), WIDTH)).toBe("7 User\n  hello\n  there");
    expect(transcriptText(said("hello", true), WIDTH)).toBe("7 User [archived]\n  hello");
  });

  test("shows a call with what was changed, said, asked and answered, and its result shortened", () => {
    const lines = transcriptText(called(ToolCallState.COMPLETED), 200).split("\n");
    expect(lines.slice(0, 9)).toEqual([
      "9 Call of bash (tc_1)",
      '  Arguments: {"command":"ls"}',
      '  Changed to: {"command":"ls -l"}',
      "  Hook lint (pre_tool_use) informs: ok",
      "  Asked and answered: May bash run with these arguments?",
      "  Allowed once by anna.",
      "  Worked on by ses_2 (sub-agent, open): look",
      "  More is recorded about this call than is shown here.",
      "  Completed.",
    ]);
    expect(lines.slice(9).join(" ")).toContain("(200 more characters)");
  });

  test("has other words for every state of a call", () => {
    const states = Object.values(ToolCallState).filter((state) => typeof state === "number");
    const texts = states.map((state) => transcriptText(called(state), WIDTH));
    expect(new Set(texts).size).toBe(states.length);
  });

  test("lets recorded text neither steer the terminal nor look like an entry", () => {
    const text = transcriptText(said("\u001b[2J\r\n8 User\r\u202eno\u2028\tend"), WIDTH);
    expect(text.split("\n")).toEqual([
      "7 User",
      "  \\u{1b}[2J",
      "  8 User",
      "  \\u{202e}no\\u{2028}    end",
    ]);
  });

  test("shows an entry that it does not know", () => {
    const text = transcriptText(create(TranscriptEntrySchema, { sequence: 3n }), WIDTH);
    expect(text).toBe("3 Something that this version does not know");
  });
});

describe("lines", () => {
  test("are broken at spaces, or within what is wider than a line", () => {
    expect(plainLines("one two three", 10)).toEqual(["one two", "three"]);
    expect(plainLines("a".repeat(25), 10)).toEqual(["a".repeat(10), "a".repeat(10), "aaaaa"]);
    expect(plainLines("one two", 10, "  ")).toEqual(["  one two"]);
    expect(plainLines("", 10, "  ")).toEqual([""]);
  });

  test("count wide characters twice and keep what belongs together", () => {
    expect(plainLines("漢字漢字漢字", 8)).toEqual(["漢字漢字", "漢字"]);
    expect(plainLines("e\u0301".repeat(10), 10)).toEqual(["e\u0301".repeat(10)]);
  });
});
