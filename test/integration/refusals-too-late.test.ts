import { create, toBinary } from "@bufbuild/protobuf";
import { Code, type CallOptions } from "@connectrpc/connect";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  EvidenceService,
  PublishHookRequestSchema,
} from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import type { OpenCall } from "../../src/rpc/open-call.js";
import { answerTo, openAsk, showAsk } from "../support/asking.js";
import {
  acceptCall,
  allEvents,
  freshRequestId,
  given,
  of,
  openRun,
  publishHook,
  recordMessage,
  type OpenRun,
} from "../support/conversation.js";
import { HeldStore } from "../support/held-store.js";
import { anythingElse, writtenTo } from "../support/nothing-written.js";
import { refused, type Refused } from "../support/refused.js";
import { startTestService, type Clients } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { startWatchedService, type WatchedService } from "../support/watched-service.js";
import { grpcFrame, post } from "../support/wire-answer.js";
import { pathOf, until } from "./listeners-fixture.js";

const HOOK = { phase: "session_start", decision: HookDecision.INFO };
const WIRES = ["grpc", "connect-json", "connect-binary"] as const;

let folder: StoreFolder;
let service: WatchedService;
let store: HeldStore;
let clients: Clients;
let run: OpenRun;
/** The answer to an open ask of the run. */
let toAsk: ReturnType<typeof answerTo>;

beforeEach(async () => {
  folder = await makeStoreFolder();
  let held: HeldStore | undefined;
  service = await startWatchedService({
    store: folder.store,
    wrapStore: (inner) => (held = new HeldStore(inner)),
  });
  store = given(held, "store");
  clients = service.clients();
  run = await openRun(clients);
  const { askId } = await openAsk(clients, run, (await acceptCall(clients, run)).toolCallId);
  toAsk = answerTo(await showAsk(clients, run.sessionId, askId));
});

afterEach(async () => {
  store.release();
  await service.stop();
  await folder.remove();
});

interface LateRequest {
  readonly name: string;
  /** Sends the request; gives the record that it made. */
  readonly send: (by: Clients, requestId: string, options?: CallOptions) => Promise<unknown>;
  /** The events that it writes, if it is decided. */
  readonly kinds: readonly string[];
}

/** A command of the engine, and an answer, which needs no run. */
const REQUESTS: readonly LateRequest[] = [
  {
    name: "a command",
    send: async ({ evidence }, requestId, options) => {
      const request = { ...of(run, requestId), command: HOOK };
      return (await evidence.publishHook(request, options)).hook;
    },
    kinds: ["HOOK_PUBLISHED"],
  },
  {
    name: "an answer",
    send: async ({ approvals }, requestId, options) =>
      (await approvals.answerAsk({ ...toAsk, requestId }, options)).receipt,
    kinds: ["RECEIPT_WRITTEN", "ASK_ANSWERED", "TOOL_CALL_READY"],
  },
];
const CASES = WIRES.flatMap((wire) =>
  REQUESTS.map((request) => [request.name, wire, request] as const),
);

/** Makes the store slow: what comes now waits behind a commit that is stored and not yet answered. */
async function holdUp(): Promise<{ readonly first: Promise<unknown> }> {
  store.hold();
  const first = publishHook(clients, run);
  await until(() => store.waiting === 1);
  return { first };
}

/** The next call that arrives at the service. */
async function nextArrival(send: () => void): Promise<OpenCall> {
  const before = service.arrived.length;
  send();
  await until(() => service.arrived.length > before);
  return given(service.arrived[before], "call");
}

/** A call whose deadline passed after it arrived: a short one may pass on the way to a busy service. */
async function arrivedAndLate(
  send: (timeoutMs: number) => Promise<Refused>,
): Promise<{ readonly failure: Refused; readonly call: OpenCall }> {
  const before = service.arrived.length;
  for (const timeoutMs of [200, 1000, 5000]) {
    const failure = await send(timeoutMs);
    const call = service.arrived[before];
    if (call !== undefined) return { failure, call };
  }
  throw new Error("no call arrived");
}

/** Waits until a call has been refused for one of the reasons, as the log of refused attempts has it. */
async function untilRefused(...reasons: readonly string[]): Promise<void> {
  await until(() => reasons.some((reason) => service.logged().includes(`"reason":"${reason}"`)));
}

async function untilDraining(): Promise<void> {
  const health = `http://${service.httpAddress}/healthz`;
  while ((await fetch(health)).status !== 503);
}

const written = () => writtenTo(service, clients, run.sessionId);

