import {
  create,
  type DescMessage,
  type DescMethod,
  type Message,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import { ReplayService } from "../../gen/toolmark/engine/v1/replay_service_pb.js";
import { ApprovalService } from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { SessionService } from "../../gen/toolmark/v1/session_service_pb.js";
import { RecordFamily, type SessionRef, type Store } from "../../src/ledger/store-port.js";
import { ANNA, OTTO } from "./rich-history.js";
import type { OfflineCall } from "./offline-service.js";

const ALL = 1000;
const session = SessionService.method;
const history = HistoryService.method;
const approval = ApprovalService.method;
const replay = ReplayService.method;

/** The wire that the history has turns of, and another one. */
const PROJECTED = [ProviderWire.ANTHROPIC_MESSAGES, ProviderWire.GEMINI];

function calling<Input extends DescMessage>(
  tenant: string,
  method: DescMethod & { readonly input: Input },
  init: MessageInitShape<Input>,
): OfflineCall {
  const request: Message = create(method.input, init);
  return { caller: tenant === OTTO.tenant ? OTTO : ANNA, method, request };
}

/** Every read of everything that the store holds: each list, each record by its id, each body. */
export async function everyRead(
  store: Store,
  sessions: readonly SessionRef[],
): Promise<OfflineCall[]> {
  const calls: OfflineCall[] = [];
  for (const { tenant } of [ANNA, OTTO]) {
    calls.push(calling(tenant, session.listSessions, {}));
    for (const state of askStates()) calls.push(calling(tenant, approval.listAsks, { state }));
  }
  for (const ref of sessions) {
    calls.push(...listsOf(ref), ...(await recordsOf(store, ref)));
    for (const bodyRef of await store.listBodyRefs(ref, "", ALL)) {
      calls.push(calling(ref.tenant, history.readBody, { sessionId: ref.sessionId, bodyRef }));
    }
  }
  return calls;
}

function askStates(): AskState[] {
  return Object.values(AskState).filter((state): state is AskState => typeof state === "number");
}

function listsOf({ tenant, sessionId }: SessionRef): OfflineCall[] {
  return [
    calling(tenant, session.getSession, { sessionId }),
    calling(tenant, history.listEvents, { sessionId, pageSize: 500 }),
    calling(tenant, history.listToolCalls, { sessionId }),
    calling(tenant, history.listHooks, { sessionId }),
    calling(tenant, history.listAuthorizations, { sessionId }),
    calling(tenant, approval.listReceipts, { sessionId }),
    calling(tenant, replay.getReplay, { sessionId }),
    ...PROJECTED.map((wire) => calling(tenant, replay.projectReplay, { sessionId, wire })),
    ...askStates().map((state) => calling(tenant, approval.listAsks, { sessionId, state })),
  ];
}

async function recordsOf(store: Store, ref: SessionRef): Promise<OfflineCall[]> {
  const calls: OfflineCall[] = [];
  for (const family of Object.values(RecordFamily)) {
    const query = { family, afterFirstSequence: 0n, limit: ALL };
    for (const { recordId } of await store.listRecordPlaces(ref, query)) {
      calls.push(...readsOf(ref, family, recordId));
    }
  }
  return calls;
}

function readsOf(
  { tenant, sessionId }: SessionRef,
  family: RecordFamily,
  id: string,
): OfflineCall[] {
  const ofCall = { sessionId, toolCallId: id };
  switch (family) {
    case RecordFamily.toolCall:
      return [
        calling(tenant, history.getToolCall, ofCall),
        calling(tenant, history.listHooks, ofCall),
        calling(tenant, history.listAuthorizations, ofCall),
        calling(tenant, approval.listReceipts, ofCall),
      ];
    case RecordFamily.hook:
      return [calling(tenant, history.getHook, { sessionId, hookId: id })];
    case RecordFamily.ask:
      return [calling(tenant, approval.getAsk, { sessionId, askId: id })];
    case RecordFamily.receipt:
      return [calling(tenant, approval.getReceipt, { sessionId, receiptId: id })];
    case RecordFamily.authorization:
      return [calling(tenant, history.getAuthorization, { sessionId, authorizationId: id })];
    default:
      return [];
  }
}
