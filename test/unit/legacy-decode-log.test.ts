import { describe, expect, test } from "vitest";

import { decodeLog } from "../../src/legacy/decode-log.js";
import { isMalformed, type Malformed } from "../../src/legacy/malformed.js";
import type { OldEvent, OldLog, OldPayload } from "../../src/legacy/old-session.js";

const toUtf8 = new TextEncoder();
const utf8 = (text: string): Uint8Array => toUtf8.encode(text);
const base64 = (text: string): string => Buffer.from(text).toString("base64");

function decoded(source: string | Uint8Array): OldLog {
  const log = decodeLog(typeof source === "string" ? utf8(source) : source);
  if (isMalformed(log)) throw new Error(`${log.path}: ${log.malformed}`);
  return log;
}

function fault(source: string | Uint8Array): Malformed {
  const log = decodeLog(typeof source === "string" ? utf8(source) : source);
  if (!isMalformed(log)) throw new Error("it was decoded");
  return log;
}

const lines = (...all: string[]): string => all.map((line) => `${line}\n`).join("");
const versioned = (event: string): string => `{"v":"eventlog-json/1","ev":${event}}`;

const GENERATION = `{"v":"eventlog-gen/1","g":"0123456789abcdef"}`;
const INIT = `{"Type":"session.init","Seq":1,"Turn":0,"Text":"","RunID":"r-1"}`;
const INIT_EVENT: OldEvent = {
  kind: "event",
  type: "session.init",
  seq: 1,
  turn: 0,
  runId: "r-1",
  text: "",
  payload: { of: "other" },
};
const CUT_OFF = { kind: "gap", reason: "the last line is cut off" };

/** Keys that every event of the old system has, whatever it is about. */
const NULLS = [
  ..."Title ToolCall ToolResult Ask ModelRetry RequestManifest NetworkAttempt".split(" "),
  ..."Authorization Result TurnEnd Hook Approval CompactionArchive UserPrompt Usage".split(" "),
  ..."Subagent Team Parallel Actor Schedule Steer".split(" "),
];

function eventText(
  type: string,
  payload: Readonly<Record<string, string>> = {},
  text = "",
): string {
  const members = NULLS.filter((key) => !(key in payload)).map((key): [string, string] => [
    key,
    "null",
  ]);
  const all = [...members, ...Object.entries(payload)].map(([key, value]) => `"${key}":${value}`);
  return `{"Type":"${type}","Seq":7,"Turn":2,"Text":${JSON.stringify(text)},"RunID":"r-1",${all.join(",")}}`;
}

function payloadOf(source: string): OldPayload {
  const [record] = decoded(lines(GENERATION, versioned(source))).records;
  if (record?.entry.kind !== "event") throw new Error("it is no event");
  expect(record.entry).toMatchObject({ seq: 7, turn: 2, runId: "r-1" });
  return record.entry.payload;
}

describe("a log", () => {
  test.each([
    ["of the file store", versioned(INIT)],
    ["of Redis", `{"v":"redisstore-eventlog/1","ev":${INIT}}`],
    ["of Redis, with a reason", `{"v":"redisstore-eventlog/1","ev":${INIT},"r":"x"}`],
    ["of a driver", `{"format":"eventlog-json/1","payload":${INIT}}`],
    ["of a driver, in base64", `{"format":"eventlog-json/1","payload":"${base64(INIT)}"}`],
    ["of the oldest writers", INIT],
    ["with carriage returns", `${INIT}\r`],
  ])("%s is read", (_, line) => {
    expect(decoded(lines(line, line))).toEqual({
      generation: undefined,
      records: [
        { line: 1, entry: INIT_EVENT },
        { line: 2, entry: INIT_EVENT },
      ],
    });
  });

  test("with a generation is read", () => {
    expect(decoded(lines(GENERATION, versioned(INIT)))).toEqual({
      generation: "0123456789abcdef",
      records: [{ line: 2, entry: INIT_EVENT }],
    });
  });

  test.each(["", lines(GENERATION)])("without records is read: %s", (source) => {
    expect(decoded(source).records).toEqual([]);
  });

  test.each([
    [`{"v":"eventlog-gap/1","r":"append failed"}`, "append failed"],
    [`{"v":"eventlog-gap/1"}`, ""],
    [`{"v":"redisstore-eventlog-gap/1","r":"append failed"}`, "append failed"],
    [`{"v":"redisstore-eventlog/1","ev":null,"r":"append failed"}`, "append failed"],
    [`{"v":"redisstore-eventlog/1","r":""}`, ""],
  ])("with a gap is read: %s", (line, reason) => {
    expect(decoded(lines(INIT, line)).records[1]).toEqual({
      line: 2,
      entry: { kind: "gap", reason },
    });
  });

  test("whose last line has no end is read if the line is whole", () => {
    expect(decoded(`${lines(GENERATION)}${versioned(INIT)}`).records).toEqual([
      { line: 2, entry: INIT_EVENT },
    ]);
  });

  test.each([
    ["inside JSON", utf8(`{"v":"event`)],
    ["inside a character", Uint8Array.of(0x7b, 0x22, 0xc3)],
    ["where blocks of the disk were not written", new Uint8Array(5)],
  ])("whose last line is cut off %s ends with a gap", (_, rest) => {
    const source = Uint8Array.from([...utf8(lines(GENERATION, versioned(INIT))), ...rest]);
    expect(decoded(source).records).toEqual([
      { line: 2, entry: INIT_EVENT },
      { line: 3, entry: CUT_OFF },
    ]);
  });
});

