import {
  isMessage,
  type DescMessage,
  type DescMethod,
  type Message,
  type MessageShape,
} from "@bufbuild/protobuf";

import { CallService } from "../../../gen/toolmark/engine/v1/call_service_pb.js";
import { EvidenceService } from "../../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { ReplayService } from "../../../gen/toolmark/engine/v1/replay_service_pb.js";
import { RunService } from "../../../gen/toolmark/engine/v1/run_service_pb.js";
import { ApprovalService } from "../../../gen/toolmark/v1/approval_service_pb.js";
import { HistoryService } from "../../../gen/toolmark/v1/history_service_pb.js";
import { SessionService } from "../../../gen/toolmark/v1/session_service_pb.js";
import { invariant } from "../../domain/invariant.js";
import type { Limits } from "../../domain/limits.js";
import type { Refusal } from "../../domain/refusal.js";
import { methodName } from "../call.js";
import * as approvals from "./approvals.js";
import * as asks from "./asks.js";
import type { Checked } from "./checks.js";
import * as commands from "./commands.js";
import * as evidences from "./evidence.js";
import * as imports from "./imports.js";
import * as replays from "./replays.js";
import * as requests from "./requests.js";
import * as uploads from "./uploads.js";
import * as watches from "./watches.js";

/** Says why a request is malformed, or nothing if it is well-formed. It looks at the request alone, at no state. */
export type Validator = (method: DescMethod, request: Message) => Refusal | undefined;

type RequestCheck = (request: Message, limits: Limits) => Checked;

function entry<Input extends DescMessage>(
  method: DescMethod & { readonly input: Input },
  check: (request: MessageShape<Input>, limits: Limits) => Checked,
): readonly [string, RequestCheck] {
  const name = methodName(method);
  return [
    name,
    (request, limits) => {
      invariant(isMessage(request, method.input), `${name} was given ${request.$typeName}`);
      return check(request, limits);
    },
  ];
}

const session = SessionService.method;
const history = HistoryService.method;
const approval = ApprovalService.method;
const run = RunService.method;
const call = CallService.method;
const evidence = EvidenceService.method;
const replay = ReplayService.method;
const { commandRequest } = requests;

const REQUEST_CHECKS: ReadonlyMap<string, RequestCheck> = new Map([
  entry(session.createSession, requests.checkCreateSession),
  entry(session.getSession, requests.checkGetSession),
  entry(session.listSessions, requests.checkListSessions),
  entry(session.endSession, requests.checkEndSession),
  entry(session.forkSession, requests.checkForkSession),
  entry(session.compactSession, requests.checkCompactSession),
  entry(session.importSession, imports.checkImportSession),
  entry(session.verifySession, requests.checkVerifySession),
  entry(history.getToolCall, requests.checkGetToolCall),
  entry(history.listToolCalls, requests.checkListToolCalls),
  entry(history.getHook, requests.checkGetHook),
  entry(history.listHooks, requests.checkListHooks),
  entry(history.getReviewDetail, requests.checkGetReviewDetail),
  entry(history.getAuthorization, requests.checkGetAuthorization),
  entry(history.listAuthorizations, requests.checkListAuthorizations),
  entry(history.readBody, requests.checkReadBody),
  entry(history.listEvents, requests.checkListEvents),
  entry(history.getTranscript, requests.checkGetTranscript),
  entry(history.watchEvents, watches.checkWatchEvents),
  entry(approval.listAsks, approvals.checkListAsks),
  entry(approval.getAsk, approvals.checkGetAsk),
  entry(approval.answerAsk, approvals.checkAnswerAsk),
  entry(approval.watchAsks, watches.checkWatchAsks),
  entry(approval.getReceipt, approvals.checkGetReceipt),
  entry(approval.listReceipts, approvals.checkListReceipts),
  entry(run.beginRun, requests.checkBeginRun),
  entry(run.endRun, commandRequest(commands.checkEndRun)),
  entry(run.apply, requests.checkApply),
  entry(call.acceptTurn, commandRequest(commands.checkAcceptTurn)),
  entry(call.amendToolCall, commandRequest(commands.checkAmendToolCall)),
  entry(call.startToolCall, commandRequest(commands.checkStartToolCall)),
  entry(call.recordResult, commandRequest(commands.checkRecordResult)),
  entry(call.reconcileToolCall, commandRequest(commands.checkReconcileToolCall)),
  entry(call.openAsk, commandRequest(asks.checkOpenAsk)),
  entry(call.awaitAsk, approvals.checkAwaitAsk),
  entry(call.withdrawAsk, commandRequest(asks.checkWithdrawAsk)),
  entry(call.settleAsk, commandRequest(asks.checkSettleAsk)),
  entry(call.parkToolCall, commandRequest(asks.checkParkToolCall)),
  entry(call.settleAuthorization, commandRequest(asks.checkSettleAuthorization)),
  entry(replay.acceptProviderTurn, commandRequest(commands.checkAcceptProviderTurn)),
  entry(replay.getReplay, replays.checkGetReplay),
  entry(replay.projectReplay, replays.checkProjectReplay),
  entry(evidence.recordMessage, commandRequest(commands.checkRecordMessage)),
  entry(evidence.writeBody, uploads.checkFirstPart),
  entry(evidence.publishHook, commandRequest(evidences.checkPublishHook)),
  entry(evidence.publishReview, commandRequest(evidences.checkPublishReview)),
]);

/** Full names of the methods whose requests are checked; requests of other methods pass unlooked at. */
export const VALIDATED_METHODS: ReadonlySet<string> = new Set(REQUEST_CHECKS.keys());

export function createValidator(limits: Limits): Validator {
  return (method, request) => REQUEST_CHECKS.get(methodName(method))?.(request, limits);
}
