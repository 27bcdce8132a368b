import { create } from "@bufbuild/protobuf";
import type { AmendToolCallCommand } from "../../../gen/toolmark/engine/v1/command_pb.js";
import { EventRecordSchema } from "../../../gen/toolmark/v1/event_pb.js";
import { equalBytes } from "../bytes.js";
import { EventKind } from "../event-kind.js";
import { isRefusal } from "../refusal.js";
import type { SessionState } from "../session-state.js";
import type { Decided, Draft } from "./draft.js";
import { findUnstartedCall } from "./find-call.js";
import { intakeBody } from "./intake-body.js";

export function amendToolCall(
  draft: Draft,
  state: SessionState,
  command: AmendToolCallCommand,
): Decided {
  const open = findUnstartedCall(state, draft.facts, command.toolCallId);
  if (isRefusal(open)) return open;
  const { call, sequence } = open;
  const effective = intakeBody(draft, command.effective, "command.effective");
  if (isRefusal(effective)) return effective;
  if (equalBytes(effective.sha256, call.effective?.sha256 ?? new Uint8Array(0))) {
    const record = create(EventRecordSchema, { record: { case: "toolCall", value: call } });
    return { events: [], bodies: [], reply: [{ sequence, record }] };
  }
  const amended = draft.revise(EventKind.toolCallAmended, (revision) => ({
    case: "toolCall",
    value: { ...call, revision, effective },
  }));
  return draft.decision([amended]);
}
