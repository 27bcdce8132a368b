import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";

import { decodeSnapshot } from "../../src/legacy/decode-snapshot.js";
import { isMalformed, type Malformed } from "../../src/legacy/malformed.js";
import type { OldCall, OldMessage, OldSnapshot } from "../../src/legacy/old-session.js";
import { ROOT } from "../support/source-tree.js";

const toUtf8 = new TextEncoder();
const utf8 = (text: string): Uint8Array => toUtf8.encode(text);
const base64 = (bytes: Uint8Array | string): string => Buffer.from(bytes).toString("base64");

function decoded(source: string | Uint8Array): OldSnapshot {
  const snapshot = decodeSnapshot(typeof source === "string" ? utf8(source) : source);
  if (isMalformed(snapshot)) throw new Error(`${snapshot.path}: ${snapshot.malformed}`);
  return snapshot;
}

function fault(source: string | Uint8Array): Malformed {
  const snapshot = decodeSnapshot(typeof source === "string" ? utf8(source) : source);
  if (!isMalformed(snapshot)) throw new Error("it was decoded");
  return snapshot;
}

/** A session with these members after its id. */
const session = (members: string): string => `{"id":"s-1",${members}}`;
const message = (members: string): string =>
  session(`"messages":[{"role":"assistant",${members}}]`);

function onlyMessage(source: string): OldMessage {
  const { messages } = decoded(source);
  expect(messages).toHaveLength(1);
  return messages[0]!;
}

function onlyCall(call: string): OldCall {
  const { calls } = onlyMessage(message(`"tool_calls":[${call}]`));
  expect(calls).toHaveLength(1);
  return calls[0]!;
}

const NO_REPLAY = { reasoning: undefined, phase: undefined, reasoningItemId: undefined };
const MINIMAL: OldSnapshot = {
  sessionId: "s-1",
  state: "",
  kind: "",
  title: "",
  createTimeMs: undefined,
  relationship: {
    parentSessionId: undefined,
    providerCallId: undefined,
    branchIndex: undefined,
    teamId: undefined,
    memberName: undefined,
  },
  messages: [],
  pending: undefined,
  authorization: undefined,
  runId: "",
  provider: undefined,
  model: undefined,
};

describe("a stored session is found", () => {
  const INNER = `{"id":"s-1"}`;
  const WRAPPED = `{"v":"sessnap-current-json/2","modified_at":"x","metadata":{"id":"other"},"snapshot":${INNER}}`;

  test.each([
    ["on its own", INNER],
    ["with white space around it", ` \r\n${INNER}\n`],
    ["in the wrapper of the file store", WRAPPED],
    ["in the envelope of a driver", `{"format":"sessnap-json/1","payload":${INNER}}`],
    [
      "in the envelope of a driver, in base64",
      `{"format":"sessnap-json/1","payload":"${base64(INNER)}"}`,
    ],
    ["with a version that is null", `{"v":null,"format":null,"id":"s-1"}`],
    ["among keys that are not known", `{"permanent":true,"usage":{"InputTokens":1},"id":"s-1"}`],
    [
      "with null for all else",
      `{"id":"s-1","state":null,"messages":null,"pending":null,"title":null}`,
    ],
  ])("%s", (_, source) => {
    expect(decoded(source)).toEqual(MINIMAL);
  });

  test("with what it is and works for", () => {
    const source = session(
      `"state":"some_state","kind":"parallel_branch","title":"A title","created_at":"2026-09-21T12:00:00Z",` +
        `"relationship":{"parent_session_id":"p","call_id":"call:1 x","branch_index":2,"team_id":"t",` +
        `"member_name":"m"},"run_id":"r-1","provider_id":"anthropic","model_id":"m-1","messages":[]`,
    );
    expect(decoded(source)).toEqual({
      ...MINIMAL,
      state: "some_state",
      kind: "parallel_branch",
      title: "A title",
      createTimeMs: Date.UTC(2026, 8, 21, 12),
      relationship: {
        parentSessionId: "p",
        providerCallId: "call:1 x",
        branchIndex: 2,
        teamId: "t",
        memberName: "m",
      },
      runId: "r-1",
      provider: "anthropic",
      model: "m-1",
    });
  });

  test.each([
    ["2026-09-21T12:00:00.169999999Z", Date.UTC(2026, 8, 21, 12, 0, 0, 169)],
    ["2026-09-21T12:00:00.5+02:30", Date.UTC(2026, 8, 21, 9, 30, 0, 500)],
    ["2026-09-21T12:00:00-01:00", Date.UTC(2026, 8, 21, 13)],
    ["0001-01-01T00:00:00Z", undefined],
  ])("created at %s", (text, createTimeMs) => {
    expect(decoded(session(`"created_at":"${text}"`)).createTimeMs).toBe(createTimeMs);
  });

  test.each(["s", "a:b c/d", "é".repeat(256), "x".repeat(512)])("under the id %s", (id) => {
    expect(decoded(`{"id":${JSON.stringify(id)}}`).sessionId).toBe(id);
  });
});

