import { create } from "@bufbuild/protobuf";
import type { AcceptTurnCommand, NewToolCall } from "../../../gen/toolmark/engine/v1/command_pb.js";
import type { Body } from "../../../gen/toolmark/v1/body_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { StartGate, TurnSchema, type Run } from "../../../gen/toolmark/v1/run_pb.js";
import {
  IdentitySource,
  Ran,
  ToolCallSchema,
  ToolCallState,
} from "../../../gen/toolmark/v1/tool_call_pb.js";
import { EventKind } from "../event-kind.js";
import { isRefusal, refuse, type Refusal } from "../refusal.js";
import type { SessionState } from "../session-state.js";
import type { Decided, Draft, ReplyRecord } from "./draft.js";
import { intakeBody } from "./intake-body.js";

/** Clients take only so many bytes of error metadata. */
const COLLISIONS_NAMED_MAX = 16;

/** The positions of each non-empty provider call id of a turn. Absent and empty ids are duplicates of nothing. */
function positionsById(calls: readonly NewToolCall[]): Map<string, number[]> {
  const positions = new Map<string, number[]>();
  for (const [position, { pairing }] of calls.entries()) {
    const id = pairing?.providerCallId ?? "";
    if (id === "") continue;
    const known = positions.get(id);
    if (known === undefined) positions.set(id, [position]);
    else known.push(position);
  }
  return positions;
}

function refuseDuplicates(positions: ReadonlyMap<string, number[]>): Refusal | undefined {
  const repeated = [...positions.values()].filter(({ length }) => length > 1).flat();
  if (repeated.length === 0) return undefined;
  const list = repeated.sort((left, right) => left - right).join(",");
  return refuse(
    ErrorReason.DUPLICATE_PROVIDER_CALL_ID,
    `calls ${list} of the turn share a provider call id`,
    { positions: list },
  );
}

function refuseOutstanding(
  state: SessionState,
  positions: ReadonlyMap<string, number[]>,
): Refusal | undefined {
  const collisions = [...state.openCalls.values()].flatMap(({ call, providerCallId }) =>
    (positions.get(providerCallId) ?? []).map((position) => ({ position, id: call.toolCallId })),
  );
  if (collisions.length === 0) return undefined;
  collisions.sort((left, right) => left.position - right.position);
  const named = collisions.slice(0, COLLISIONS_NAMED_MAX);
  const list = named.map(({ position }) => position).join(",");
  const ids = named.map(({ id }) => id).join(",");
  return refuse(
    ErrorReason.PROVIDER_CALL_ID_OUTSTANDING,
    `calls ${list} of the turn have provider call ids of earlier calls without a result`,
    { positions: list, tool_call_ids: ids },
  );
}

function refuseTooMany(
  { openCalls }: SessionState,
  { calls }: AcceptTurnCommand,
  limit: number,
): Refusal | undefined {
  if (openCalls.size + calls.length <= limit) return undefined;
  return refuse(
    ErrorReason.QUOTA_EXCEEDED,
    `the session would have more than ${limit} calls without a result`,
    { field: "command.calls", limit: String(limit) },
  );
}

export function acceptTurn(
  draft: Draft,
  state: SessionState,
  run: Run,
  command: AcceptTurnCommand,
): Decided {
  const positions = positionsById(command.calls);
  const refused =
    refuseDuplicates(positions) ??
    refuseOutstanding(state, positions) ??
    refuseTooMany(state, command, draft.facts.limits.openCallsPerSession);
  if (refused !== undefined) return refused;

  const bodies: Body[] = [];
  for (const [position, call] of command.calls.entries()) {
    const body = intakeBody(draft, call.arguments, `command.calls[${position}].arguments`);
    if (isRefusal(body)) return body;
    bodies.push(body);
  }
  return writeTurn(draft, run, command, bodies);
}

function writeTurn(
  draft: Draft,
  run: Run,
  command: AcceptTurnCommand,
  bodies: readonly Body[],
): Decided {
  const { mintId, now } = draft.facts;
  const turnId = mintId("turn");
  const ids = command.calls.map(() => mintId("toolCall"));
  const turn = create(TurnSchema, {
    turnId,
    runId: run.runId,
    toolCallIds: ids,
    ...(command.provider === undefined ? {} : { provider: command.provider }),
    ...(command.model === undefined ? {} : { model: command.model }),
    createTime: now,
  });
  const reply: ReplyRecord[] = [draft.write(EventKind.turnAccepted, { case: "turn", value: turn })];
  for (const [index, call] of command.calls.entries()) {
    const build = (revision: bigint) =>
      create(ToolCallSchema, {
        toolCallId: ids[index] ?? "",
        origin: { sessionId: draft.sessionId },
        runId: run.runId,
        revision,
        turnId,
        index,
        toolName: call.toolName,
        ...bodiesOf(bodies[index]),
        state: ToolCallState.ACCEPTED,
        ran: run.startGate === StartGate.REQUIRED ? Ran.NO : Ran.UNKNOWN,
        identitySource: IdentitySource.ENGINE,
        createTime: now,
      });
    reply.push(
      draft.revise(
        EventKind.toolCallAccepted,
        (revision) => ({ case: "toolCall", value: build(revision) }),
        call.pairing,
      ),
    );
  }
  return draft.decision(reply);
}

function bodiesOf(body: Body | undefined): { proposed?: Body; effective?: Body } {
  return body === undefined ? {} : { proposed: body, effective: body };
}
