import { create, type DescMethodUnary, type Message } from "@bufbuild/protobuf";
import type { Transport } from "@connectrpc/connect";
import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import { AskKind, AskProvenance } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunOutcome } from "../../gen/toolmark/v1/run_pb.js";
import type { Principal } from "../../src/domain/principal.js";
import type { SessionRef } from "../../src/ledger/store-port.js";
import { connectNodeClient } from "./any-clients.js";
import {
  answer,
  askAbout,
  openAsk,
  park,
  publishReview,
  reviewOf,
  settleAuthorization,
  startCall,
} from "./asking.js";
import {
  acceptCall,
  acceptTurn,
  amendCall,
  bytes,
  complete,
  endRun,
  newCall,
  of,
  openRun,
  publishHook,
  recordMessage,
  type OpenRun,
} from "./conversation.js";
import { acceptResponse, completeAll, RESPONSE } from "./replaying.js";
import { doMainJob } from "./main-job.js";
import {
  clientsOf,
  startTestService,
  transportOf,
  type Clients,
  type TestService,
  type TestServiceOptions,
} from "./service.js";

const ROLES = { engine: "tenant", approver: "tenant", reader: "tenant", admin: "tenant" } as const;
const FAR = { seconds: 4_000_000_000n };

/** Callers of the history: one of them has a tenant of its own. */
export const ANNA: Principal = { tenant: "default", subject: "anna", roles: ROLES };
export const OTTO: Principal = { tenant: "other", subject: "otto", roles: ROLES };

/** A service whose callers are whom a test says. */
export interface HistoryService extends TestService {
  become(principal: Principal): void;
}

export async function startHistoryService(options: TestServiceOptions): Promise<HistoryService> {
  let caller = ANNA;
  const service = await startTestService({ ...options, authenticate: () => caller });
  return {
    ...service,
    become: (principal) => {
      caller = principal;
    },
  };
}

/** A unary request of the history, as it was made. */
export interface MadeRequest {
  readonly caller: Principal;
  readonly method: DescMethodUnary;
  readonly request: Message;
}
type OnRequest = (made: MadeRequest) => void;

/**
 * Sessions that together have rows of every table: settled and open asks, receipts, hooks, reviews, authorizations,
 * bodies, pairings, deadlines and snapshots, in two tenants.
 */
export async function writeHistory(
  service: HistoryService,
  onRequest: OnRequest = () => undefined,
): Promise<SessionRef[]> {
  let caller = ANNA;
  const inner = transportOf("connect-binary", service.grpcAddress, service.httpAddress);
  const transport: Transport = {
    unary: (method, signal, timeoutMs, header, input, contextValues) => {
      onRequest({ caller, method, request: create(method.input, input) });
      return inner.unary(method, signal, timeoutMs, header, input, contextValues);
    },
    stream: (...args) => inner.stream(...args),
  };
  const clients = clientsOf(transport);
  const client = connectNodeClient(transport);
  service.become(caller);
  const { sessionId } = await doMainJob(client);
  const waiting = await writeWaiting(clients);
  caller = OTTO;
  service.become(caller);
  const foreign = await writeSettled(clients);
  return [
    { tenant: "default", sessionId },
    { tenant: "default", sessionId: waiting },
    { tenant: "other", sessionId: foreign },
  ];
}

/** A session in which everything still waits. */
async function writeWaiting(clients: Clients): Promise<string> {
  const run = await openRun(clients);
  await recordMessage(clients, run);
  await publishHook(clients, run);
  const [amended, running, released, parked] = await acceptTurn(clients, run, [
    newCall("call_0", "bash", '{"command":"make"}'),
    newCall("call_1", "bash", '{"command":"test"}'),
    newCall("call_2", "read", "not an object"),
    newCall("call_3", "fetch", '{"url":"example"}'),
  ]);
  const ids = [amended, running, released, parked].map((call) => call?.toolCallId ?? "");
  const [amendedId = "", runningId = "", releasedId = "", parkedId = ""] = ids;
  await amendCall(clients, run, amendedId, '{"command":"make all"}');
  await startCall(clients, run, runningId);
  await clients.calls.recordResult({
    ...of(run),
    command: {
      toolCallId: runningId,
      result: { case: "provisional", value: { chunk: bytes("so far") } },
    },
  });
  await startCall(clients, run, releasedId);
  await openAsk(clients, run, releasedId, {
    kind: AskKind.RESULT_RELEASE,
    provenance: AskProvenance.HOOK_GUARDRAIL,
    heldSha256: new Uint8Array(32).fill(7),
    heldSizeBytes: 3n,
  });
  await openAsk(clients, run, amendedId, {
    expireTime: FAR,
    display: "display",
    prompt: "May it?",
  });
  await park(clients, run, parkedId, { expireTime: FAR });
  return run.sessionId;
}

/** A turn as its provider gave it. */
async function writeProviderTurn(clients: Clients, run: OpenRun): Promise<void> {
  const wire = ProviderWire.ANTHROPIC_MESSAGES;
  const response = RESPONSE[wire]("Looking.", { id: "toolu_0" });
  const { toolCalls } = await acceptResponse(clients, run, wire, response);
  await completeAll(clients, run, toolCalls, ["found"]);
}

/** A session that has ended, with a denial, a grant and a body of its own. */
async function writeSettled(clients: Clients): Promise<string> {
  const run = await openRun(clients);
  const denied = await askAbout(clients, run, { expireTime: FAR });
  await answer(clients, denied, Verdict.DENY);
  const allowed = await askAbout(clients, run);
  await answer(clients, allowed);
  await startCall(clients, run, allowed.toolCallId);
  await complete(clients, run, allowed.toolCallId, "done ".repeat(4000));
  await writeProviderTurn(clients, run);
  const { toolCallId } = await acceptCall(clients, run, newCall("call_0"));
  await publishReview(clients, run, reviewOf(toolCallId));
  const { authorizationId } = await park(clients, run, toolCallId, { expireTime: FAR });
  await settleAuthorization(clients, run, authorizationId, AuthorizationState.GRANTED);
  await complete(clients, run, toolCallId);
  await endRun(clients, run, { outcome: RunOutcome.COMPLETED });
  await clients.sessions.endSession({ requestId: "end", sessionId: run.sessionId });
  return run.sessionId;
}