describe("messages of a stored session", () => {
  test("keep what they say, in their order", () => {
    const source = session(
      `"messages":[{"role":"user","text":"hi"},` +
        `{"role":"assistant","text":"a","tool_calls":[{"ID":"c","Name":"Read","Args":{},"item_id":"fc_1"},` +
        `{"ID":"c","Name":"Read","Args":null}],"reasoning":"[]","phase":"final","reasoning_item_id":"rs_1"},` +
        `{"role":"tool","tool_result":{"CallID":"c","Content":"done","IsError":true,"Parts":null}},` +
        `{"role":"later","text":null,"tool_calls":null,"tool_result":null,"parts":null}]`,
    );
    const plain = { text: "", calls: [], result: undefined, parts: [], replay: NO_REPLAY };
    const call = { providerCallId: "c", toolName: "Read" };
    expect(decoded(source).messages).toEqual([
      { ...plain, role: "user", text: "hi" },
      {
        ...plain,
        role: "assistant",
        text: "a",
        calls: [
          { ...call, providerItemId: "fc_1", arguments: utf8("{}") },
          { ...call, providerItemId: undefined, arguments: undefined },
        ],
        replay: { reasoning: "[]", phase: "final", reasoningItemId: "rs_1" },
      },
      {
        ...plain,
        role: "tool",
        result: { providerCallId: "c", content: "done", isError: true, parts: [] },
      },
      { ...plain, role: "later" },
    ]);
  });

  const PART = {
    blockKind: "",
    kind: "image",
    mediaType: "image/png",
    data: undefined,
    url: "",
    text: "",
    name: "",
    title: "",
  };

  test("keep their parts, in the encoding of messages", () => {
    const parts =
      `{"kind":"image","mime_type":"image/png","data":"AP/+gA=="},` +
      `{"kind":"image","mime_type":"image/png","url":"https://e.example/x"}`;
    expect(onlyMessage(message(`"parts":[${parts}]`)).parts).toEqual([
      { ...PART, data: Uint8Array.of(0, 255, 254, 128) },
      { ...PART, url: "https://e.example/x" },
    ]);
  });

  test("keep the parts of results, in the encoding of the old system's own type", () => {
    const parts =
      `{"block_kind":"image","Kind":"image","MIMEType":"image/png","Data":"AA==","URL":""},` +
      `{"Kind":"image","MimeType":"image/png","Data":null,"URL":"u"},` +
      `{"block_kind":"resource_link","Kind":"","MIMEType":"","Data":null,"URL":"u","Name":"n","Title":"t"},` +
      `{"block_kind":"text","Kind":"","MIMEType":"","Data":"","URL":"","Text":"words"}`;
    const source = message(
      `"tool_result":{"CallID":"","Content":"","IsError":false,"Parts":[${parts}]}`,
    );
    const other = { ...PART, kind: "", mediaType: "" };
    expect(onlyMessage(source).result?.parts).toEqual([
      { ...PART, blockKind: "image", data: Uint8Array.of(0) },
      { ...PART, url: "u" },
      { ...other, blockKind: "resource_link", url: "u", name: "n", title: "t" },
      { ...other, blockKind: "text", text: "words" },
    ]);
  });
});

describe("a call", () => {
  test.each([
    `{"id":2512292042121000001,"neg":-0,"f":1.0,"big":1e400}`,
    `{ "a" :\t[ 1 ,\r\n 2 ] }`,
    `{"line":"a\u2028b","escaped":"\\u2028\\/\\u003c","é":"😀"}`,
    `{"a":1,"a":2}`,
    `{"half":"\\ud83d"}`,
    `"not an object"`,
    "[]",
    "12.50",
  ])("keeps its arguments as they were written: %s", (args) => {
    expect(onlyCall(`{"ID":"c","Name":"N","Args": ${args} }`).arguments).toEqual(utf8(args));
  });

  test.each(["", ',"ID":null', ',"ID":""', ',"id":"x","name":"y","args":{}'])(
    "without an id has an empty one: %s",
    (id) => {
      expect(onlyCall(`{"Name":"N"${id}}`)).toEqual({
        providerCallId: "",
        providerItemId: undefined,
        toolName: "N",
        arguments: undefined,
      });
    },
  );

  test("has the last of repeated keys, as JSON readers do", () => {
    expect(onlyCall(`{"ID":"a","ID":"b","Name":"N"}`).providerCallId).toBe("b");
  });
});