describe.each(CASES)("%s over %s", (_name, wire, { send, kinds }) => {
  test("of a caller that is gone before the decision has no effect and its request id stays free", async () => {
    const caller = service.clients(wire);
    const { first } = await holdUp();
    const before = await written();
    const requestId = freshRequestId();
    const canceller = new AbortController();
    const call = await nextArrival(() => {
      void refused(send(caller, requestId, { signal: canceller.signal }));
    });
    canceller.abort();
    await until(() => call.aborted !== undefined);
    store.release();
    await first;
    await untilRefused("CALLER_GONE");
    expect(await written()).toEqual(before);
    await anythingElse(clients, run.sessionId)(requestId);
  });

  test("of a caller that is gone after the decision is served all the same, and a retry is told", async () => {
    const caller = service.clients(wire);
    const before = await allEvents(clients, run.sessionId);
    const requestId = freshRequestId();
    const canceller = new AbortController();
    store.hold();
    const call = await nextArrival(() => {
      void refused(send(caller, requestId, { signal: canceller.signal }));
    });
    await until(() => store.waiting === 1);
    canceller.abort();
    await until(() => call.aborted !== undefined);
    store.release();
    const record = await send(clients, requestId);
    const added = (await allEvents(clients, run.sessionId)).slice(before.length);
    expect(added.map(({ kind }) => kind)).toEqual(kinds);
    expect(added[0]?.record?.record.value).toEqual(record);
  });

  test("whose deadline passes before the decision has no effect", async () => {
    const caller = service.clients(wire);
    // The deadline must pass in the queue, not while a first connection is made.
    await caller.info.getServerInfo({});
    const { first } = await holdUp();
    const before = await written();
    const requestId = freshRequestId();
    const { failure, call } = await arrivedAndLate((timeoutMs) =>
      refused(send(caller, requestId, { timeoutMs })),
    );
    expect(failure.code).toBe(Code.DeadlineExceeded);
    await until(() => call.aborted !== undefined);
    store.release();
    await first;
    // The caller goes at its deadline too, and a busy machine may hear of that first.
    await untilRefused("DEADLINE_PASSED", "CALLER_GONE");
    expect(await written()).toEqual(before);
    await anythingElse(clients, run.sessionId)(requestId);
  });

  test("that comes while the service drains is refused as DRAINING", async () => {
    const caller = service.clients(wire);
    await caller.info.getServerInfo({});
    const { first } = await holdUp();
    const before = await written();
    const requestId = freshRequestId();
    const drained = service.drain();
    await untilDraining();
    const refusal = await refused(send(caller, requestId));
    expect(refusal).toEqual({
      code: Code.Unavailable,
      reason: "DRAINING",
      metadata: {},
      message: refusal.message,
    });
    store.release();
    await first;
    await drained;

    const again = await startTestService({ store: folder.store });
    const { tables, ...rest } = await writtenTo(again, again.clients(), run.sessionId);
    // The drain saved a snapshot, which is no record.
    const records = { ...before.tables, snapshots: tables["snapshots"] };
    expect({ tables, ...rest }).toEqual({ ...before, tables: records });
    await recordMessage(again.clients(), run, requestId);
    await again.stop();
  });
});

describe("a deadline that the caller leaves to the server", () => {
  const path = pathOf(EvidenceService.method.publishHook);
  const message = (requestId: string) =>
    toBinary(
      PublishHookRequestSchema,
      create(PublishHookRequestSchema, { ...of(run, requestId), command: HOOK }),
    );

  test.each([
    [
      "gRPC, by grpc-js and so without a reason",
      (id: string) =>
        post(
          service.grpcAddress,
          path,
          { "content-type": "application/grpc", "grpc-timeout": "200m" },
          grpcFrame(message(id)),
        ),
      /"grpc-status":"4"/,
    ],
    [
      "Connect",
      (id: string) =>
        post(
          service.httpAddress,
          path,
          { "content-type": "application/proto", "connect-timeout-ms": "200" },
          message(id),
        ),
      /":status":504/,
    ],
  ])("is answered as DEADLINE_EXCEEDED over %s", async (_wire, send, expected) => {
    const { first } = await holdUp();
    const before = await written();
    const requestId = freshRequestId();
    let answer: ReturnType<typeof send> | undefined;
    const call = await nextArrival(() => {
      answer = send(requestId);
    });
    await until(() => call.aborted !== undefined);
    store.release();
    await first;
    expect(JSON.stringify(await answer)).toMatch(expected);
    await untilRefused("DEADLINE_PASSED");
    expect(await written()).toEqual(before);
    await anythingElse(clients, run.sessionId)(requestId);
  });
});