describe("an event about a call", () => {
  test.each([
    `{"id":2512292042121000001,"neg":-0,"f":1.0,"big":1e400}`,
    `{ "a" :\t[ 1 , 2 ] }`,
    `{"line":"a\u2028b","é":"😀\\u2028"}`,
  ])("keeps the arguments as they were written: %s", (args) => {
    const source = eventText("tool.call", {
      ToolCall: `{"ID":"c:1 x","Name":"Read","Args": ${args} }`,
    });
    const call = { providerCallId: "c:1 x", providerItemId: undefined, toolName: "Read" };
    expect(payloadOf(source)).toEqual({ of: "call", call: { ...call, arguments: utf8(args) } });
  });

  test("has no arguments if none were kept, and no id but one in exact case", () => {
    const source = eventText("tool.call", { ToolCall: `{"id":"c","Name":"Read","Args":null}` });
    expect(payloadOf(source)).toEqual({
      of: "call",
      call: {
        providerCallId: "",
        providerItemId: undefined,
        toolName: "Read",
        arguments: undefined,
      },
    });
  });

  test("keeps its result", () => {
    const parts = `[{"Kind":"audio","MIMEType":"audio/wav","Data":"/w==","URL":""}]`;
    const source = eventText("tool.result", {
      ToolResult: `{"CallID":"c","Content":"done","IsError":true,"Parts":${parts}}`,
    });
    const part = { blockKind: "", kind: "audio", mediaType: "audio/wav", url: "", text: "" };
    expect(payloadOf(source)).toEqual({
      of: "result",
      result: {
        providerCallId: "c",
        content: "done",
        isError: true,
        parts: [{ ...part, data: Uint8Array.of(255), name: "", title: "" }],
      },
    });
  });

  test("is nothing while its result is provisional", () => {
    const source = eventText("tool.result.available", {
      ToolResult: `{"CallID":"c","Content":"x"}`,
    });
    expect(payloadOf(source)).toEqual({ of: "other" });
  });
});

describe("an event about an ask", () => {
  const ASK = {
    askId: "s:0:c:r1",
    toolName: "Shell",
    arguments: utf8("{}"),
    reason: "why",
    call: undefined,
    providerCallId: undefined,
    guardrail: undefined,
    provenance: "unknown",
  };

  test.each([
    ["", {}],
    [`,"call":"c","origin":"permission"`, { providerCallId: "c", provenance: "permission" }],
    [`,"Call":"c"`, { providerCallId: "c" }],
    [`,"CallID":"c"`, { providerCallId: "c" }],
    [`,"call":null,"guardrail":null,"Origin":"plan","plan_originated":true`, {}],
    [
      `,"guardrail":{"ReviewID":"rv","Kind":"result_release"},"origin":"hook_guardrail"`,
      { guardrail: { reviewId: "rv", kind: "result_release" }, provenance: "hook_guardrail" },
    ],
  ])("has what was asked: %s", (members, change) => {
    const ask = `{"AskID":"s:0:c:r1","Tool":"Shell","Args":{},"Reason":"why"${members}}`;
    expect(payloadOf(eventText("permission.ask", { Ask: ask }))).toEqual({
      of: "ask",
      ask: { ...ASK, ...change },
    });
  });

  test("retracts it by its id", () => {
    const source = eventText("permission.retract", {
      Ask: `{"AskID":"a","Tool":"","Args":null,"Reason":""}`,
    });
    expect(payloadOf(source)).toEqual({ of: "retraction", askId: "a" });
  });

  test.each([
    [`"Call":"c","AllowAlways":true`, "c", "unknown"],
    [`"Call":{"ID":"c","Name":"ls"},"Origin":"plan"`, "c", "plan"],
    [`"Call":"","Origin":""`, "", "unknown"],
  ])("has the verdict: %s", (members, providerCallId, provenance) => {
    const approval = `{"AskID":"a","Verdict":"allow_later","Tool":"Shell",${members}}`;
    expect(payloadOf(eventText("approval", { Approval: approval }))).toEqual({
      of: "approval",
      approval: {
        askId: "a",
        verdict: "allow_later",
        toolName: "Shell",
        providerCallId,
        provenance,
      },
    });
  });
});