describe("an open ask", () => {
  const ask = (members: string) => decoded(session(`"pending":{"AskID":"a:1",${members}}`)).pending;
  const PLAIN = {
    askId: "a:1",
    toolName: "Shell",
    arguments: utf8(`{"x": 1}`),
    reason: "why",
    call: undefined,
    providerCallId: undefined,
    guardrail: undefined,
    provenance: "unknown",
  };
  const CALL = { providerCallId: "c", providerItemId: "i", toolName: "N", arguments: utf8("{}") };

  test.each([
    ["of the oldest", "", {}],
    ["of an older hook", `,"hook_originated":true`, {}],
    ["of an older plan", `,"plan_originated":true`, {}],
    [
      "that names its call",
      `,"call":"c","origin":"permission"`,
      { providerCallId: "c", provenance: "permission" },
    ],
    [
      "with its call",
      `,"call":{"ID":"c","Name":"N","Args":{},"item_id":"i"},"origin":"plan"`,
      { call: CALL, providerCallId: "c", provenance: "plan" },
    ],
    ["with a call that is spelled otherwise", `,"Call":"c"`, { providerCallId: "c" }],
    ["of an origin that is not known", `,"call":"","origin":"Permission"`, {}],
    [
      "of a review",
      `,"origin":"hook_guardrail","guardrail":{"ReviewID":"s:c:action","Kind":"action","GrantDigest":"d"}`,
      { provenance: "hook_guardrail", guardrail: { reviewId: "s:c:action", kind: "action" } },
    ],
    [
      "of a hook without a review",
      `,"guardrail":{"ReviewID":"","Kind":"later"}`,
      { guardrail: { reviewId: "", kind: "later" } },
    ],
  ])("%s", (_, members, change) => {
    const source = `"Tool":"Shell","Args":{"x": 1},"Reason":"why"${members}`;
    expect(ask(source)).toEqual({ ...PLAIN, ...change });
  });

  test("for a release has no arguments", () => {
    expect(ask(`"Tool":"Shell","Args":null,"Reason":"why"`)).toEqual({
      ...PLAIN,
      arguments: undefined,
    });
  });
});

describe("a parked turn", () => {
  const ODD = Uint8Array.from([...utf8(`{ "<&>": "\u2028" }\n`), 0xff, 0x00]);
  const authorization =
    `"authorization":{"id":"au","display_name":"Hub","binding":"b",` +
    `"expires_at":"2026-01-01T00:00:00.0019Z"}`;

  test("keeps the exact bytes of its calls' arguments", () => {
    const source = session(
      `"pending_authorization":{${authorization},"call":{"id":"c","name":"N","args":"${base64(ODD)}","item_id":"i"},` +
        `"deferred":[{"id":"d","name":"M","args":null},{"id":"","name":"M","args":"","ID":"x"}]}`,
    );
    const deferred = { providerItemId: undefined, toolName: "M", arguments: undefined };
    expect(decoded(source).authorization).toEqual({
      authorizationId: "au",
      displayName: "Hub",
      expireTimeMs: Date.UTC(2026, 0, 1, 0, 0, 0, 1),
      call: { providerCallId: "c", providerItemId: "i", toolName: "N", arguments: ODD },
      deferred: [
        { ...deferred, providerCallId: "d" },
        { ...deferred, providerCallId: "" },
      ],
    });
  });

  test.each([
    [`{}`, "authorization", "is required"],
    [`{"authorization":{"id":"a"},"call":{}}`, "authorization.expires_at", "is required"],
    [
      `{"authorization":{"expires_at":"2026-01-01T00:00:00Z"},"call":{}}`,
      "authorization.id",
      "is required",
    ],
    [
      `{"authorization":{"id":"a","expires_at":"0001-01-01T00:00:00Z"}}`,
      "authorization.expires_at",
      "must be set",
    ],
    [`{${authorization}}`, "call", "is required"],
    [`{${authorization},"call":{"args":{}}}`, "call.args", "must be a string"],
    [`{${authorization},"call":{"args":"e30"}}`, "call.args", "must be base64"],
    [
      `{${authorization},"call":{},"deferred":[{"args":"e3 0="}]}`,
      "deferred[0].args",
      "must be base64",
    ],
    [`{${authorization},"call":{},"deferred":[null]}`, "deferred[0]", "is required"],
  ])("%s is malformed", (parked, path, malformed) => {
    expect(fault(session(`"pending_authorization":${parked}`))).toMatchObject({
      malformed,
      path: `$.pending_authorization.${path}`,
    });
  });
});

