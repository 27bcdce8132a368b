import { create } from "@bufbuild/protobuf";
import type { RecordMessageCommand } from "../../../gen/toolmark/engine/v1/command_pb.js";
import { MessageSchema, type Run } from "../../../gen/toolmark/v1/run_pb.js";
import { EventKind } from "../event-kind.js";
import { isRefusal } from "../refusal.js";
import type { Decided, Draft } from "./draft.js";
import { intakeBody } from "./intake-body.js";

export function recordMessage(draft: Draft, run: Run, command: RecordMessageCommand): Decided {
  const content = intakeBody(draft, command.content, "command.content");
  if (isRefusal(content)) return content;
  const message = create(MessageSchema, {
    messageId: draft.facts.mintId("message"),
    runId: run.runId,
    role: command.role,
    content,
    createTime: draft.facts.now,
  });
  return draft.decision([
    draft.write(EventKind.messageRecorded, { case: "message", value: message }),
  ]);
}
