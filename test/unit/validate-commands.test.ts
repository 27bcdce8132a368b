import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";

import { CommandSchema } from "../../gen/toolmark/engine/v1/command_pb.js";
import type { BodySchema } from "../../gen/toolmark/v1/body_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { MessageRole, RunOutcome } from "../../gen/toolmark/v1/run_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { DEFAULT_LIMITS } from "../../src/domain/limits.js";
import { createValidator } from "../../src/rpc/validate/validator.js";
import {
  broken,
  describeMalformed,
  unaryRequest,
  type BrokenCommand,
  type CommandInit,
} from "../support/broken-commands.js";

const LIMITS = { ...DEFAULT_LIMITS, bodyBytes: 100, inlineBodyBytes: 10, callsPerTurn: 2 };
const validate = createValidator(LIMITS);

type BodyInit = MessageInitShape<typeof BodySchema>;

const toolCallId = "tc_1";
const data = new Uint8Array([123, 125]);
const bytes = (size: number) => new Uint8Array(size);

function statesOutside(allowed: ReadonlySet<ToolCallState>): ToolCallState[] {
  const isState = (value: string | ToolCallState): value is ToolCallState =>
    typeof value === "number";
  return Object.values(ToolCallState)
    .filter(isState)
    .filter((state) => !allowed.has(state));
}

/** The same broken bodies in every field that takes one. */
function brokenBodies(field: string, command: (body: BodyInit) => CommandInit): BrokenCommand[] {
  const both = { data, bodyRef: "body_1" };
  return [
    broken("a body of nothing", command({}), field),
    broken("a body of data and reference", command(both), field),
    broken(
      "a body above the limit",
      command({ data: bytes(101) }),
      `${field}.data`,
      ErrorReason.BODY_TOO_LARGE,
    ),
    broken("a digest of 31 bytes", command({ data, sha256: bytes(31) }), `${field}.sha256`),
    broken("a malformed reference", command({ bodyRef: "\u0000" }), `${field}.body_ref`),
    broken(
      "a media type above 256 bytes",
      command({ data, mediaType: "t".repeat(257) }),
      `${field}.media_type`,
    ),
  ];
}

function brokenCallIds(command: (toolCallId: string) => CommandInit): BrokenCommand[] {
  return [
    broken("no call named", command(""), "tool_call_id"),
    broken("a call id above 512 bytes", command("t".repeat(513)), "tool_call_id"),
    broken("a call id with a control character", command("tc\r1"), "tool_call_id"),
  ];
}

const message = (role: MessageRole, content?: BodyInit): CommandInit => ({
  case: "recordMessage",
  value: content === undefined ? { role } : { role, content },
});

const RECORD_MESSAGE = [
  broken("no role", message(MessageRole.UNSPECIFIED, { data }), "role"),
  broken("no content", message(MessageRole.USER), "content"),
  ...brokenBodies("content", (content) => message(MessageRole.USER, content)),
];

const good = { toolName: "read_file", arguments: { data } };
type TurnInit = Extract<CommandInit, { case: "acceptTurn" }>["value"];
const turn = (value: TurnInit): CommandInit => ({ case: "acceptTurn", value });

const ACCEPT_TURN = [
  broken("no calls", turn({ calls: [] }), "calls"),
  broken(
    "more calls than the limit",
    turn({ calls: [good, good, good] }),
    "calls",
    ErrorReason.QUOTA_EXCEEDED,
  ),
  broken(
    "a provider above 128 bytes",
    turn({ provider: "p".repeat(129), calls: [good] }),
    "provider",
  ),
  broken("a model above 256 bytes", turn({ model: "m".repeat(257), calls: [good] }), "model"),
  broken(
    "a call without a tool name",
    turn({ calls: [good, { ...good, toolName: "" }] }),
    "calls[1].tool_name",
  ),
  broken(
    "a tool name above 512 bytes",
    turn({ calls: [{ ...good, toolName: "n".repeat(513) }] }),
    "calls[0].tool_name",
  ),
  broken(
    "a call without arguments",
    turn({ calls: [good, { toolName: "a" }] }),
    "calls[1].arguments",
  ),
  ...brokenBodies("calls[1].arguments", (body) =>
    turn({ calls: [good, { toolName: "a", arguments: body }] }),
  ),
  broken(
    "a provider call id above 4096 bytes",
    turn({ calls: [{ ...good, pairing: { providerCallId: "c".repeat(4097) } }] }),
    "calls[0].pairing.provider_call_id",
  ),
  broken(
    "a provider item id above 4096 bytes",
    turn({ calls: [{ ...good, pairing: { providerItemId: "c".repeat(4097) } }] }),
    "calls[0].pairing.provider_item_id",
  ),
];

