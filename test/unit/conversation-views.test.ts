import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { BaseStateSchema } from "../../gen/toolmark/v1/base_state_pb.js";
import { EventSchema, type Event, type EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { SessionPlaceSchema } from "../../gen/toolmark/v1/history_service_pb.js";
import { HookSchema } from "../../gen/toolmark/v1/hook_pb.js";
import { AdoptedSchema } from "../../gen/toolmark/v1/legacy_pb.js";
import { MessageSchema, RunSchema, RunState, TurnSchema } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind, SessionSchema, SessionState } from "../../gen/toolmark/v1/session_pb.js";
import { ForkedSchema, type Session } from "../../gen/toolmark/v1/session_pb.js";
import {
  ProvisionalResultSchema,
  ToolCallState,
  ToolResultKind,
} from "../../gen/toolmark/v1/tool_call_pb.js";
import { Conversation } from "../../src/client/index.js";
import { KNOWN_EVENT_KINDS } from "../../src/client/event-kinds.js";
import { EventKind } from "../../src/domain/event-kind.js";
import {
  CALL,
  OTHER,
  SESSION,
  askOf,
  callOf,
  eventOf,
  hookOf,
  receiptOf,
  reviewOf,
  UNKNOWN,
} from "../support/conversation-records.js";

const bytes = (text: string) => new TextEncoder().encode(text);
const body = (text: string) => ({ sha256: bytes(text.padEnd(32)), sizeBytes: BigInt(text.length) });

function plainEvent(sequence: bigint, kind: string, record: EventRecord["record"]): Event {
  const position = sequence;
  return create(EventSchema, { sessionId: SESSION, sequence, position, kind, record: { record } });
}

describe("what a conversation gives is a copy", () => {
  const filled = (): Conversation => {
    const conversation = new Conversation(SESSION);
    for (const record of [callOf(1n), hookOf(2n), reviewOf(3n), askOf(4n), receiptOf(5n)]) {
      conversation.apply(eventOf(record));
    }
    conversation.apply(eventOf(hookOf(2n, { text: "conflict" })));
    conversation.apply(plainEvent(9n, "NEW_KIND", { case: undefined }));
    const run = create(RunSchema, { runId: "run_1" });
    conversation.apply(plainEvent(10n, "RUN_BEGUN", { case: "run", value: run }));
    return conversation;
  };

  /** Changes every field of every object that can be reached. */
  function spoil(value: unknown, seen = new Set<unknown>()): void {
    if (typeof value !== "object" || value === null || seen.has(value)) return;
    seen.add(value);
    if (value instanceof Uint8Array) {
      value.fill(255);
      return;
    }
    for (const [key, part] of Object.entries(value)) {
      spoil(part, seen);
      if (!Object.isFrozen(value)) Reflect.set(value, key, "spoiled");
    }
  }

  test("changing it changes nothing inside", () => {
    const conversation = filled();
    // A copy of its own: whatever all conversations share would be spoiled in both.
    const expected = structuredClone(filled().view());
    for (const given of [conversation.view(), conversation.cards(), conversation.notices()]) {
      spoil(given);
    }
    spoil([conversation.prompts(), conversation.evidence(), conversation.sessions()]);
    spoil(conversation.card(CALL));
    expect(conversation.view()).toEqual(expected);
  });

  test("nor does changing what was given to it", () => {
    const conversation = new Conversation(SESSION);
    const data = bytes("{}");
    const call = callOf(1n, { proposed: { ...body("a"), data } });
    const event = eventOf(hookOf(2n));
    const part = create(ProvisionalResultSchema, { toolCallId: CALL, chunk: bytes("part") });
    const provisional = plainEvent(3n, "PROVISIONAL", { case: "provisional", value: part });
    conversation.applySnapshot({ toolCalls: [call] });
    conversation.apply(event);
    conversation.apply(provisional);
    const before = conversation.view();
    spoil([data, call, event, provisional]);
    expect(conversation.view()).toEqual(before);
    expect(conversation.card(CALL)?.provisional?.text).toBe("part");
  });
});

