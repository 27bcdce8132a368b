import {
  create,
  toBinary,
  type DescMessage,
  type DescMethod,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { CallService } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { EvidenceService } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { RunService } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { ApprovalService, type ShownAsk } from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskKind, AskProvenance } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { ReceiptPath, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import {
  ReviewAssessment,
  ReviewDisposition,
  ReviewInspection,
  ReviewJob,
} from "../../gen/toolmark/v1/review_pb.js";
import { RunOutcome } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import type { Principal } from "../../src/domain/principal.js";
import { sha256 } from "../../src/domain/sha256.js";
import { answer, answerTo, AskWatcher, listedAsks, openAsk, showAsk } from "../support/asking.js";
import {
  acceptTurn,
  beginRun,
  bytes,
  freshRequestId,
  given,
  newCall,
  of,
  type OpenRun,
} from "../support/conversation.js";
import { expectNothingWritten } from "../support/nothing-written.js";
import { refused } from "../support/refused.js";
import type { Clients } from "../support/service.js";
import { makeStoreFolder, tableContents, type StoreFolder } from "../support/store-folder.js";
import {
  CALLER_HEADER,
  startWatchedService,
  type WatchedService,
} from "../support/watched-service.js";
import { grpcFrame, post, type WireAnswer } from "../support/wire-answer.js";
import {
  attemptsOf,
  Callers,
  nextAttempt,
  principal,
  secretsIn,
  TWO_WIRES,
} from "./cases-asks-fixture.js";
import { pathOf } from "./listeners-fixture.js";

const UNKNOWN = "ses_00000000000000000000000000";
const ARGUMENTS = '{"command":"ls"}';

function everyRole(scope: "own" | "tenant"): Principal["roles"] {
  return { engine: scope, approver: scope, reader: scope, admin: scope };
}

const PRINCIPALS = {
  // Whose harness creates two sessions: one for ann, one for bob.
  harness: principal("harness", { engine: "own" }),
  ann: principal("ann", { approver: "own" }),
  bob: principal("bob", { approver: "own", reader: "tenant" }),
  operator: principal("operator", { approver: "tenant" }),
  maker: principal("harness", { approver: "own" }),
  reader: principal("reader", { reader: "tenant" }),
  engine: principal("engine", { engine: "tenant" }),
  admin: principal("admin", { admin: "tenant" }),
  eve: principal("eve", everyRole("own")),
  outsider: { tenant: "other", subject: "ann", roles: everyRole("tenant") },
} satisfies Record<string, Principal>;
type Name = keyof typeof PRINCIPALS;

/** A session with an open ask and everything that can be named beside it. */
interface Known extends OpenRun {
  readonly toolCallId: string;
  readonly startedId: string;
  readonly askId: string;
  readonly receiptId: string;
  readonly reviewId: string;
  readonly authorizationId: string;
  readonly answerToken: string;
}

let folder: StoreFolder;
let service: WatchedService;
let callers: Callers;
let ofAnn: Known;
let ofBob: Known;
const watchers: AskWatcher[] = [];

const REVIEW = {
  job: ReviewJob.ACTION,
  assessment: ReviewAssessment.UNRESOLVED,
  inspection: ReviewInspection.COMPLETE,
  disposition: ReviewDisposition.ASK_ACTION,
};

/** A session that the harness creates for an owner. */
async function sessionFor(ownerSubject: string): Promise<Known> {
  const harness = callers.as("harness");
  const request = { requestId: freshRequestId(), kind: SessionKind.MAIN, ownerSubject };
  const { session } = await harness.sessions.createSession(request);
  const run = await beginRun(harness, given(session, "session").sessionId);
  const turn = [newCall(), newCall(), newCall()];
  const ids = (await acceptTurn(harness, run, turn)).map(({ toolCallId }) => toolCallId);
  const [first = "", second = "", third = ""] = ids;
  const review = { toolCallId: first, phase: "pre_tool_use", review: REVIEW, detail: "why" };
  const { hook } = await harness.evidence.publishReview({ ...of(run), command: review });
  const allowed = await openAsk(harness, run, second);
  const operator = callers.as("operator");
  const { receiptId } = await answer(operator, allowed);
  const argumentsSha256 = sha256(bytes(ARGUMENTS));
  await harness.calls.startToolCall({
    ...of(run),
    command: { toolCallId: second, argumentsSha256 },
  });
  const park = { toolCallId: third, displayName: "mail", deferredToolCallIds: [] };
  const { authorization } = await harness.calls.parkToolCall({ ...of(run), command: park });
  const { askId } = await openAsk(harness, run, first);
  const { answerToken } = await showAsk(operator, run.sessionId, askId);
  return {
    ...run,
    ...{ toolCallId: first, startedId: second, askId, receiptId, answerToken },
    reviewId: given(hook, "hook").hookId,
    authorizationId: given(authorization, "authorization").authorizationId,
  };
}

beforeAll(async () => {
  folder = await makeStoreFolder();
  service = await startWatchedService({ store: folder.store, principals: PRINCIPALS });
  callers = new Callers(service);
  ofAnn = await sessionFor("ann");
  ofBob = await sessionFor("bob");
});

afterAll(async () => {
  for (const watcher of watchers) watcher.stop();
  callers.disconnect();
  await service.stop();
  await folder.remove();
});

function watch(clients: Clients, sessionId: string, cursor = ""): AskWatcher {
  const watcher = new AskWatcher(clients, { sessionId, cursor });
  watchers.push(watcher);
  return watcher;
}

interface Attempt {
  readonly method: DescMethod;
  readonly request: (known: Known) => Uint8Array;
}

function attempt<Input extends DescMessage>(
  method: DescMethod & { readonly input: Input },
  request: (known: Known) => MessageInitShape<Input>,
): Attempt {
  return {
    method,
    request: (known) => toBinary(method.input, create(method.input, request(known))),
  };
}

/** An engine command on a session, by an id that exists. */
function command(method: DescMethod, commandOf: (known: Known) => object): Attempt {
  return attempt(method, (known) => {
    const { sessionId, runId } = known;
    return { sessionId, runId, requestId: "foreign", command: commandOf(known) };
  });
}

const approval = ApprovalService.method;
const history = HistoryService.method;
const call = CallService.method;
const ATTEMPTS: readonly Attempt[] = [
  attempt(approval.getAsk, ({ sessionId, askId }) => ({ sessionId, askId })),
  attempt(approval.listAsks, ({ sessionId }) => ({ sessionId })),
  attempt(approval.answerAsk, ({ sessionId, askId, answerToken, toolCallId }) => ({
    ...{ sessionId, askId, answerToken, toolCallId },
    ...{ requestId: "foreign", verdict: Verdict.ALLOW_ONCE },
  })),
  attempt(approval.watchAsks, ({ sessionId }) => ({ sessionId })),
  attempt(approval.getReceipt, ({ sessionId, receiptId }) => ({ sessionId, receiptId })),
  attempt(approval.listReceipts, ({ sessionId }) => ({ sessionId })),
  attempt(history.getReviewDetail, ({ sessionId, reviewId }) => ({ sessionId, reviewId })),
  attempt(history.getAuthorization, ({ sessionId, authorizationId }) => ({
    ...{ sessionId, authorizationId },
  })),
  attempt(history.listAuthorizations, ({ sessionId }) => ({ sessionId })),
  attempt(call.awaitAsk, ({ sessionId, askId }) => ({ sessionId, askId, waitMs: 1 })),
  command(call.openAsk, ({ toolCallId }) => ({
    ...{ toolCallId, kind: AskKind.ACTION, provenance: AskProvenance.PLAN },
  })),
  command(call.withdrawAsk, ({ askId }) => ({ askId })),
  command(call.settleAsk, ({ askId }) => ({
    ...{ askId, path: ReceiptPath.RULE, rule: "all", verdict: Verdict.ALLOW_ONCE },
  })),
  command(call.startToolCall, ({ toolCallId }) => ({
    ...{ toolCallId, argumentsSha256: sha256(bytes(ARGUMENTS)) },
  })),
  command(call.recordResult, ({ startedId }) => ({
    toolCallId: startedId,
    result: { case: "canonical", value: { content: { data: bytes("done") } } },
  })),
  command(call.reconcileToolCall, ({ startedId }) => ({
    ...{ toolCallId: startedId, end: ToolCallState.FAILED },
  })),
  command(call.parkToolCall, ({ toolCallId }) => ({ toolCallId, displayName: "mail" })),
  command(call.settleAuthorization, ({ authorizationId }) => ({
    ...{ authorizationId, outcome: AuthorizationState.GRANTED },
  })),
  command(EvidenceService.method.publishReview, ({ toolCallId }) => ({
    ...{ toolCallId, phase: "pre_tool_use", review: REVIEW },
  })),
  command(RunService.method.endRun, () => ({ outcome: RunOutcome.COMPLETED })),
  attempt(RunService.method.apply, ({ sessionId, runId, askId }) => ({
    ...{ sessionId, runId, requestId: "foreign" },
    commands: [{ command: { case: "withdrawAsk" as const, value: { askId } } }],
  })),
];

const DRESSES = ["gRPC", "Connect", "gRPC-Web"] as const;
type Dress = (typeof DRESSES)[number];

/** The whole answer to a request of a caller. Streams of Connect come in frames, as with the others. */
function send(dress: Dress, caller: string, { method }: Attempt, message: Uint8Array) {
  const isFramed = dress !== "Connect" || method.methodKind !== "unary";
  const type = {
    gRPC: "application/grpc",
    Connect: isFramed ? "application/connect+proto" : "application/proto",
    "gRPC-Web": "application/grpc-web+proto",
  }[dress];
  const address = dress === "gRPC" ? service.grpcAddress : service.httpAddress;
  const headers = { [CALLER_HEADER]: caller, "content-type": type };
  return post(address, pathOf(method), headers, isFramed ? grpcFrame(message) : message);
}

/** That an answer is the refusal of an unknown session, in whatever dress. */
function saysUnknown({ headers, trailers, body }: WireAnswer): boolean {
  const text = Buffer.from(body, "hex").toString("latin1");
  const all = `${JSON.stringify(headers)} ${JSON.stringify(trailers)} ${text}`;
  return /not_found|grpc-status\W+5\b/.test(all);
}

describe.each(DRESSES)("B44 over %s", (dress) => {
  test.each(ATTEMPTS.map((one) => [one.method.name, one] as const))(
    "%s of a session of another tenant or owner is answered byte for byte as an unknown one",
    async (_name, one) => {
      const { request } = one;
      // Every row of every table: nothing that could be read of the session is elsewhere.
      const before = tableContents(folder.path);
      const unknown = await send(dress, "", one, request({ ...ofAnn, sessionId: UNKNOWN }));
      expect(saysUnknown(unknown)).toBe(true);
      for (const caller of ["eve", "outsider"] as const) {
        const { subject } = PRINCIPALS[caller];
        const known = attemptsOf(service, subject).length;
        expect(await send(dress, caller, one, request(ofAnn))).toEqual(unknown);
        const logged = await nextAttempt(service, subject, known);
        expect(logged).toMatchObject({
          method: `${one.method.parent.typeName}.${one.method.name}`,
          reason: "SESSION_NOT_FOUND",
          tenant: PRINCIPALS[caller].tenant,
          sessionId: ofAnn.sessionId,
        });
      }
      expect(tableContents(folder.path)).toEqual(before);
    },
  );

  test("and the comparison sees who may", async () => {
    const [getAsk] = ATTEMPTS;
    const one = given(getAsk, "attempt");
    const unknown = await send(dress, "", one, one.request({ ...ofAnn, sessionId: UNKNOWN }));
    const mine = await send(dress, "ann", one, one.request(ofAnn));
    expect(mine).not.toEqual(unknown);
    expect(saysUnknown(mine)).toBe(false);
  });
});

/** Of whose session each caller is shown the asks, and of whose the tokens. */
const SHOWN: readonly (readonly [Name, readonly string[], readonly string[]])[] = [
  ["ann", ["ann"], ["ann"]],
  ["bob", ["ann", "bob"], ["bob"]],
  ["operator", ["ann", "bob"], ["ann", "bob"]],
  // Who created a session may answer for it too, as an approver and not as an engine.
  ["maker", ["ann", "bob"], ["ann", "bob"]],
  ["harness", ["ann", "bob"], []],
  ["engine", ["ann", "bob"], []],
  ["reader", ["ann", "bob"], []],
  ["admin", ["ann", "bob"], []],
  ["eve", [], []],
  ["outsider", [], []],
];

/** What a list of asks shows: of whose session, and with whose token. */
function ownersIn(asks: readonly ShownAsk[]) {
  const of_ = (known: Known, owner: string) => {
    const shown = asks.filter(({ ask }) => ask?.askId === known.askId);
    if (shown.length === 0) return [];
    return [{ owner, token: given(shown[0], "ask").answerToken, own: known.answerToken }];
  };
  const found = [...of_(ofAnn, "ann"), ...of_(ofBob, "bob")];
  return {
    asks: found.map(({ owner }) => owner),
    tokens: found.filter(({ token, own }) => token === own).map(({ owner }) => owner),
    others: found.filter(({ token, own }) => token !== own && token !== "").length,
  };
}

describe.each(TWO_WIRES)("B44 over %s", (wire) => {
  test.each(SHOWN)(
    "%s is shown the asks of %j and the tokens of %j",
    async (name, asks, tokens) => {
      const clients = callers.as(name, wire);
      const expected = { asks, tokens, others: 0 };
      const inbox = await listedAsks(clients, {});
      expect(ownersIn(inbox)).toEqual(expected);
      expect(inbox.length).toBe(asks.length);
      const watched = await watch(clients, "").openOnes();
      expect(ownersIn(watched)).toEqual(expected);
      expect(watched.length).toBe(asks.length);

      const each: ShownAsk[] = [];
      for (const [owner, { sessionId, askId }] of Object.entries({ ann: ofAnn, bob: ofBob })) {
        if (!asks.includes(owner)) {
          const foreign = { code: Code.NotFound, reason: "SESSION_NOT_FOUND" };
          expect(await refused(showAsk(clients, sessionId, askId))).toMatchObject(foreign);
          continue;
        }
        each.push(await showAsk(clients, sessionId, askId));
        each.push(...(await listedAsks(clients, { sessionId })));
        each.push(...(await watch(clients, sessionId).openOnes()));
      }
      expect(ownersIn(each)).toEqual(expected);
      expect(each.length).toBe(3 * asks.length);
      const secrets = [ofAnn, ofBob].map(({ answerToken }) => answerToken);
      const seen = secretsIn(JSON.stringify(each.map(({ answerToken }) => answerToken)), secrets);
      expect(seen.length).toBe(tokens.length);
    },
  );

  test.each(["reader", "engine", "harness", "admin"] as const)(
    "%s cannot answer, even with the token",
    async (name) => {
      const shown = await showAsk(callers.as("operator", wire), ofAnn.sessionId, ofAnn.askId);
      const known = attemptsOf(service, PRINCIPALS[name].subject).length;
      const refusal = await expectNothingWritten(service, ofAnn.sessionId, (requestId) =>
        callers.as(name, wire).approvals.answerAsk({ ...answerTo(shown), requestId }),
      );
      expect(refusal).toMatchObject({
        code: Code.PermissionDenied,
        reason: "ROLE_MISSING",
        metadata: { role: "approver" },
      });
      const logged = await nextAttempt(service, PRINCIPALS[name].subject, known);
      expect(logged).toMatchObject({ reason: "ROLE_MISSING", subject: PRINCIPALS[name].subject });
      expect(secretsIn(service.logged(), [ofAnn.answerToken])).toEqual([]);
    },
  );

  test("who reads all but approves its own only cannot answer another's, even with the token", async () => {
    const bob = callers.as("bob", wire);
    const shown = await showAsk(callers.as("operator", wire), ofAnn.sessionId, ofAnn.askId);
    const refusal = await expectNothingWritten(service, ofAnn.sessionId, (requestId) =>
      bob.approvals.answerAsk({ ...answerTo(shown), requestId }),
    );
    expect(refusal).toMatchObject({ code: Code.NotFound, reason: "SESSION_NOT_FOUND" });
  });

  test("a place in the asks of one session is none in those of another, or of another caller", async () => {
    const operator = callers.as("operator", wire);
    const watcher = watch(operator, ofAnn.sessionId);
    await watcher.openOnes();
    const { cursor } = watcher;
    const goesOn = watch(operator, ofAnn.sessionId, cursor);
    const { sessionId } = ofAnn;
    const foreign = [
      () => watch(operator, ofBob.sessionId, cursor),
      () => watch(operator, "", cursor),
      () => watch(callers.as("ann", wire), sessionId, cursor),
      () => watch(operator, sessionId, `${cursor}A`),
      () => new AskWatcher(operator, { sessionId, includeDescendants: true, cursor }),
    ];
    for (const open of foreign) {
      const refusal = await refused(open().next());
      expect(refusal).toMatchObject({ code: Code.InvalidArgument, reason: "CURSOR_MALFORMED" });
    }
    // The same cursor is good where it comes from.
    const harness = callers.as("harness", wire);
    const newer = await openAsk(harness, ofAnn, ofAnn.toolCallId);
    const told = [await goesOn.nextAsk(), await goesOn.nextAsk()];
    expect(told.map(({ ask }) => ask.askId)).toEqual([ofAnn.askId, newer.askId]);
    const { answerToken } = await showAsk(operator, ofAnn.sessionId, newer.askId);
    ofAnn = { ...ofAnn, askId: newer.askId, answerToken };
  });
});
