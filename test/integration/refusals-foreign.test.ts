import {
  create,
  toBinary,
  type DescMessage,
  type DescMethod,
  type DescMethodUnary,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { CallService } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import { EvidenceService } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { ReplayService } from "../../gen/toolmark/engine/v1/replay_service_pb.js";
import { RunService } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { ApprovalService } from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskKind, AskProvenance } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { ReceiptPath, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { MessageRole, RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { DelegationKind, SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { SessionService } from "../../gen/toolmark/v1/session_service_pb.js";
import { ToolCallState, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import type { Principal } from "../../src/domain/principal.js";
import { answer, openAsk, park, publishReview, reviewOf, showAsk } from "../support/asking.js";
import {
  acceptCall,
  bytes,
  given,
  newCall,
  openRun,
  publishHook,
  readSession,
  type OpenRun,
} from "../support/conversation.js";
import { writtenTo } from "../support/nothing-written.js";
import { oldSession } from "../support/old-session.js";
import { refused } from "../support/refused.js";
import type { Clients } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import {
  CALLER_HEADER,
  startWatchedService,
  type WatchedService,
} from "../support/watched-service.js";
import { grpcFrame, post, type WireAnswer } from "../support/wire-answer.js";
import { pathOf } from "./listeners-fixture.js";

const UNKNOWN = "ses_00000000000000000000000000";

const OTHER_TENANT: Principal = {
  tenant: "other",
  subject: "loopback",
  roles: everyRole("tenant"),
};
const OTHER_OWNER: Principal = { tenant: "default", subject: "eve", roles: everyRole("own") };

function everyRole(scope: "own" | "tenant"): Principal["roles"] {
  return { engine: scope, approver: scope, reader: scope, admin: scope };
}

/** What a caller can try on a session: all of it names ids that exist. */
interface Known {
  readonly sessionId: string;
  readonly runId: string;
  readonly toolCallId: string;
  readonly hookId: string;
  readonly bodyRef: string;
  readonly reviewId: string;
  readonly askId: string;
  readonly answerToken: string;
  readonly receiptId: string;
  readonly authorizationId: string;
}

interface Attempt {
  readonly method: DescMethodUnary;
  readonly request: (known: Known) => Uint8Array;
}

function attempt<Input extends DescMessage>(
  method: DescMethodUnary<Input>,
  request: (known: Known) => MessageInitShape<Input>,
): Attempt {
  return {
    method,
    request: (known) => toBinary(method.input, create(method.input, request(known))),
  };
}

const requestId = "foreign";
const hook = { phase: "session_start", decision: HookDecision.INFO };
const ofRun = ({ sessionId, runId }: Known) => ({ sessionId, runId, requestId });
const TEXT = { data: bytes("x") };

const ASKING_ATTEMPTS: readonly Attempt[] = [
  attempt(ApprovalService.method.listAsks, ({ sessionId }) => ({ sessionId })),
  attempt(ApprovalService.method.getAsk, ({ sessionId, askId }) => ({ sessionId, askId })),
  attempt(ApprovalService.method.answerAsk, (known) => ({
    ...{ requestId, sessionId: known.sessionId, askId: known.askId },
    ...{ answerToken: known.answerToken, toolCallId: known.toolCallId, verdict: Verdict.DENY },
  })),
  attempt(ApprovalService.method.getReceipt, ({ sessionId, receiptId }) => ({
    ...{ sessionId, receiptId },
  })),
  attempt(ApprovalService.method.listReceipts, ({ sessionId }) => ({ sessionId })),
  attempt(HistoryService.method.getReviewDetail, ({ sessionId, reviewId }) => ({
    ...{ sessionId, reviewId },
  })),
  attempt(HistoryService.method.getAuthorization, ({ sessionId, authorizationId }) => ({
    ...{ sessionId, authorizationId },
  })),
  attempt(HistoryService.method.listAuthorizations, ({ sessionId }) => ({ sessionId })),
  attempt(HistoryService.method.getTranscript, ({ sessionId }) => ({ sessionId })),
  attempt(CallService.method.openAsk, (known) => ({
    ...ofRun(known),
    command: {
      ...{ toolCallId: known.toolCallId, kind: AskKind.ACTION },
      provenance: AskProvenance.PERMISSION,
    },
  })),
  attempt(CallService.method.awaitAsk, ({ sessionId, askId }) => ({ sessionId, askId })),
  attempt(CallService.method.withdrawAsk, (known) => ({
    ...{ ...ofRun(known), command: { askId: known.askId } },
  })),
  attempt(CallService.method.settleAsk, (known) => ({
    ...ofRun(known),
    command: {
      ...{ askId: known.askId, path: ReceiptPath.RULE, rule: "rule 1", verdict: Verdict.DENY },
    },
  })),
  attempt(CallService.method.parkToolCall, (known) => ({
    ...{ ...ofRun(known), command: { toolCallId: known.toolCallId, displayName: "calendar" } },
  })),
  attempt(CallService.method.settleAuthorization, (known) => ({
    ...ofRun(known),
    command: {
      ...{ authorizationId: known.authorizationId, outcome: AuthorizationState.GRANTED },
    },
  })),
  attempt(EvidenceService.method.publishReview, (known) => ({
    ...{ ...ofRun(known), command: reviewOf(known.toolCallId) },
  })),
];

const ATTEMPTS: readonly Attempt[] = [
  attempt(SessionService.method.getSession, ({ sessionId }) => ({ sessionId })),
  attempt(SessionService.method.verifySession, ({ sessionId }) => ({ sessionId })),
  attempt(SessionService.method.endSession, ({ sessionId }) => ({ sessionId, requestId })),
  attempt(SessionService.method.compactSession, ({ sessionId }) => ({
    ...{ sessionId, requestId, throughSequence: 1n, summary: "before" },
  })),
  attempt(SessionService.method.forkSession, ({ sessionId }) => ({ sessionId, requestId })),
  attempt(HistoryService.method.getToolCall, ({ sessionId, toolCallId }) => ({
    ...{ sessionId, toolCallId },
  })),
  attempt(HistoryService.method.listToolCalls, ({ sessionId }) => ({ sessionId })),
  attempt(HistoryService.method.getHook, ({ sessionId, hookId }) => ({ sessionId, hookId })),
  attempt(HistoryService.method.listHooks, ({ sessionId }) => ({ sessionId })),
  attempt(HistoryService.method.listEvents, ({ sessionId }) => ({ sessionId })),
  attempt(RunService.method.beginRun, ({ sessionId }) => ({
    ...{ sessionId, requestId, startGate: StartGate.OFF },
  })),
  attempt(RunService.method.endRun, ({ sessionId, runId }) => ({
    ...{ sessionId, runId, requestId, command: { outcome: RunOutcome.COMPLETED } },
  })),
  attempt(CallService.method.acceptTurn, ({ sessionId, runId }) => ({
    ...{ sessionId, runId, requestId, command: { calls: [newCall("dup")] } },
  })),
  attempt(ReplayService.method.acceptProviderTurn, (known) => ({
    ...{ ...ofRun(known), command: { wire: ProviderWire.GEMINI, payload: TEXT } },
  })),
  attempt(CallService.method.amendToolCall, ({ sessionId, runId, toolCallId }) => ({
    ...{ sessionId, runId, requestId },
    command: { toolCallId, effective: { data: bytes("{}") } },
  })),
  attempt(CallService.method.startToolCall, (known) => ({
    ...ofRun(known),
    command: { toolCallId: known.toolCallId, argumentsSha256: new Uint8Array(32) },
  })),
  attempt(CallService.method.recordResult, (known) => ({
    ...ofRun(known),
    command: {
      toolCallId: known.toolCallId,
      result: { case: "canonical" as const, value: { content: TEXT } },
    },
  })),
  attempt(CallService.method.reconcileToolCall, (known) => ({
    ...ofRun(known),
    command: { toolCallId: known.toolCallId, end: ToolCallState.FAILED },
  })),
  attempt(EvidenceService.method.recordMessage, (known) => ({
    ...{ ...ofRun(known), command: { role: MessageRole.USER, content: TEXT } },
  })),
  attempt(RunService.method.apply, (known) => ({
    ...ofRun(known),
    commands: [{ command: { case: "publishHook" as const, value: hook } }],
  })),
  attempt(EvidenceService.method.publishHook, ({ sessionId, runId }) => ({
    ...{ sessionId, runId, requestId, command: hook },
  })),
  ...ASKING_ATTEMPTS,
];

/** The same about a session and what stands below it. */
const BELOW_ATTEMPTS: readonly Attempt[] = [
  attempt(SessionService.method.createSession, ({ sessionId, toolCallId }) => ({
    ...{ requestId, kind: SessionKind.SUBAGENT },
    delegation: {
      ...{ parentSessionId: sessionId, parentToolCallId: toolCallId },
      kind: DelegationKind.SUBAGENT,
    },
  })),
  attempt(SessionService.method.listSessions, ({ sessionId }) => ({
    ancestorSessionId: sessionId,
  })),
  attempt(SessionService.method.endSession, ({ sessionId }) => ({
    ...{ sessionId, requestId, cancelDescendants: true },
  })),
  attempt(HistoryService.method.listToolCalls, ({ sessionId }) => ({
    ...{ sessionId, includeDescendants: true },
  })),
  attempt(HistoryService.method.listHooks, ({ sessionId }) => ({
    ...{ sessionId, includeDescendants: true },
  })),
  attempt(ApprovalService.method.listAsks, ({ sessionId }) => ({
    ...{ sessionId, includeDescendants: true },
  })),
];

/** The caller chooses the id, so that it is answered for ids that nobody has as well. */
const IMPORT = attempt(SessionService.method.importSession, ({ sessionId }) => ({
  ...{ sessionId, requestId, sources: oldSession("old").sources },
}));

let folder: StoreFolder;
let service: WatchedService;
let known: Known;

beforeAll(async () => {
  folder = await makeStoreFolder();
  const principals = { tenant: OTHER_TENANT, owner: OTHER_OWNER };
  service = await startWatchedService({ store: folder.store, principals });
  const clients = service.clients();
  const run = await openRun(clients);
  const call = await acceptCall(clients, run, newCall("dup"));
  const { hookId } = await publishHook(clients, run, call.toolCallId);
  const bodyRef = given(call.proposed, "body").bodyRef;
  known = {
    ...run,
    toolCallId: call.toolCallId,
    hookId,
    bodyRef,
    ...(await makeAsks(clients, run, call)),
  };
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

/** A review of the call and an open ask about it; a receipt and an authorization of other calls. */
async function makeAsks(clients: Clients, run: OpenRun, { toolCallId }: ToolCall) {
  const { hookId: reviewId } = await publishReview(clients, run, reviewOf(toolCallId));
  const { askId } = await openAsk(clients, run, toolCallId);
  const { answerToken } = await showAsk(clients, run.sessionId, askId);
  const answered = await openAsk(clients, run, (await acceptCall(clients, run)).toolCallId);
  const { receiptId } = await answer(clients, answered);
  const { authorizationId } = await park(clients, run, (await acceptCall(clients, run)).toolCallId);
  return { reviewId, askId, answerToken, receiptId, authorizationId };
}

const DRESSES = ["gRPC", "Connect", "gRPC-Web"] as const;
type Dress = (typeof DRESSES)[number];

/** The whole answer to a request of a caller. */
function answerOf(
  dress: Dress,
  caller: string,
  path: string,
  message: Uint8Array,
): Promise<WireAnswer> {
  const who = caller === "" ? {} : { [CALLER_HEADER]: caller };
  const head = (type: string) => ({ ...who, "content-type": type });
  switch (dress) {
    case "gRPC":
      return post(service.grpcAddress, path, head("application/grpc"), grpcFrame(message));
    case "Connect":
      return post(service.httpAddress, path, head("application/proto"), message);
    case "gRPC-Web":
      return post(
        service.httpAddress,
        path,
        head("application/grpc-web+proto"),
        grpcFrame(message),
      );
  }
}

function statusOf({ headers, body }: WireAnswer): string {
  const text = Buffer.from(body, "hex").toString("latin1");
  return `${String(headers[":status"])} ${JSON.stringify(headers)} ${text}`;
}

test("every offered unary method of a session is tried", async () => {
  const { methods } = await service.clients().info.getServerInfo({});
  const unary = [SessionService, RunService, CallService, EvidenceService]
    .flatMap((each): readonly DescMethod[] => each.methods)
    .concat(ApprovalService.methods, HistoryService.methods, ReplayService.methods)
    .filter(({ methodKind }) => methodKind === "unary")
    .filter(({ input }) => input.fields.some(({ name }) => name === "session_id"))
    .map(({ parent, name }) => `${parent.typeName}.${name}`)
    .filter((name) => methods.includes(name));
  const tried = [...ATTEMPTS, IMPORT].map(
    ({ method: { parent, name } }) => `${parent.typeName}.${name}`,
  );
  expect(tried.sort()).toEqual(unary.sort());
});

describe.each(DRESSES)("over %s", (dress) => {
  test.each([
    ...ATTEMPTS.map((one) => [one.method.name, one] as const),
    ...BELOW_ATTEMPTS.map((one) => [`${one.method.name} below`, one] as const),
  ])(
    "%s of a session of another tenant or owner is answered byte for byte as an unknown one",
    async (_name, { method, request }) => {
      const path = pathOf(method);
      const before = await writtenTo(service, service.clients(), known.sessionId);
      const unknown = await answerOf(dress, "", path, request({ ...known, sessionId: UNKNOWN }));
      expect(statusOf(unknown)).toMatch(dress === "Connect" ? /^404 / : /grpc-status\W+5\b/);
      for (const caller of ["tenant", "owner"]) {
        expect(await answerOf(dress, caller, path, request(known))).toEqual(unknown);
        // An unknown one looks the same to them too.
        const theirs = request({ ...known, sessionId: UNKNOWN });
        expect(await answerOf(dress, caller, path, theirs)).toEqual(unknown);
      }
      expect(await writtenTo(service, service.clients(), known.sessionId)).toEqual(before);
    },
  );

  test("an import of a session of another tenant or owner is answered as one of an unknown one", async () => {
    const path = pathOf(IMPORT.method);
    const answers = async (caller: string) => ({
      known: await answerOf(dress, caller, path, IMPORT.request(known)),
      unknown: await answerOf(
        dress,
        caller,
        path,
        IMPORT.request({ ...known, sessionId: UNKNOWN }),
      ),
    });
    const before = await writtenTo(service, service.clients(), known.sessionId);
    for (const caller of ["tenant", "owner"]) {
      const { known: mine, unknown } = await answers(caller);
      expect(mine).toEqual(unknown);
    }
    // The ones above differ from what a caller is told who may know of the session.
    const own = await answers("");
    expect(own.known).not.toEqual(own.unknown);
    expect(await writtenTo(service, service.clients(), known.sessionId)).toEqual(before);
  });

  test("while their own sessions are theirs alone, and the comparison sees one byte", async () => {
    const path = pathOf(SessionService.method.getSession);
    const { request } = given(ATTEMPTS[0], "attempt");
    const mine = await answerOf(dress, "", path, request(known));
    const foreign = await answerOf(dress, "owner", path, request(known));
    expect(mine).not.toEqual(foreign);
    const malformed = await answerOf(dress, "owner", path, request({ ...known, sessionId: "" }));
    expect(malformed).not.toEqual(foreign);
  });
});

test.each(["tenant", "owner"])(
  "another %s may create, write and read a session",
  async (caller) => {
    const clients = service.clients();
    const headers = { [CALLER_HEADER]: caller };
    const create_ = { requestId, kind: SessionKind.MAIN };
    const { session } = await clients.sessions.createSession(create_, { headers });
    const { sessionId } = given(session, "session");
    const begin = { sessionId, requestId, startGate: StartGate.OFF };
    const { run } = await clients.runs.beginRun(begin, { headers });
    const request = { sessionId, runId: given(run, "run").runId, requestId: "hook", command: hook };
    await clients.evidence.publishHook(request, { headers });
    const { events } = await clients.history.listEvents({ sessionId }, { headers });
    expect(events.length).toBe(3);
  },
);

test("a session of another tenant is unknown to whoever reaches all of one tenant", async () => {
  const clients = service.clients();
  const headers = { [CALLER_HEADER]: "tenant" };
  const request = { requestId: "of another tenant", kind: SessionKind.MAIN };
  const { session } = await clients.sessions.createSession(request, { headers });
  const { sessionId } = given(session, "session");
  expect(await refused(readSession(clients, sessionId))).toEqual({
    code: Code.NotFound,
    reason: "SESSION_NOT_FOUND",
    metadata: {},
    message: "there is no such session",
  });
  const { sessions } = await clients.sessions.listSessions({ pageSize: 500 });
  expect(sessions.map((listed) => listed.sessionId)).not.toContain(sessionId);
});
