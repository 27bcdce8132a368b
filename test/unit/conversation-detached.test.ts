import { create, toBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { BaseStateSchema } from "../../gen/toolmark/v1/base_state_pb.js";
import { EventSchema, type Event, type EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { MessageSchema } from "../../gen/toolmark/v1/run_pb.js";
import { ProvisionalResultSchema } from "../../gen/toolmark/v1/tool_call_pb.js";
import { Conversation } from "../../src/client/index.js";
import { CALL, callOf, SESSION } from "../support/conversation-records.js";

/** As grpc-js and `Buffer.concat` give bytes: a slice of these is a view, not a copy. */
const buffer = (text: string): Buffer<ArrayBuffer> => Buffer.from(text.padEnd(32, "."));

function plainEvent(sequence: bigint, kind: string, record: EventRecord["record"]): Event {
  return create(EventSchema, { sessionId: SESSION, sequence, kind, record: { record } });
}

describe("bytes that are given as Buffers", () => {
  test("are copied: whoever fills them again changes nothing", () => {
    const [sha256, data, said, chunk] = [buffer("a"), buffer("b"), buffer("c"), buffer("d")];
    const conversation = new Conversation(SESSION);
    const proposed = { sha256, data, sizeBytes: 32n };
    conversation.applySnapshot({ toolCalls: [callOf(1n, { proposed })] });
    const message = create(MessageSchema, { messageId: "msg_1", content: { sha256: said } });
    conversation.apply(plainEvent(2n, "MESSAGE_RECORDED", { case: "message", value: message }));
    const part = create(ProvisionalResultSchema, { toolCallId: CALL, chunk });
    conversation.apply(plainEvent(3n, "PROVISIONAL", { case: "provisional", value: part }));
    const before = structuredClone(conversation.view());
    for (const bytes of [sha256, data, said, chunk]) bytes.fill(0);
    expect(conversation.view()).toEqual(before);
  });

  test("of a base state are copied, and given as plain bytes", () => {
    const call = callOf(1n, { proposed: { sha256: buffer("a"), sizeBytes: 32n } });
    const records = [{ record: { record: { case: "toolCall" as const, value: call } } }];
    const state = Buffer.from(toBinary(BaseStateSchema, create(BaseStateSchema, { records })));
    const conversation = new Conversation(SESSION);
    conversation.applySnapshot({ base: { state, sequence: 1n } });
    const before = structuredClone(conversation.view());
    state.fill(0);
    expect(conversation.view()).toEqual(before);
    const { sha256 = state } = conversation.card(CALL)?.call.proposed ?? {};
    expect(Object.getPrototypeOf(sha256)).toBe(Uint8Array.prototype);
  });
});