describe("what is not known is kept and shown", () => {
  // Field 900 of wire type 2, with one byte.
  const UNKNOWN_FIELD = Uint8Array.from([0xa2, 0x38, 1, 42]);

  test("a field that this version does not have survives", () => {
    const original = Buffer.concat([toBinary(HookSchema, hookOf(2n)), UNKNOWN_FIELD]);
    const conversation = new Conversation(SESSION);
    conversation.apply(eventOf(callOf(1n)));
    conversation.apply(eventOf(fromBinary(HookSchema, original)));
    const [hook] = conversation.card(CALL)?.hooks ?? [];
    if (hook === undefined) throw new Error("no hook");
    expect(Buffer.from(toBinary(HookSchema, hook)).equals(original)).toBe(true);
    const other = Buffer.from(original);
    other[other.length - 1] = 43;
    conversation.apply(eventOf(fromBinary(HookSchema, other)));
    expect(conversation.evidence().map(({ conflict }) => conflict)).toEqual([
      undefined,
      "contradiction",
    ]);
  });

  test("a state that this version does not know is shown by its number", () => {
    const conversation = new Conversation(SESSION);
    conversation.apply(eventOf(callOf(1n, { state: UNKNOWN })));
    expect(conversation.card(CALL)).toMatchObject({
      standing: "unknown (99)",
      call: { state: 99 },
    });
  });

  test("an event of an unknown kind is kept whole, told of, and its record is taken", () => {
    const conversation = new Conversation(SESSION);
    const event = eventOf(callOf(1n), { kind: "TOOL_CALL_TELEPORTED" });
    conversation.apply(event);
    conversation.apply(event);
    expect(conversation.cards()).toHaveLength(1);
    expect(conversation.sessions()[0]?.unknownEvents).toEqual([event]);
    expect(conversation.notices()).toMatchObject([{ about: "unknown", severity: "warning" }]);
    expect(conversation.notices()[0]?.text).toContain("1 of kind TOOL_CALL_TELEPORTED");
  });

  test("an event whose record this version does not have survives whole", () => {
    const known = plainEvent(1n, "FUTURE", { case: undefined });
    const record = [0x42, UNKNOWN_FIELD.length, ...UNKNOWN_FIELD];
    const head = { ...known };
    delete head.record;
    const original = Buffer.concat([toBinary(EventSchema, head), Uint8Array.from(record)]);
    const conversation = new Conversation(SESSION);
    conversation.apply(fromBinary(EventSchema, original));
    const [kept] = conversation.sessions()[0]?.unknownEvents ?? [];
    if (kept === undefined) throw new Error("not kept");
    expect(Buffer.from(toBinary(EventSchema, kept)).equals(original)).toBe(true);
    expect(conversation.notices()).toHaveLength(1);
  });

  test.each([...Object.values(EventKind), "ERASED"])("%s is none of them", (kind) => {
    expect(KNOWN_EVENT_KINDS.has(kind)).toBe(true);
  });
});