const AMEND_TOOL_CALL = [
  ...brokenCallIds((id) => ({
    case: "amendToolCall",
    value: { toolCallId: id, effective: { data } },
  })),
  broken("no arguments", { case: "amendToolCall", value: { toolCallId } }, "effective"),
  ...brokenBodies("effective", (effective) => ({
    case: "amendToolCall",
    value: { toolCallId, effective },
  })),
];

const start = (id: string, argumentsSha256: Uint8Array): CommandInit => ({
  case: "startToolCall",
  value: { toolCallId: id, argumentsSha256 },
});

const START_TOOL_CALL = [
  ...brokenCallIds((id) => start(id, bytes(32))),
  broken("no digest", start(toolCallId, bytes(0)), "arguments_sha256"),
  broken("a digest of 31 bytes", start(toolCallId, bytes(31)), "arguments_sha256"),
  broken("a digest of 33 bytes", start(toolCallId, bytes(33)), "arguments_sha256"),
];

type ResultInit = NonNullable<Extract<CommandInit, { case: "recordResult" }>["value"]["result"]>;
type CanonicalInit = Extract<ResultInit, { case: "canonical" }>["value"];
const result = (init: ResultInit): CommandInit => ({
  case: "recordResult",
  value: { toolCallId, result: init },
});
const canonical = (value: CanonicalInit) => result({ case: "canonical", value });
const provisional = (chunk: Uint8Array) => result({ case: "provisional", value: { chunk } });

const COMPLETES = ToolCallState.UNSPECIFIED;
const RESULT_ENDS = new Set([
  COMPLETES,
  ToolCallState.BLOCKED,
  ToolCallState.WITHHELD,
  ToolCallState.FAILED,
  ToolCallState.TIMED_OUT,
]);

const RECORD_RESULT = [
  ...brokenCallIds((id) => ({
    case: "recordResult",
    value: { toolCallId: id, result: { case: "canonical", value: { content: { data } } } },
  })),
  broken("no result", { case: "recordResult", value: { toolCallId } }, "result"),
  broken("an empty part", provisional(bytes(0)), "provisional.chunk"),
  broken("a part above the inline limit", provisional(bytes(11)), "provisional.chunk"),
  broken("a completed call without content", canonical({}), "canonical.content"),
  broken(
    "WITHHELD without content",
    canonical({ end: ToolCallState.WITHHELD }),
    "canonical.content",
  ),
  ...brokenBodies("canonical.content", (content) => canonical({ content })),
  ...brokenBodies("canonical.content", (content) =>
    canonical({ content, end: ToolCallState.FAILED }),
  ),
  broken(
    "BLOCKED without a hook",
    canonical({ end: ToolCallState.BLOCKED }),
    "canonical.blocked_by_hook_id",
  ),
  broken(
    "BLOCKED by an empty hook id",
    canonical({ end: ToolCallState.BLOCKED, blockedByHookId: "" }),
    "canonical.blocked_by_hook_id",
  ),
  ...[ToolCallState.FAILED, ToolCallState.TIMED_OUT, ToolCallState.WITHHELD, COMPLETES].map((end) =>
    broken(
      `a hook with end ${end}`,
      canonical({ end, content: { data }, blockedByHookId: "hk_1" }),
      "canonical.blocked_by_hook_id",
    ),
  ),
  ...statesOutside(RESULT_ENDS).map((end) =>
    broken(`end ${end}`, canonical({ end, content: { data } }), "canonical.end"),
  ),
];

const reconcile = (end: ToolCallState, content?: BodyInit): CommandInit => ({
  case: "reconcileToolCall",
  value: content === undefined ? { toolCallId, end } : { toolCallId, end, content },
});
const RECONCILED_ENDS = new Set([
  ToolCallState.COMPLETED,
  ToolCallState.FAILED,
  ToolCallState.CANCELLED,
  ToolCallState.INTERRUPTED,
  ToolCallState.TIMED_OUT,
]);