describe("malformed is", () => {
  /** The place of `#`, which is taken out. */
  function marked(source: string): { text: string; offsetBytes: number } {
    const [before = "", after = ""] = source.split("#");
    return { text: before + after, offsetBytes: utf8(before).length };
  }
  const ID = "must be 1 to 512 bytes without control characters";
  const UNKNOWN_TIME = "must be a time such as 2026-01-31T12:00:00.5Z";

  test.each([
    ["#", "$", "not JSON: ValueExpected"],
    ["#[]", "$", "must be an object"],
    ["#null", "$.id", "is required"],
    ["#{}", "$.id", "is required"],
    [`#{"ID":"s"}`, "$.id", "is required"],
    [`{"id":#7}`, "$.id", "must be a string"],
    [`{"id":#""}`, "$.id", ID],
    [`{"id":#"a\\nb"}`, "$.id", ID],
    [`{"id":#"${"é".repeat(257)}"}`, "$.id", ID],
    [`{"id":#"\\ud83d"}`, "$.id", "must be well-formed Unicode"],
    [`{"id":"s"}#x`, "$", "not JSON: InvalidSymbol"],
    [`{"id":"s",#}`, "$", "not JSON: PropertyNameExpected"],
    [`{"id":"s"#/*c*/}`, "$", "not JSON: InvalidCommentToken"],
    [
      `{"v":#"sessnap-current-json/3","snapshot":{"id":"s"}}`,
      "$.v",
      "is not a version that can be read",
    ],
    [`{"v":#2,"id":"s"}`, "$.v", "must be a string"],
    [`#{"v":"sessnap-current-json/2"}`, "$.snapshot", "is required"],
    [`{"v":"sessnap-current-json/2","snapshot":#"x"}`, "$.snapshot", "must be an object"],
    [
      `{"format":#"sessnap-json/2","payload":{"id":"s"}}`,
      "$.format",
      "is not a format that can be read",
    ],
    [`#{"format":"sessnap-json/1"}`, "$.payload", "is required"],
    [`{"format":"sessnap-json/1","payload":#""}`, "$.payload", "is empty"],
    [`{"format":"sessnap-json/1","payload":#"e30"}`, "$.payload", "must be base64"],
    [`{"format":"sessnap-json/1","payload":{"id":#1}}`, "$.payload.id", "must be a string"],
    [
      `{"format":"sessnap-json/1","payload":#"${base64(`{"id":1}`)}"}`,
      "$.payload",
      "decoded from base64, at byte 6, $.id: must be a string",
    ],
    [session(`"state":#1`), "$.state", "must be a string"],
    [session(`"created_at":#"2026-02-30T00:00:00Z"`), "$.created_at", UNKNOWN_TIME],
    [session(`"created_at":#"yesterday"`), "$.created_at", UNKNOWN_TIME],
    [session(`"created_at":#"2026-01-01T24:00:00Z"`), "$.created_at", UNKNOWN_TIME],
    [
      session(`"relationship":{"branch_index":#-1}`),
      "$.relationship.branch_index",
      "must be a whole number from 0 on",
    ],
    [
      session(`"relationship":{"branch_index":#1e400}`),
      "$.relationship.branch_index",
      "must be a whole number from 0 on",
    ],
    [session(`"pending":#[]`), "$.pending", "must be an object"],
    [session(`"pending":{"call":#[]}`), "$.pending.call", "must be an object"],
    [session(`"messages":#{}`), "$.messages", "must be an array"],
    // Of an absent value, the place in the source is that of the source.
    [session(`"messages":[#{"Role":"user","Text":"t"}]`), "$.messages[0].role", "is required"],
    [session(`"messages":[#null]`), "$.messages[0]", "is required"],
    [
      message(`"text":"é😀","tool_calls":[{"Name":"ls"},{"ID":#7}]`),
      "$.messages[0].tool_calls[1].ID",
      "must be a string",
    ],
    [
      message(`"tool_result":{"IsError":#"no"}`),
      "$.messages[0].tool_result.IsError",
      "must be a boolean",
    ],
    [message(`"parts":[{"data":#"AB=="}]`), "$.messages[0].parts[0].data", "must be base64"],
  ])("%s", (source, path, malformed) => {
    const { text, offsetBytes } = marked(source);
    expect(fault(text)).toEqual({ malformed, path, offsetBytes });
  });

  const START = utf8(`{"id":"\uFFFDé`);
  test.each([
    ["a byte that is in no text", [0xff]],
    ["a continuation without a start", [0x80]],
    ["a start without its continuation", [0xef, 0xbf, 0x22]],
    ["a surrogate", [0xed, 0xa0, 0x80]],
    ["a character that is cut off", [0xf0, 0x9f]],
  ])("%s", (_, broken) => {
    expect(fault(Uint8Array.from([...START, ...broken]))).toEqual({
      malformed: "not UTF-8",
      path: "$",
      offsetBytes: START.length,
    });
  });

  test("a byte order mark", () => {
    expect(fault(`\uFEFF{"id":"s"}`)).toEqual({
      malformed: "begins with a byte order mark",
      path: "$",
      offsetBytes: 0,
    });
  });

  test("what is nested too deeply to be read", () => {
    const deep = `{"id":"s","x":${"[".repeat(200_000)}${"]".repeat(200_000)}}`;
    expect(fault(deep)).toMatchObject({ malformed: "not JSON: NestedTooDeeply", path: "$" });
  });
});