describe("parts of a result", () => {
  const partOf = (sequence: bigint, offset: number, text: string | Uint8Array): Event =>
    plainEvent(sequence, "PROVISIONAL", {
      case: "provisional",
      value: create(ProvisionalResultSchema, {
        toolCallId: CALL,
        offsetBytes: BigInt(offset),
        chunk: typeof text === "string" ? bytes(text) : text,
      }),
    });

  function shown(...events: readonly Event[]) {
    const conversation = new Conversation(SESSION);
    for (const event of [eventOf(callOf(1n)), ...events]) conversation.apply(event);
    return conversation.card(CALL)?.provisional;
  }

  test.each([
    ["in order", [partOf(2n, 0, "ab"), partOf(3n, 2, "cd")], "abcd"],
    ["out of order", [partOf(3n, 2, "cd"), partOf(2n, 0, "ab")], "abcd"],
    ["repeated", [partOf(2n, 0, "ab"), partOf(2n, 0, "ab"), partOf(3n, 2, "cd")], "abcd"],
    ["sent again with other bytes", [partOf(3n, 0, "xy"), partOf(2n, 0, "ab")], "xy"],
    ["overlapping", [partOf(3n, 1, "bcd"), partOf(2n, 0, "ab")], "abcd"],
    ["with a hole", [partOf(2n, 0, "ab"), partOf(3n, 5, "fg")], "ab[3 bytes missing]fg"],
  ])("are joined %s", (_how, events, text) => {
    expect(shown(...events)?.text).toBe(text);
    expect(shown(...[...events].reverse())?.text).toBe(text);
  });

  test("a character that is cut in two is shown when it is whole", () => {
    const [first, ...rest] = bytes("é");
    const half = partOf(2n, 0, Uint8Array.from([first ?? 0]));
    expect(shown(half)?.text).toBe("");
    expect(shown(half, partOf(3n, 1, Uint8Array.from(rest)))?.text).toBe("é");
  });

  test("give way to the canonical result, and do not come back", () => {
    const result = { content: body("done"), kind: ToolResultKind.CANONICAL };
    const done = eventOf(callOf(9n, { state: ToolCallState.COMPLETED, result }));
    expect(shown(partOf(2n, 0, "ab"), done)).toBeUndefined();
    expect(shown(done, partOf(2n, 0, "ab"))).toBeUndefined();
  });

  test("stay beside a synthetic result: they are all there is of what the tool said", () => {
    const result = { content: body("cut off"), kind: ToolResultKind.SYNTHETIC };
    const cut = eventOf(callOf(9n, { state: ToolCallState.INTERRUPTED, result }));
    expect(shown(cut, partOf(2n, 0, "ab"))?.text).toBe("ab");
  });

  test("cost what they are long, not what came before: a copy for each would take minutes", () => {
    const conversation = new Conversation(SESSION);
    conversation.apply(eventOf(callOf(1n)));
    const line = `${"x".repeat(99)}\n`;
    for (let at = 0; at < 50_000; at += 1) {
      conversation.apply(partOf(BigInt(at + 2), at * line.length, line));
      if (at % 10 === 0) conversation.card(CALL);
    }
    expect(conversation.card(CALL)?.provisional?.text).toHaveLength(50_000 * line.length);
  });
});

describe("bytes of bodies", () => {
  const bare = callOf(2n, { proposed: body("a"), effective: body("a") });
  const whole = callOf(2n, {
    proposed: { ...body("a"), data: bytes("{}") },
    effective: { ...body("a"), data: bytes("{}") },
  });

  test("a list gives them and an event does not: it is one record, and they are shown", () => {
    for (const order of [
      [bare, whole],
      [whole, bare],
      [whole, bare, whole],
    ]) {
      const conversation = new Conversation(SESSION);
      for (const call of order) conversation.apply(eventOf(call));
      expect(conversation.evidence()).toEqual([]);
      expect(conversation.card(CALL)?.call).toEqual(whole);
    }
  });

  test("that come later are a change of the card, once", () => {
    const conversation = new Conversation(SESSION);
    conversation.apply(eventOf(bare));
    conversation.applySnapshot({ toolCalls: [whole] });
    expect(conversation.card(CALL)?.revision).toBe(2);
    conversation.applySnapshot({ toolCalls: [whole] });
    expect(conversation.card(CALL)?.revision).toBe(2);
  });
});

