import { create, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import { BodySchema, type Body } from "../../gen/toolmark/v1/body_pb.js";
import { EventSchema, type Event, type EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { HookDecision, HookSchema, type Hook } from "../../gen/toolmark/v1/hook_pb.js";
import {
  ToolCallSchema,
  ToolCallState,
  ToolResultSchema,
  type ToolCall,
  type ToolResult,
} from "../../gen/toolmark/v1/tool_call_pb.js";
import { isJsonObject } from "../../src/domain/json-object.js";
import type { BytesOf } from "../../src/projection/acp-body-text.js";
import { bytes } from "./conversation.js";

export const ROOT_ID = "ses_root";

/** A body whose reference is its text. */
export function bodyOf(text: string): Body {
  const data = bytes(text);
  return create(BodySchema, {
    sha256: data,
    sizeBytes: BigInt(data.length),
    bodyRef: `ref ${text}`,
    isJsonObject: isJsonObject(data),
  });
}

export const bytesOf: BytesOf = ({ bodyRef }) => bytes(bodyRef.replace(/^ref /, ""));

export function resultOf(text: string, isError = false): ToolResult {
  return create(ToolResultSchema, { content: bodyOf(text), isError });
}

export function callOf(
  changed: Exclude<MessageInitShape<typeof ToolCallSchema>, Message> = {},
  sessionId = ROOT_ID,
): ToolCall {
  return create(ToolCallSchema, {
    toolCallId: "tc_1",
    origin: { sessionId },
    revision: 1n,
    toolName: "bash",
    effective: bodyOf('{"command":"ls"}'),
    state: ToolCallState.ACCEPTED,
    ...changed,
  });
}

export function hookOf(changed: Exclude<MessageInitShape<typeof HookSchema>, Message> = {}): Hook {
  return create(HookSchema, {
    hookId: "hk_1",
    origin: { sessionId: ROOT_ID },
    revision: 2n,
    toolCallId: "tc_1",
    phase: "pre_tool_use",
    hookName: "policy",
    decision: HookDecision.BLOCKED,
    text: "not here",
    ...changed,
  });
}

/** Numbers the events of each session. */
export class EventWriter {
  readonly #sequences = new Map<string, bigint>();

  write(record: EventRecord["record"], sessionId = ROOT_ID, kind = "SOMETHING"): Event {
    const sequence = (this.#sequences.get(sessionId) ?? 0n) + 1n;
    this.#sequences.set(sessionId, sequence);
    return create(EventSchema, { sessionId, sequence, kind, record: { record } });
  }

  call(call: ToolCall, sessionId?: string): Event {
    return this.write({ case: "toolCall", value: call }, sessionId);
  }

  hook(hook: Hook, sessionId?: string): Event {
    return this.write({ case: "hook", value: hook }, sessionId);
  }
}