const SECRET = "s3cr3t";
const FULL = session(
  `"state":"${SECRET}","created_at":"2026-01-01T00:00:00Z","messages":[{"role":"${SECRET}","text":"é${SECRET}",` +
    `"tool_calls":[{"ID":"${SECRET}","Name":"${SECRET}","Args":{"${SECRET}":"${SECRET}"}}],` +
    `"parts":[{"kind":"${SECRET}","data":"AA=="}]}],` +
    `"pending":{"AskID":"${SECRET}","call":"${SECRET}","origin":"plan"}`,
);

describe("no fault repeats what the source says", () => {
  const bytes = utf8(FULL);

  test("wherever it is cut off", () => {
    decoded(bytes);
    for (let length = 0; length < bytes.length; length += 1) {
      expect(JSON.stringify(fault(bytes.subarray(0, length)))).not.toContain(SECRET);
    }
  });

  test("whatever stands in place of a string", () => {
    const strings = [...FULL.matchAll(/(?<=[:[,])"[^"]*"(?=[,}\]])/g)];
    const faults = strings.flatMap(({ index, 0: string }) => {
      const changed = `${FULL.slice(0, index)}["${SECRET}"]${FULL.slice(index + string.length)}`;
      const result = decodeSnapshot(utf8(changed));
      return isMalformed(result) ? [result] : [];
    });
    // Only what is within the arguments may be anything.
    expect(faults).toHaveLength(strings.length - 1);
    expect(JSON.stringify(faults)).not.toContain(SECRET);
  });
});

const FOLDER = join(ROOT, "../shared/real/legacy");
const files = existsSync(FOLDER)
  ? readdirSync(FOLDER).filter((name) => name.endsWith(".json"))
  : undefined;
process.stdout.write(
  files === undefined
    ? `files of the old system: not checked, there is no ${FOLDER}\n`
    : `files of the old system: ${files.length}\n`,
);

function describeFiles(all: readonly string[]): void {
  const read = (name: string) => readFileSync(join(FOLDER, name));
  const isSession = (name: string) => name.endsWith(".session.json");

  test("are at least one", () => {
    expect(all.filter(isSession)).not.toEqual([]);
  });

  test.each(all.filter(isSession))("%s says what it says", (name) => {
    const file = JSON.parse(read(name).toString("utf8")) as {
      snapshot: { id: string; state: string; messages: { role: string; text: string }[] };
    };
    const { id, state, messages } = file.snapshot;
    const plain = { calls: [], result: undefined, parts: [], replay: NO_REPLAY };
    expect(decodeSnapshot(read(name))).toEqual({
      ...MINIMAL,
      sessionId: id,
      state,
      kind: "main",
      createTimeMs: Date.UTC(2026, 8, 21, 12),
      messages: messages.map(({ role, text }) => ({ ...plain, role, text })),
    });
  });

  test.each(all.filter((name) => !isSession(name)))("%s is no stored session", (name) => {
    const malformed = { malformed: "is required", path: "$.id", offsetBytes: 0 };
    expect(decodeSnapshot(read(name))).toEqual(malformed);
  });
}

if (files !== undefined) {
  describe("files of the old system", () => {
    describeFiles(files);
  });
}