describe("cards of calls that other sessions work for", () => {
  const call = callOf(1n, { delegatedSessionIds: [OTHER] });
  const child = (kind: SessionKind): Event => {
    const session = create(SessionSchema, { sessionId: OTHER, kind });
    const event = plainEvent(1n, "SESSION_CREATED", { case: "session", value: session });
    return { ...event, sessionId: OTHER };
  };

  test.each([
    ["subagent", SessionKind.SUBAGENT, "subagent"],
    ["subagent", SessionKind.PARALLEL_BRANCH, "parallel branch"],
    ["team", SessionKind.TEAM_MEMBER, "team member"],
    ["subagent", SessionKind.UNSPECIFIED, "unknown (0)"],
    ["subagent", UNKNOWN, "unknown (99)"],
  ])("are of kind %s for a session of kind %s, which is shown", (kind, sessionKind, text) => {
    for (const order of [
      [eventOf(call), child(sessionKind)],
      [child(sessionKind), eventOf(call)],
    ]) {
      const conversation = new Conversation(SESSION);
      for (const event of order) conversation.apply(event);
      expect(conversation.card(CALL)).toMatchObject({
        kind,
        delegated: [{ sessionId: OTHER, kind: text }],
      });
    }
  });

  test("are of kind subagent while the session is not known, and change when it is", () => {
    const conversation = new Conversation(SESSION);
    conversation.apply(eventOf(call));
    expect(conversation.card(CALL)).toMatchObject({ kind: "subagent", revision: 1 });
    conversation.apply(child(SessionKind.TEAM_MEMBER));
    conversation.apply(child(SessionKind.TEAM_MEMBER));
    expect(conversation.card(CALL)).toMatchObject({ kind: "team", revision: 2 });
  });

  test("of no session are of kind tool, and name the provider and the model of their turn", () => {
    const conversation = new Conversation(SESSION);
    const names = { provider: "a provider", model: "a model" };
    const turn = create(TurnSchema, { turnId: "trn_1", toolCallIds: [CALL], ...names });
    conversation.apply(eventOf(callOf(1n)));
    const event = plainEvent(2n, "TURN_ACCEPTED", { case: "turn", value: turn });
    conversation.apply(event);
    conversation.apply(event);
    expect(conversation.card(CALL)).toMatchObject({ kind: "tool", revision: 2, ...names });
  });
});

describe("records without a revision", () => {
  const runAt = (sequence: bigint, state: RunState): Event => {
    const run = create(RunSchema, { runId: "run_1", state });
    return plainEvent(sequence, "RUN_BEGUN", { case: "run", value: run });
  };

  test("of one run the highest sequence wins", () => {
    const events = [runAt(1n, RunState.ACTIVE), runAt(5n, RunState.ENDED)];
    for (const order of [events, [...events].reverse(), [...events, ...events]]) {
      const conversation = new Conversation(SESSION);
      for (const event of order) conversation.apply(event);
      expect(conversation.sessions()[0]?.runs.map(({ state }) => state)).toEqual([RunState.ENDED]);
    }
  });

  test("a session that was read counts as of its checkpoint", () => {
    const sessionAt = (state: SessionState, sequence?: bigint): Session =>
      create(SessionSchema, {
        sessionId: SESSION,
        state,
        ...(sequence === undefined ? {} : { checkpoint: { sessionId: SESSION, sequence } }),
      });
    const conversation = new Conversation(SESSION);
    const ended = sessionAt(SessionState.ENDED);
    conversation.apply(plainEvent(7n, "SESSION_ENDED", { case: "session", value: ended }));
    conversation.applySnapshot({ session: sessionAt(SessionState.OPEN, 6n) });
    expect(conversation.sessions()[0]?.session?.state).toBe(SessionState.ENDED);
    const read = sessionAt(SessionState.ENDED, 7n);
    conversation.applySnapshot({ session: read });
    expect(conversation.sessions()[0]?.session).toEqual(read);
  });

  test("messages stand in the order of the log", () => {
    const conversation = new Conversation(SESSION);
    for (const sequence of [3n, 1n, 2n, 3n]) {
      const value = create(MessageSchema, { messageId: `msg_${sequence}` });
      conversation.apply(plainEvent(sequence, "MESSAGE_RECORDED", { case: "message", value }));
    }
    const ids = conversation.sessions()[0]?.messages.map(({ messageId }) => messageId);
    expect(ids).toEqual(["msg_1", "msg_2", "msg_3"]);
  });
});

