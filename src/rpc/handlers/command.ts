import type {
  ApplyRequest,
  CommandResult,
} from "../../../gen/toolmark/engine/v1/run_service_pb.js";
import type { Command } from "../../../gen/toolmark/engine/v1/command_pb.js";
import { commandResult } from "../../domain/decide/command-result.js";
import { invariant } from "../../domain/invariant.js";
import { isRefusal, type Refusal } from "../../domain/refusal.js";
import type { Ledger } from "../../ledger/ledger.js";
import { applyOfOne } from "../../ledger/mutation.js";
import type { CallContext } from "../call.js";
import { callerOf } from "../caller.js";

type CommandCase = Exclude<Command["command"]["case"], undefined>;
type CommandOf<Case extends CommandCase> = Extract<Command["command"], { case: Case }>["value"];
type ResponseOf<Case extends CommandCase> = Extract<
  CommandResult["result"],
  { case: Case }
>["value"];

type CommandRequest<Case extends CommandCase> = Pick<
  ApplyRequest,
  "sessionId" | "runId" | "requestId"
> & { readonly command?: CommandOf<Case> | undefined };

/** The handler of a unary command: an Apply of that one command. */
export function commandHandler<Case extends CommandCase>(
  ledger: Ledger,
  name: Case,
): (context: CallContext, request: CommandRequest<Case>) => Promise<ResponseOf<Case> | Refusal> {
  return async (context, request) => {
    const command = { case: name, value: request.command } as Command["command"];
    const mutation = applyOfOne(request, command);
    const replies = await ledger.submit(callerOf(context), mutation, context);
    if (isRefusal(replies)) return withoutPosition(replies);
    const { result } = commandResult(name, replies[0] ?? []);
    invariant(result.case === name, "a command is answered by its own reply");
    return result.value as ResponseOf<Case>;
  };
}

/** A field of a command by its path in the Apply that held the command: rules name it from the command on. */
export function withFieldOfApply(refusal: Refusal, { commands }: ApplyRequest): Refusal {
  const { command: position, field } = refusal.metadata;
  const name = commands[Number(position)]?.command.case;
  if (position === undefined || field === undefined || name === undefined) return refusal;
  const snakeCase = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const path = field.replace(/^command\b/, `commands[${position}].${snakeCase}`);
  const message = refusal.message.replace(field, path);
  return { ...refusal, message, metadata: { ...refusal.metadata, field: path } };
}

/** Which command of several was refused is told of an Apply only. */
function withoutPosition(refusal: Refusal): Refusal {
  const { command: _position, ...metadata } = refusal.metadata;
  return { ...refusal, metadata };
}
