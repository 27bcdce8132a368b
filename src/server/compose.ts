import { CallService } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { EvidenceService } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { ReplayService } from "../../gen/toolmark/engine/v1/replay_service_pb.js";
import { RunService } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { ApprovalService } from "../../gen/toolmark/v1/approval_service_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { InfoService } from "../../gen/toolmark/v1/info_service_pb.js";
import { SessionService } from "../../gen/toolmark/v1/session_service_pb.js";
import type { Limits } from "../domain/limits.js";
import type { AskReader } from "../ledger/ask-reader.js";
import { BodyWriter } from "../ledger/body-writer.js";
import { SessionEnding } from "../ledger/session-ending.js";
import type { Ledger } from "../ledger/ledger.js";
import type { Reader } from "../ledger/reader.js";
import { ReplayReader } from "../ledger/replay-reader.js";
import { SessionCompaction } from "../ledger/session-compaction.js";
import { SessionFork } from "../ledger/session-fork.js";
import type { ReviewDetails } from "../ledger/review-details.js";
import type { Store } from "../ledger/store-port.js";
import { SessionImport } from "../ledger/session-import.js";
import { SessionVerifier } from "../ledger/verify/session-verifier.js";
import { readSources } from "../legacy/read-sources.js";
import { bindService, type Binding, type BoundService } from "../rpc/call.js";
import { approvalHandlers } from "../rpc/handlers/approval.js";
import { callHandlers, evidenceHandlers, runHandlers } from "../rpc/handlers/engine.js";
import { historyHandlers } from "../rpc/handlers/history.js";
import { infoHandlers } from "../rpc/handlers/info.js";
import { replayHandlers } from "../rpc/handlers/replay.js";
import { sessionHandlers } from "../rpc/handlers/session.js";
import type { AskWatch } from "../watch/ask-watch.js";
import type { AwaitAsk } from "../watch/await-ask.js";
import type { EventWatch } from "../watch/event-watch.js";
import { nextTurn } from "./next-turn.js";
import { mintId, nowMs, randomBytes } from "./system.js";

export interface Parts {
  readonly version: string;
  readonly limits: Limits;
  /** What can be read: what is stored, and older sessions that are mounted. */
  readonly store: Store;
  /** Only what is stored. Default: the store has nothing else. */
  readonly stored?: Store;
  readonly ledger: Ledger;
  readonly reader: Reader;
  readonly asks: AskReader;
  readonly watch: AskWatch;
  readonly events: EventWatch;
  readonly awaiting: AwaitAsk;
  readonly details: ReviewDetails;
}

/** Every service that this server offers, each bound to what it works with. */
export function composeServices(parts: Parts): Binding {
  const { version, limits, store, ledger, reader, stored = store } = parts;
  const services: BoundService[] = [
    bindService(
      SessionService,
      sessionHandlers({
        ...{ ledger, reader },
        ending: new SessionEnding(ledger, store, limits),
        fork: new SessionFork({ ledger, store, limits, mintId, pause: nextTurn }),
        compaction: new SessionCompaction(ledger, store, nextTurn),
        importing: new SessionImport({
          ...{ ledger, store: stored, limits, readSources, randomBytes, nowMs },
        }),
        verifier: new SessionVerifier(stored, nextTurn),
      }),
    ),
    bindService(HistoryService, historyHandlers(parts)),
    bindService(ApprovalService, approvalHandlers(parts)),
    bindService(RunService, runHandlers(ledger)),
    bindService(CallService, callHandlers(ledger, parts.awaiting)),
    bindService(
      ReplayService,
      replayHandlers({ ledger, replays: new ReplayReader({ store, pause: nextTurn }) }),
    ),
    bindService(
      EvidenceService,
      evidenceHandlers(ledger, new BodyWriter({ uploads: ledger.uploads, store, limits })),
    ),
  ];
  const methods = (): string[] => answeredMethods(services);
  services.push(bindService(InfoService, infoHandlers({ version, limits, methods })));
  return services;
}

function answeredMethods(services: Binding): string[] {
  const methods = services.flatMap((service) => service.methods);
  return methods.filter(({ implemented }) => implemented).map(({ name }) => name);
}