describe("records that a base state brings", () => {
  const old = { ...callOf(0n, { toolCallId: "tcl_1" }) };
  delete old.revision;
  const other = { ...old, toolCallId: "tcl_0" };
  const session = create(SessionSchema, { sessionId: SESSION });
  const adopted = create(AdoptedSchema, { session, openCalls: [old] });
  const adoption = plainEvent(1n, "ADOPTED", { case: "adopted", value: adopted });
  const base = create(BaseStateSchema, {
    records: [old, other].map((value) => ({
      record: { record: { case: "toolCall" as const, value } },
    })),
  });
  const read = { base: { state: base, sequence: 1n } };
  const later = callOf(2n, { toolCallId: "tcl_1", state: ToolCallState.COMPLETED });

  test("are what was there before the first revision, in whatever order they come", () => {
    const steps = [
      (conversation: Conversation) => {
        conversation.apply(adoption);
      },
      (conversation: Conversation) => {
        conversation.applySnapshot(read);
      },
      (conversation: Conversation) => {
        conversation.apply(eventOf(later));
      },
    ];
    const views = [
      [0, 1, 2],
      [0, 2, 1],
      [1, 0, 2],
      [1, 2, 0],
      [2, 0, 1],
      [2, 1, 0],
      [0, 1, 2, 1, 0],
    ].map((order) => {
      const conversation = new Conversation(SESSION);
      for (const at of order) steps[at]?.(conversation);
      return conversation.view();
    });
    for (const view of views) expect(view).toEqual(views[0]);
    expect(views[0]?.evidence).toEqual([]);
    expect(views[0]?.cards.map(({ call }) => [call.toolCallId, call.state])).toEqual([
      ["tcl_1", ToolCallState.COMPLETED],
      ["tcl_0", ToolCallState.ACCEPTED],
    ]);
  });

  test("of a later event know more than those of an earlier one", () => {
    const known = { ...old, state: ToolCallState.COMPLETED };
    const newer = create(BaseStateSchema, {
      records: [{ record: { record: { case: "toolCall", value: known } } }],
    });
    const both = [read, { base: { state: newer, sequence: 5n } }];
    for (const order of [both, [...both].reverse(), [...both, ...both]]) {
      const conversation = new Conversation(SESSION);
      for (const given of order) conversation.applySnapshot(given);
      expect(conversation.evidence()).toEqual([]);
      expect(conversation.card("tcl_1")?.call.state).toBe(ToolCallState.COMPLETED);
    }
  });

  test("may be given as bytes, and those of a fork keep id, origin and revision", () => {
    const conversation = new Conversation("ses_fork");
    const fork = create(ForkedSchema, { session: { sessionId: "ses_fork" } });
    const event = plainEvent(1n, "FORKED", { case: "forked", value: fork });
    conversation.apply({ ...event, sessionId: "ses_fork" });
    const records = [callOf(1n), hookOf(2n)].map((record) => eventOf(record).record);
    const state = create(BaseStateSchema, {
      records: records.map((record) => (record === undefined ? {} : { record })),
    });
    const bytesOfState = toBinary(BaseStateSchema, state);
    conversation.applySnapshot({ base: { state: bytesOfState, sequence: 1n } });
    expect(conversation.card(CALL)).toMatchObject({ call: callOf(1n), hooks: [hookOf(2n)] });
  });

  test("go to the session of their origin if the list names it", () => {
    const conversation = new Conversation(SESSION);
    const places = [create(SessionPlaceSchema, { sessionId: OTHER })];
    const mine = callOf(1n);
    const below = callOf(1n, { origin: { sessionId: OTHER } });
    conversation.applySnapshot({ toolCalls: [mine, below], places });
    expect(conversation.cards().map(({ call }) => call)).toEqual([mine]);
    expect(conversation.cards(OTHER).map(({ call }) => call)).toEqual([below]);
  });
});
