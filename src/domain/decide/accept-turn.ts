import { create } from "@bufbuild/protobuf";
import type { AcceptTurnCommand, NewToolCall } from "../../../gen/toolmark/engine/v1/command_pb.js";
import type { ProviderTurn } from "../../../gen/toolmark/storage/v1/storage_pb.js";
import type { Body } from "../../../gen/toolmark/v1/body_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import {
  MessageRole,
  MessageSchema,
  StartGate,
  TurnSchema,
  type Run,
  type Turn,
} from "../../../gen/toolmark/v1/run_pb.js";
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
import { intakeBody, storeBytes } from "./intake-body.js";

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
  { calls, field }: NewTurn,
  limit: number,
): Refusal | undefined {
  if (openCalls.size + calls.length <= limit) return undefined;
  return refuse(
    ErrorReason.QUOTA_EXCEEDED,
    `the session would have more than ${limit} calls without a result`,
    { field, limit: String(limit) },
  );
}

/** A turn to be accepted, whoever named its calls. */
export interface NewTurn {
  /** Path of what holds the calls in the request. */
  readonly field: string;
  readonly provider: string | undefined;
  readonly model: string | undefined;
  readonly calls: readonly NewToolCall[];
  /** What the provider gave with them. Absent: the harness named the calls alone. */
  readonly response: { readonly items: ProviderTurn; readonly text: string } | undefined;
}

export function acceptTurn(
  draft: Draft,
  state: SessionState,
  run: Run,
  { provider, model, calls }: AcceptTurnCommand,
): Decided {
  const field = "command.calls";
  return acceptCalls(draft, state, run, { field, provider, model, calls, response: undefined });
}

/** Checks a whole turn before anything of it is written. */
export function acceptCalls(draft: Draft, state: SessionState, run: Run, turn: NewTurn): Decided {
  const positions = positionsById(turn.calls);
  const refused =
    refuseDuplicates(positions) ??
    refuseOutstanding(state, positions) ??
    refuseTooMany(state, turn, draft.facts.limits.openCallsPerSession);
  if (refused !== undefined) return refused;

  const bodies: Body[] = [];
  for (const [position, call] of turn.calls.entries()) {
    const body = intakeBody(draft, call.arguments, `${turn.field}[${position}].arguments`);
    if (isRefusal(body)) return body;
    bodies.push(body);
  }
  return writeTurn(draft, run, turn, bodies);
}

function writeTurn(
  draft: Draft,
  run: Run,
  { provider, model, calls, response }: NewTurn,
  bodies: readonly Body[],
): Decided {
  const { mintId, now } = draft.facts;
  const turnId = mintId("turn");
  const ids = calls.map(() => mintId("toolCall"));
  const turn = create(TurnSchema, {
    turnId,
    runId: run.runId,
    toolCallIds: ids,
    ...(provider === undefined ? {} : { provider }),
    ...(model === undefined ? {} : { model }),
    createTime: now,
  });
  const record = { case: "turn", value: turn } as const;
  const reply: ReplyRecord[] = [draft.write(EventKind.turnAccepted, record, response?.items)];
  if (response !== undefined && response.text !== "") {
    reply.push(writeText(draft, turn, response.text));
  }
  for (const [index, call] of calls.entries()) {
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

/** What the response said, as a message right behind its turn. */
function writeText(draft: Draft, { turnId, runId, createTime }: Turn, text: string): ReplyRecord {
  const message = create(MessageSchema, {
    messageId: draft.facts.mintId("message"),
    runId,
    role: MessageRole.ASSISTANT,
    content: storeBytes(draft, new TextEncoder().encode(text), "text/plain"),
    turnId,
    ...(createTime === undefined ? {} : { createTime }),
  });
  return draft.write(EventKind.messageRecorded, { case: "message", value: message });
}

function bodiesOf(body: Body | undefined): { proposed?: Body; effective?: Body } {
  return body === undefined ? {} : { proposed: body, effective: body };
}