describe("an event about a hook", () => {
  const HOOK = `"Phase":"PostToolUse","Tool":"Read","Decision":"info","CallID":"c"`;
  const hook = { phase: "PostToolUse", toolName: "Read", decision: "info", providerCallId: "c" };

  test.each([HOOK, `${HOOK},"Guardrail":null`])("has the outcome: %s", (members) => {
    expect(payloadOf(eventText("hook", { Hook: `{${members}}` }))).toEqual({
      of: "hook",
      hook: { ...hook, review: undefined },
    });
  });

  test("has the review", () => {
    const review =
      `{"ReviewID":"s:c:inbound","Job":"inbound","Assessment":"unresolved","Inspection":"complete",` +
      `"Disposition":"later","ReasonCode":"rc","RuleID":"ru","RuleOrigin":"ro","CheckerModelID":"m",` +
      `"Concerns":[{"Ref":"1","Category":"x"}],"Sources":null}`;
    expect(payloadOf(eventText("hook", { Hook: `{${HOOK},"Guardrail":${review}}` }))).toEqual({
      of: "hook",
      hook: {
        ...hook,
        review: {
          reviewId: "s:c:inbound",
          job: "inbound",
          assessment: "unresolved",
          inspection: "complete",
          disposition: "later",
          reasonCode: "rc",
          ruleId: "ru",
          ruleOrigin: "ro",
          concerns: [{ ref: "1", category: "x" }],
          sources: [],
        },
      },
    });
  });
});

describe("an event about a consent", () => {
  test.each([
    [
      "authorization.required",
      "pending",
      "2026-01-01T00:00:00.123456789Z",
      Date.UTC(2026, 0, 1, 0, 0, 0, 123),
    ],
    ["authorization.resolved", "later", "0001-01-01T00:00:00Z", undefined],
  ])("%s has what became of it", (type, status, time, expireTimeMs) => {
    const authorization =
      `{"AuthorizationID":"au","DisplayName":"Hub","Call":"c",` +
      `"ExpiresAt":"${time}","Status":"${status}"}`;
    expect(payloadOf(eventText(type, { Authorization: authorization }))).toEqual({
      of: "authorization",
      authorization: {
        authorizationId: "au",
        displayName: "Hub",
        providerCallId: "c",
        expireTimeMs,
        status,
      },
    });
  });
});

