import {
  create,
  type DescMessage,
  type DescMethod,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";

import { CallService } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { EvidenceService } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { RunService } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { MessageRole, RunOutcome } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { SessionService } from "../../gen/toolmark/v1/session_service_pb.js";
import { DEFAULT_LIMITS } from "../../src/domain/limits.js";
import { createValidator } from "../../src/rpc/validate/validator.js";

const LIMITS = { ...DEFAULT_LIMITS, bodyBytes: 100, inlineBodyBytes: 10, callsPerTurn: 2 };
const validate = createValidator(LIMITS);

const { createSession, getSession } = SessionService.method;
const { listToolCalls } = HistoryService.method;
const { endRun } = RunService.method;
const { acceptTurn, recordResult } = CallService.method;
const { recordMessage, publishHook } = EvidenceService.method;

const sessionId = "ses_1";
const toolCallId = "tc_1";
const ofRun = { sessionId, runId: "run_1", requestId: "request 1" };
const bytes = (size: number) => new Uint8Array(size);
const call = { toolName: "read_file", arguments: { data: bytes(0) } };
const hook = { phase: "session_start", decision: HookDecision.INFO };

function refusalOf<Input extends DescMessage>(
  method: DescMethod & { readonly input: Input },
  init: MessageInitShape<Input>,
) {
  return validate(method, create(method.input, init));
}

const turn = (command: MessageInitShape<typeof acceptTurn.input>["command"] & object) =>
  refusalOf(acceptTurn, { ...ofRun, command });
const message = (content: { data: Uint8Array; mediaType?: string }) =>
  refusalOf(recordMessage, { ...ofRun, command: { role: MessageRole.USER, content } });
const publish = (change: object) =>
  refusalOf(publishHook, { ...ofRun, command: { ...hook, ...change } });

describe("requests that just meet their limits are accepted", () => {
  it.each([
    ["of 512 bytes", "€".repeat(170) + "aa"],
    ["that looks like no id", "call 0 / ß:🙂"],
  ])("an id %s", (_, id) => {
    expect(refusalOf(getSession, { sessionId: id })).toBeUndefined();
  });

  it("a session with every text as long as it may be", () => {
    const labels = Array.from({ length: 64 }, (_, index) => ({
      key: String(1000 + index).padEnd(63, "k"),
      value: "v".repeat(256),
    }));
    expect(
      refusalOf(createSession, {
        requestId: "~".repeat(128),
        kind: SessionKind.DEBUG,
        ownerSubject: "ä".repeat(128),
        title: "a".repeat(1024),
        labels,
      }),
    ).toBeUndefined();
  });

  it("a page token of 4096 bytes", () => {
    expect(refusalOf(listToolCalls, { sessionId, pageToken: "t".repeat(4096) })).toBeUndefined();
  });

  it("a body of no bytes, and one of as many as the limit", () => {
    expect(message({ data: bytes(0) })).toBeUndefined();
    expect(message({ data: bytes(100), mediaType: "t".repeat(256) })).toBeUndefined();
  });

  it("as many calls as the limit, with names as long as they may be", () => {
    const provider = "p".repeat(128);
    const longest = { ...call, toolName: "n".repeat(512) };
    expect(turn({ provider, model: "m".repeat(256), calls: [call, longest] })).toBeUndefined();
  });

  it("provider ids of 4096 bytes, also of control characters", () => {
    const pairing = { providerCallId: "\n".repeat(4096), providerItemId: "i".repeat(4096) };
    expect(turn({ calls: [{ ...call, pairing }] })).toBeUndefined();
  });

  it.each([1, 10])("a part of a result of %d bytes", (size) => {
    const result = { case: "provisional" as const, value: { chunk: bytes(size) } };
    expect(refusalOf(recordResult, { ...ofRun, command: { toolCallId, result } })).toBeUndefined();
  });

  it("a hook of unknown phase with every text as long as it may be", () => {
    const names = { hookName: "h".repeat(512), toolName: "t".repeat(512) };
    expect(publish({ ...names, phase: "p".repeat(128), text: "ä".repeat(5) })).toBeUndefined();
  });

  it.each(["pre_tool_use", "post_tool_use"])("a hook of phase %s about a call", (phase) => {
    expect(publish({ phase, toolCallId })).toBeUndefined();
  });

  it("the end of a run that lists no calls", () => {
    const command = { outcome: RunOutcome.COMPLETED };
    expect(refusalOf(endRun, { ...ofRun, command })).toBeUndefined();
  });
});
