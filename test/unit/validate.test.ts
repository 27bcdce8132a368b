import {
  create,
  type DescMessage,
  type DescMethod,
  type Message,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";

import { EvidenceService } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { RunService, TakeOver } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { DelegationKind, SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { SessionService } from "../../gen/toolmark/v1/session_service_pb.js";
import { DEFAULT_LIMITS } from "../../src/domain/limits.js";
import { methodName } from "../../src/rpc/call.js";
import { createValidator } from "../../src/rpc/validate/validator.js";
import { REQUEST_SAMPLES } from "../support/request-samples.js";

const LIMITS = { ...DEFAULT_LIMITS, commandsPerApply: 3 };
const validate = createValidator(LIMITS);

interface Broken {
  readonly rule: string;
  readonly name: string;
  readonly method: DescMethod;
  readonly request: Message;
  readonly field: string;
}

function broken<Input extends DescMessage>(
  rule: string,
  method: DescMethod & { readonly input: Input },
  init: MessageInitShape<Input>,
  field: string,
): Broken {
  return { rule, name: method.name, method, request: create(method.input, init), field };
}

const session = SessionService.method;
const history = HistoryService.method;
const run = RunService.method;

const sessionId = "ses_1";
const requestId = "request 1";
const newSession = { requestId, kind: SessionKind.MAIN };
const delegation = {
  parentSessionId: sessionId,
  parentToolCallId: "tc_1",
  kind: DelegationKind.SUBAGENT,
};
const beginRun = { sessionId, requestId, startGate: StartGate.OFF };
const delegated = (change: Partial<typeof delegation>) => ({
  ...newSession,
  delegation: { ...delegation, ...change },
});
const labelled = (...labels: { key: string; value?: string }[]) => ({ ...newSession, labels });
const manyLabels = Array.from({ length: 65 }, (_, index) => ({ key: String(1000 + index) }));

const MALFORMED_IDS: readonly (readonly [string, string])[] = [
  ["missing", ""],
  ["513 bytes long", "a".repeat(513)],
  ["above 512 bytes in fewer characters", "€".repeat(171)],
  ["with a line feed", "ses\n1"],
  ["with NUL", "ses\u00001"],
  ["with DEL", "ses\u007f1"],
  ["with a C1 control character", "ses\u00851"],
  ["with a lone surrogate", "ses\udc00"],
];

const MALFORMED_REQUEST_IDS: readonly (readonly [string, string])[] = [
  ["missing", ""],
  ["129 characters long", "r".repeat(129)],
  ["not ASCII", "réquest"],
  ["with a tab", "a\tb"],
  ["with a trailing line feed", "request\n"],
  ["with DEL", "a\u007f"],
];

const BROKEN_SESSION_REQUESTS: readonly Broken[] = [
  broken("kind unspecified", session.createSession, { requestId }, "kind"),
  broken(
    "owner above 256 bytes",
    session.createSession,
    { ...newSession, ownerSubject: "ä".repeat(129) },
    "owner_subject",
  ),
  broken(
    "title above 1024 bytes",
    session.createSession,
    { ...newSession, title: "a".repeat(1025) },
    "title",
  ),
  broken(
    "a label without a key",
    session.createSession,
    labelled({ key: "a" }, { key: "" }),
    "labels[1].key",
  ),
  broken(
    "a label key above 63 bytes",
    session.createSession,
    labelled({ key: "k".repeat(64) }),
    "labels[0].key",
  ),
  broken(
    "a label value above 256 bytes",
    session.createSession,
    labelled({ key: "a", value: "v".repeat(257) }),
    "labels[0].value",
  ),
  broken(
    "a repeated label key",
    session.createSession,
    labelled({ key: "a" }, { key: "a" }),
    "labels[1].key",
  ),
  broken(
    "label keys out of order",
    session.createSession,
    labelled({ key: "a" }, { key: "c" }, { key: "b" }),
    "labels[2].key",
  ),
  broken(
    "label keys in the order of UTF-16 but not of bytes",
    session.createSession,
    labelled({ key: "\u{10000}" }, { key: "\uff00" }),
    "labels[1].key",
  ),
  broken("65 labels", session.createSession, labelled(...manyLabels), "labels"),
  broken(
    "a delegation without a parent session",
    session.createSession,
    delegated({ parentSessionId: "" }),
    "delegation.parent_session_id",
  ),
  broken(
    "a delegation without a parent call",
    session.createSession,
    delegated({ parentToolCallId: "" }),
    "delegation.parent_tool_call_id",
  ),
  broken(
    "a delegation of unspecified kind",
    session.createSession,
    delegated({ kind: DelegationKind.UNSPECIFIED }),
    "delegation.kind",
  ),
  broken(
    "owner above 256 bytes",
    session.listSessions,
    { ownerSubject: "a".repeat(257) },
    "owner_subject",
  ),
];

const LONG = "a page token above 4096 bytes";
const pageToken = "t".repeat(4097);

const BROKEN_READS_AND_RUNS: readonly Broken[] = [
  broken("no call named", history.getToolCall, { sessionId }, "tool_call_id"),
  broken("no hook named", history.getHook, { sessionId }, "hook_id"),
  broken("no body named", history.readBody, { sessionId }, "body_ref"),
  broken(
    "a malformed call filter",
    history.listHooks,
    { sessionId, toolCallId: "\n" },
    "tool_call_id",
  ),
  broken(LONG, session.listSessions, { pageToken }, "page_token"),
  broken(LONG, history.listToolCalls, { sessionId, pageToken }, "page_token"),
  broken(LONG, history.listHooks, { sessionId, pageToken }, "page_token"),
  broken(LONG, history.listEvents, { sessionId, pageToken }, "page_token"),
  broken("start gate unspecified", run.beginRun, { sessionId, requestId }, "start_gate"),
  broken(
    "take-over given but unspecified",
    run.beginRun,
    { ...beginRun, takeOver: TakeOver.UNSPECIFIED },
    "take_over",
  ),
];

describe("well-formed requests", () => {
  for (const { method, requests } of REQUEST_SAMPLES) {
    it.each(requests.map((request, index) => ({ index, request })))(
      `${method.name} accepts sample $index`,
      ({ request }) => {
        expect(validate(method, request)).toBeUndefined();
      },
    );
  }

  it("leaves methods alone whose requests it does not know", () => {
    const { eraseSession } = session;
    expect(validate(eraseSession, create(eraseSession.input))).toBeUndefined();
  });
});

describe("malformed requests", () => {
  it.each([...BROKEN_SESSION_REQUESTS, ...BROKEN_READS_AND_RUNS])(
    "$name refuses $rule and names $field",
    ({ method, request, field }) => {
      const refusal = validate(method, request);
      expect(refusal?.reason).toBe(ErrorReason.FIELD_INVALID);
      expect(refusal?.metadata).toEqual({
        field,
        rule: refusal?.message.slice(`${field} `.length),
      });
    },
  );

  it("throws for a request of another method, which only a fault of the program can bring", () => {
    const request = create(session.getSession.input, { sessionId });
    expect(() => validate(session.endSession, request)).toThrow(/EndSession was given/);
  });
});

/** Every method whose samples set the string, so that changing it alone breaks the request. */
function withField(localName: string): typeof REQUEST_SAMPLES {
  return REQUEST_SAMPLES.filter(({ method }) => localName in method.input.field);
}

function changed({ method, requests }: (typeof REQUEST_SAMPLES)[number], change: object): Message {
  return Object.assign(create(method.input), requests[0], change);
}

/** Requests about the asks of one session, or of all: these need not name one. */
const OF_ANY_SESSION = new Set(["ListAsks", "WatchAsks"]);

function malformedIds({ method }: (typeof REQUEST_SAMPLES)[number], localName: string) {
  const mayBeMissing = localName === "sessionId" && OF_ANY_SESSION.has(method.name);
  return MALFORMED_IDS.filter(([, id]) => id !== "" || !mayBeMissing);
}

describe("ids that most requests have", () => {
  it.each(
    ["sessionId", "runId"].flatMap((localName) =>
      withField(localName).flatMap((sample) =>
        malformedIds(sample, localName).map(([rule, id]) => ({
          localName,
          sample,
          rule,
          id,
          ...sample,
        })),
      ),
    ),
  )("$method.name refuses a $localName $rule", ({ localName, sample, method, id }) => {
    const refusal = validate(method, changed(sample, { [localName]: id }));
    expect(refusal?.reason).toBe(ErrorReason.FIELD_INVALID);
    expect(refusal?.metadata["field"]).toBe(method.input.field[localName]?.name);
  });

  it.each(
    withField("requestId").flatMap((sample) =>
      MALFORMED_REQUEST_IDS.map(([rule, id]) => ({ sample, rule, id, ...sample })),
    ),
  )("$method.name refuses a request_id $rule", ({ sample, method, id }) => {
    const refusal = validate(method, changed(sample, { requestId: id }));
    expect(refusal?.reason).toBe(ErrorReason.FIELD_INVALID);
    expect(refusal?.metadata["field"]).toBe("request_id");
  });

  it.each(withField("command"))("$method.name refuses a missing command", (sample) => {
    const refusal = validate(sample.method, changed(sample, { command: undefined }));
    expect(refusal?.reason).toBe(ErrorReason.FIELD_INVALID);
    expect(refusal?.metadata).toEqual({ field: "command", rule: "is required" });
  });
});

describe("Apply", () => {
  type Init = MessageInitShape<typeof run.apply.input>;
  const hook = {
    command: {
      case: "publishHook" as const,
      value: { phase: "session_start", decision: HookDecision.INFO },
    },
  };
  const end = {
    command: { case: "endRun" as const, value: { outcome: RunOutcome.COMPLETED } },
  };
  const apply = (commands: NonNullable<Init["commands"]>) =>
    validate(
      run.apply,
      create(run.apply.input, { sessionId, runId: "run_1", requestId, commands }),
    );

  it("accepts as many commands as the limit, EndRun last", () => {
    expect(apply([hook, hook, end])).toBeUndefined();
  });

  it("refuses no commands", () => {
    expect(apply([])?.metadata["field"]).toBe("commands");
  });

  it("refuses more commands than the limit with the limit", () => {
    const refusal = apply([hook, hook, hook, hook]);
    expect(refusal?.reason).toBe(ErrorReason.QUOTA_EXCEEDED);
    expect(refusal?.metadata).toEqual({ field: "commands", limit: "3" });
  });

  it("refuses EndRun before the last place", () => {
    const refusal = apply([end, hook]);
    expect(refusal?.reason).toBe(ErrorReason.FIELD_INVALID);
    expect(refusal?.metadata).toEqual({
      field: "commands[0].end_run",
      rule: "must be the last command",
      command: "0",
    });
  });

  it("refuses an entry that is no command, with its position", () => {
    const refusal = apply([hook, {}]);
    expect(refusal?.metadata).toEqual({
      field: "commands[1].command",
      rule: "is required",
      command: "1",
    });
  });

  it("names the first malformed command", () => {
    const malformed = { command: { case: "publishHook" as const, value: { phase: "" } } };
    expect(apply([hook, malformed, malformed])?.metadata).toMatchObject({
      field: "commands[1].publish_hook.phase",
      command: "1",
    });
  });
});

it("knows methods by their full name", () => {
  expect(methodName(EvidenceService.method.publishHook)).toBe(
    "toolmark.engine.v1.EvidenceService.PublishHook",
  );
});