const RECONCILE_TOOL_CALL = [
  ...brokenCallIds((id) => ({
    case: "reconcileToolCall",
    value: { toolCallId: id, end: ToolCallState.COMPLETED },
  })),
  ...statesOutside(RECONCILED_ENDS).map((end) => broken(`end ${end}`, reconcile(end), "end")),
  ...brokenBodies("content", (content) => reconcile(ToolCallState.COMPLETED, content)),
];

type HookInit = Extract<CommandInit, { case: "publishHook" }>["value"];
const goodHook = { phase: "session_start", decision: HookDecision.INFO };
const hook = (change: HookInit): CommandInit => ({
  case: "publishHook",
  value: { ...goodHook, ...change },
});

const PUBLISH_HOOK = [
  broken("an origin without a session", hook({ origin: {} }), "origin.session_id"),
  broken("a call given but empty", hook({ toolCallId: "" }), "tool_call_id"),
  broken("no phase", hook({ phase: "" }), "phase"),
  broken("a phase above 128 bytes", hook({ phase: "p".repeat(129) }), "phase"),
  broken("pre_tool_use without a call", hook({ phase: "pre_tool_use" }), "tool_call_id"),
  broken("post_tool_use without a call", hook({ phase: "post_tool_use" }), "tool_call_id"),
  broken("a hook name above 512 bytes", hook({ hookName: "h".repeat(513) }), "hook_name"),
  broken("a tool name above 512 bytes", hook({ toolName: "t".repeat(513) }), "tool_name"),
  broken("no decision", hook({ decision: HookDecision.UNSPECIFIED }), "decision"),
  broken("text above the inline limit", hook({ text: "ä".repeat(6) }), "text"),
];

const COMPLETED = RunOutcome.COMPLETED;
type EndInit = Extract<CommandInit, { case: "endRun" }>["value"];
const end = (value: EndInit): CommandInit => ({ case: "endRun", value });

const END_RUN = [
  broken("no outcome", end({}), "outcome"),
  broken(
    "PARKED with calls that did not run",
    end({ outcome: RunOutcome.PARKED, notRunToolCallIds: ["a"] }),
    "not_run_tool_call_ids",
  ),
  broken(
    "PARKED with interrupted calls",
    end({ outcome: RunOutcome.PARKED, interruptedToolCallIds: ["a"] }),
    "interrupted_tool_call_ids",
  ),
  broken(
    "an empty id in a list",
    end({ outcome: COMPLETED, notRunToolCallIds: ["a", ""] }),
    "not_run_tool_call_ids[1]",
  ),
  broken(
    "an id twice in a list",
    end({ outcome: COMPLETED, interruptedToolCallIds: ["a", "b", "a"] }),
    "interrupted_tool_call_ids[2]",
  ),
  broken(
    "an id in both lists",
    end({ outcome: COMPLETED, notRunToolCallIds: ["a"], interruptedToolCallIds: ["b", "a"] }),
    "interrupted_tool_call_ids[1]",
  ),
];

const BROKEN: readonly BrokenCommand[] = [
  ...RECORD_MESSAGE,
  ...ACCEPT_TURN,
  ...AMEND_TOOL_CALL,
  ...START_TOOL_CALL,
  ...RECORD_RESULT,
  ...RECONCILE_TOOL_CALL,
  ...PUBLISH_HOOK,
  ...END_RUN,
];

describeMalformed(BROKEN, validate);

describe("limits", () => {
  it("are named if a body or a count is above one", () => {
    const body = unaryRequest(
      create(CommandSchema, { command: message(MessageRole.USER, { data: bytes(101) }) }),
    );
    expect(validate(body.method, body.request)?.metadata).toEqual({
      field: "command.content.data",
      limit: "100",
    });
    const calls = unaryRequest(
      create(CommandSchema, { command: turn({ calls: [good, good, good] }) }),
    );
    expect(validate(calls.method, calls.request)?.metadata).toEqual({
      field: "command.calls",
      limit: "2",
    });
  });
});
