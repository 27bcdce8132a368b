import { create, type DescMethod, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";

import { CallService } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { CommandSchema, type Command } from "../../gen/toolmark/engine/v1/command_pb.js";
import { EvidenceService } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { ReplayService } from "../../gen/toolmark/engine/v1/replay_service_pb.js";
import { RunService } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import type { Validator } from "../../src/rpc/validate/validator.js";

export type CommandInit = NonNullable<MessageInitShape<typeof CommandSchema>["command"]>;

/** A command with one thing wrong. */
export interface BrokenCommand {
  readonly rule: string;
  readonly command: Command;
  /** Path below the command. */
  readonly field: string;
  readonly reason: ErrorReason;
  readonly kind: string | undefined;
}

export function broken(
  rule: string,
  init: CommandInit,
  field: string,
  reason = ErrorReason.FIELD_INVALID,
): BrokenCommand {
  const command = create(CommandSchema, { command: init });
  return { rule, command, field, reason, kind: init.case };
}

const OF_RUN = { sessionId: "ses_1", runId: "run_1", requestId: "request 1" };

const UNARY: Readonly<Record<string, DescMethod>> = {
  ...EvidenceService.method,
  ...CallService.method,
  ...ReplayService.method,
  ...RunService.method,
};

/** The unary request of a command. */
export function unaryRequest(command: Command): { method: DescMethod; request: Message } {
  const method = UNARY[command.command.case ?? ""];
  if (method === undefined) throw new Error("a broken command without a unary method");
  const { value } = command.command;
  return { method, request: Object.assign(create(method.input), { ...OF_RUN, command: value }) };
}

function protoName({ command }: Command): string | undefined {
  return CommandSchema.fields.find(({ localName }) => localName === command.case)?.name;
}

/** Each command is refused by its own method and inside Apply, with the path of what is wrong. */
export function describeMalformed(commands: readonly BrokenCommand[], validate: Validator): void {
  describe("malformed commands", () => {
    it.each(commands)("$kind refuses $rule: $field", ({ command, field, reason }) => {
      const { method, request } = unaryRequest(command);
      const refusal = validate(method, request);
      expect(refusal?.metadata["field"]).toBe(`command.${field}`);
      expect(refusal?.reason).toBe(reason);
    });

    it.each(commands)("$kind inside Apply refuses $rule: $field", ({ command, field, reason }) => {
      const hook = { phase: "session_start", decision: HookDecision.INFO };
      const first = create(CommandSchema, { command: { case: "publishHook", value: hook } });
      const { apply } = RunService.method;
      const request = create(apply.input, { ...OF_RUN, commands: [first, command] });
      const refusal = validate(apply, request);
      expect(refusal?.metadata["field"]).toBe(`commands[1].${protoName(command)}.${field}`);
      expect(refusal?.metadata["command"]).toBe("1");
      expect(refusal?.reason).toBe(reason);
    });
  });
}