describe("an event about the conversation", () => {
  const AUDIO = `[{"Kind":"audio","MIMEType":"audio/wav","Data":null,"URL":"u"}]`;
  const audio = {
    blockKind: "",
    kind: "audio",
    mediaType: "audio/wav",
    data: undefined,
    url: "u",
    text: "",
    name: "",
    title: "",
  };

  test.each([
    [eventText("user_prompt", { UserPrompt: `{"Text":"p","Parts":${AUDIO}}` }, "t"), "p", [audio]],
    [eventText("user_prompt", { UserPrompt: `{"Text":"","Parts":null}` }, "t"), "", []],
    [eventText("user_prompt", { UserPrompt: "{}" }, "t"), "t", []],
    [eventText("user_prompt", {}, "t"), "t", []],
  ])("has the prompt: %s", (source, text, parts) => {
    expect(payloadOf(source)).toEqual({ of: "prompt", text, parts });
  });

  test("has the archived messages, in the encoding of logs", () => {
    const replaced =
      `[{"Role":"user","Text":"hi","ToolCalls":null,"ToolResult":null,"Reasoning":"",` +
      `"ProviderPhase":"","Parts":${AUDIO}},` +
      `{"Role":"assistant","Text":"","ToolCalls":[{"ID":"c","Name":"N","Args":{ },"item_id":"i"}],` +
      `"Reasoning":"re","ProviderPhase":"ph","ReasoningItemID":"ri","role":"x","tool_calls":7},` +
      `{"Role":"tool","ToolResult":{"CallID":"c","Content":"x","IsError":false}}]`;
    const NO_REPLAY = { reasoning: undefined, phase: undefined, reasoningItemId: undefined };
    const plain = { text: "", calls: [], result: undefined, parts: [], replay: NO_REPLAY };
    const call = {
      providerCallId: "c",
      providerItemId: "i",
      toolName: "N",
      arguments: utf8("{ }"),
    };
    const result = { providerCallId: "c", content: "x", isError: false, parts: [] };
    expect(
      payloadOf(eventText("compaction.archive", { CompactionArchive: `{"Replaced":${replaced}}` })),
    ).toEqual({
      of: "archive",
      replaced: [
        { ...plain, role: "user", text: "hi", parts: [audio] },
        {
          ...plain,
          role: "assistant",
          calls: [call],
          replay: { reasoning: "re", phase: "ph", reasoningItemId: "ri" },
        },
        { ...plain, role: "tool", result },
      ],
    });
  });

  test.each([`{"Replaced":null}`, "{}"])("may have archived nothing: %s", (archive) => {
    expect(payloadOf(eventText("compaction.archive", { CompactionArchive: archive }))).toEqual({
      of: "archive",
      replaced: [],
    });
  });

  test.each([
    [{ Result: `{"Stop":"end_turn","Text":"x"}` }, "end_turn"],
    [{ Result: `{"StopReason":"later"}` }, "later"],
    [{ Result: "{}" }, ""],
    [{}, ""],
  ])("has the end of a run: %j", (members, stopReason) => {
    expect(payloadOf(eventText("result", members))).toEqual({ of: "end", stopReason });
  });

  test.each([
    [{ Title: `"A title"` }, "A title"],
    [{ Title: `{"Title":"A title","Provenance":"x"}` }, "A title"],
    [{}, ""],
  ])("has the title: %j", (members, title) => {
    expect(payloadOf(eventText("session.title", members))).toEqual({ of: "title", title });
  });

  test.each([
    ["turn.start", "text"],
    ["message.delta", "text"],
    ["turn.end", "other"],
    ["reasoning.delta", "other"],
    ["subagent.start", "other"],
    ["later.type", "other"],
    ["constructor", "other"],
    ["", "other"],
  ])("of the type '%s' is %s", (type, of) => {
    const source = lines(versioned(eventText(type, { ToolCall: "7" }, "words")));
    expect(decoded(source).records[0]?.entry).toMatchObject({
      type,
      text: "words",
      payload: { of },
    });
  });
});

