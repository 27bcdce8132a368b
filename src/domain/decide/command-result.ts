import { create } from "@bufbuild/protobuf";
import {
  CommandResultSchema,
  type CommandResult,
} from "../../../gen/toolmark/engine/v1/run_service_pb.js";
import type { Command } from "../../../gen/toolmark/engine/v1/command_pb.js";
import type { EventRecord } from "../../../gen/toolmark/v1/event_pb.js";
import { invariant } from "../invariant.js";
import type { AnyRecord } from "./draft.js";

type RecordCase = Exclude<AnyRecord["case"], undefined>;
type RecordOf<Case extends RecordCase> = Extract<AnyRecord, { case: Case }>["value"];

function all<Case extends RecordCase>(
  records: readonly EventRecord[],
  wanted: Case,
): RecordOf<Case>[] {
  return records.flatMap(({ record }) =>
    record.case === wanted ? [record.value as RecordOf<Case>] : [],
  );
}

function one<Case extends RecordCase>(
  records: readonly EventRecord[],
  wanted: Case,
): RecordOf<Case> {
  const [record] = all(records, wanted);
  invariant(record !== undefined, `a reply of this command has a ${wanted}`);
  return record;
}

/** The result of a command from the records of its events: the same at its commit and at every retry. */
export function commandResult(
  command: Command["command"]["case"],
  records: readonly EventRecord[],
): CommandResult {
  return create(CommandResultSchema, { result: resultOf(command, records) });
}

function resultOf(
  command: Command["command"]["case"],
  records: readonly EventRecord[],
): NonNullable<Parameters<typeof create<typeof CommandResultSchema>>[1]>["result"] & object {
  switch (command) {
    case "recordMessage":
      return { case: command, value: { message: one(records, "message") } };
    case "acceptTurn": {
      const value = { turn: one(records, "turn"), toolCalls: all(records, "toolCall") };
      return { case: command, value };
    }
    case "acceptProviderTurn": {
      const [message] = all(records, "message");
      const value = { turn: one(records, "turn"), toolCalls: all(records, "toolCall") };
      return { case: command, value: message === undefined ? value : { ...value, message } };
    }
    case "amendToolCall":
    case "startToolCall":
    case "reconcileToolCall":
      return { case: command, value: { toolCall: one(records, "toolCall") } };
    case "recordResult": {
      const [toolCall] = all(records, "toolCall");
      return { case: command, value: toolCall === undefined ? {} : { toolCall } };
    }
    case "openAsk":
      return { case: command, value: { ask: one(records, "ask") } };
    case "withdrawAsk":
    case "settleAsk":
      return { case: command, value: { receipt: one(records, "receipt") } };
    case "parkToolCall":
    case "settleAuthorization": {
      const authorization = one(records, "authorization");
      return { case: command, value: { authorization, toolCalls: all(records, "toolCall") } };
    }
    case "publishReview":
    case "publishHook":
      return { case: command, value: { hook: one(records, "hook") } };
    case "endRun": {
      const toolCallIds = all(records, "toolCall").map(({ toolCallId }) => toolCallId);
      return { case: command, value: { run: one(records, "run"), toolCallIds } };
    }
    default:
      invariant(false, `no reply is known for ${String(command)}`);
  }
}