describe("malformed is", () => {
  const BEFORE = lines(GENERATION, versioned(INIT), `{"v":"eventlog-gap/1","r":"é😀"}`);
  const unknownVersion = "is not a version that can be read";

  test.each([
    [`#`, "", "not JSON: ValueExpected"],
    [`{"v":#}`, "", "not JSON: ValueExpected"],
    [`#[]`, "", "must be an object"],
    [`#null`, ".Type", "is required"],
    [`#{}`, ".Type", "is required"],
    [`#{"type":"tool.call"}`, ".Type", "is required"],
    [`{"v":#"eventlog-json/2","ev":{}}`, ".v", unknownVersion],
    [`{"v":#"","Type":"x"}`, ".v", unknownVersion],
    [`{"v":#"eventlog-gen/1","g":"0123456789abcdef"}`, ".v", "is of the first line only"],
    [`#{"v":"eventlog-json/1","r":"x"}`, ".ev", "is required"],
    [`#{"v":"redisstore-eventlog/1"}`, ".ev", "is required"],
    [`{"v":"eventlog-gap/1","r":#1}`, ".r", "must be a string"],
    [`{"format":#"sessnap-json/1","payload":{}}`, ".format", "is not a format that can be read"],
    [`{"format":"eventlog-json/1","payload":#"é"}`, ".payload", "must be base64"],
    [
      `{"format":"eventlog-json/1","payload":#"${base64(`{"Type":"x","Seq":-1}`)}"}`,
      ".payload",
      "decoded from base64, at byte 18, $.Seq: must be a whole number from 0 on",
    ],
    [
      versioned(`{"Type":"x","Seq":#9007199254740993}`),
      ".ev.Seq",
      "must be a whole number from 0 on",
    ],
    [versioned(`{"Type":"tool.call","ToolCall":{"ID":#7}}`), ".ev.ToolCall.ID", "must be a string"],
    [`{"Text":"é","Type":"tool.call","ToolCall":{"ID":#7}}`, ".ToolCall.ID", "must be a string"],
    [versioned(`{"Type":"tool.call","ToolCall":#null}`), ".ev.ToolCall", "is required"],
    [versioned(`#{"Type":"tool.result"}`), ".ev.ToolResult", "is required"],
    [versioned(`#{"Type":"permission.ask"}`), ".ev.Ask", "is required"],
    [versioned(`#{"Type":"permission.retract"}`), ".ev.Ask", "is required"],
    [versioned(`#{"Type":"approval"}`), ".ev.Approval", "is required"],
    [versioned(`#{"Type":"hook"}`), ".ev.Hook", "is required"],
    [versioned(`#{"Type":"authorization.resolved"}`), ".ev.Authorization", "is required"],
    [versioned(`#{"Type":"compaction.archive"}`), ".ev.CompactionArchive", "is required"],
    [
      versioned(
        `{"Type":"compaction.archive","CompactionArchive":{"Replaced":[#{"role":"user"}]}}`,
      ),
      ".ev.CompactionArchive.Replaced[0].Role",
      "is required",
    ],
    [`#\uFEFF${INIT}`, "", "begins with a byte order mark"],
  ])("the line %s", (marked, path, malformed) => {
    const [before = "", after = ""] = marked.split("#");
    expect(fault(BEFORE + lines(before + after, INIT))).toEqual({
      malformed,
      path: `line 4: $${path}`,
      offsetBytes: utf8(BEFORE + before).length,
    });
  });

  test.each([
    ["", "must be 16 hexadecimal characters"],
    ["0123456789ABCDEF", "must be 16 hexadecimal characters"],
  ])("the generation '%s'", (generation, malformed) => {
    expect(fault(lines(`{"v":"eventlog-gen/1","g":"${generation}"}`))).toEqual({
      malformed,
      path: "line 1: $.g",
      offsetBytes: 26,
    });
  });

  test("a line that is not UTF-8", () => {
    const source = Uint8Array.from([...utf8(`${lines(INIT)}{"Text":"é`), 0xff, ...utf8(`"}\n`)]);
    expect(fault(source)).toEqual({
      malformed: "not UTF-8",
      path: "line 2: $",
      offsetBytes: utf8(lines(INIT)).length + 11,
    });
  });

  test.each(["\uFEFF", `\uFEFF${INIT}`, `\uFEFF${lines(INIT)}`])(
    "a byte order mark, whatever follows it",
    (source) => {
      expect(fault(source)).toEqual({
        malformed: "begins with a byte order mark",
        path: "line 1: $",
        offsetBytes: 0,
      });
    },
  );

  test("a last line without an end that is JSON of another kind", () => {
    expect(fault(`${lines(INIT)}{"v":"x"}`)).toMatchObject({ path: "line 2: $.v" });
  });

  test.each([
    [`{"ID":["s3cr3t"],"Name":"s3cr3t"}`],
    [`{"Args":"s3cr3t","Name":{"s3cr3t":1}}`],
    [`["s3cr3t"]`],
    [`"s3cr3t"`],
    [`s3cr3t`],
  ])("never told with what the source says: %s", (call) => {
    const source = lines(
      GENERATION,
      versioned(eventText("tool.call", { ToolCall: call }, "s3cr3t")),
    );
    expect(JSON.stringify(fault(source))).not.toContain("s3cr3t");
  });
});

test("a log that is cut off anywhere is read up to there", () => {
  const whole = utf8(
    lines(
      GENERATION,
      versioned(eventText("turn.start", {}, "é😀")),
      `{"v":"eventlog-gap/1","r":"x"}`,
      INIT,
    ),
  );
  const { records } = decoded(whole);
  for (let length = 0; length < whole.length; length += 1) {
    const part = whole.subarray(0, length);
    const kept = decoded(part).records;
    const last = kept.at(-1);
    const isCut = last?.entry.kind === "gap" && last.entry.reason === CUT_OFF.reason;
    expect(isCut ? kept.slice(0, -1) : kept).toEqual(
      records.slice(0, kept.length - (isCut ? 1 : 0)),
    );
    const endsInLine = whole[length - 1] !== 0x0a && whole[length] !== 0x0a && length > 0;
    expect(isCut).toBe(endsInLine);
  }
});
