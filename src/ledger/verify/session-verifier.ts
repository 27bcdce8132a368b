import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import type { Checkpoint } from "../../../gen/toolmark/v1/session_pb.js";
import { maySee, type Caller } from "../../domain/principal.js";
import { refuse, type Refusal } from "../../domain/refusal.js";
import type { Waiting } from "../batch-context.js";
import { highWaterFloor } from "../load-session.js";
import type { Store } from "../store-port.js";
import type { Finding, LogPoint } from "./verdict.js";
import { refuseUnknownSession } from "../visibility.js";
import { verifySession } from "./verify-session.js";

/** Which session is to be verified, and what it must go through. */
export interface Verifiable {
  readonly sessionId: string;
  readonly checkpoint?: Checkpoint | undefined;
}

/** Verifies sessions of a store that is being served, for callers who may see them. */
export class SessionVerifier {
  readonly #store: Store;
  readonly #pause: () => Promise<void>;

  /** `pause` gives others their turn, since reads and checks are synchronous. */
  constructor(store: Store, pause: () => Promise<void>) {
    this.#store = store;
    this.#pause = pause;
  }

  /** The head of the verified log, or the first row that is not as it was written. */
  async verify(
    caller: Caller,
    { sessionId, checkpoint }: Verifiable,
    waiting: Waiting,
  ): Promise<LogPoint | Refusal> {
    if (checkpoint !== undefined && checkpoint.sessionId !== sessionId) return refuseOtherSession();
    const session = { tenant: caller.tenant, sessionId };
    const row = await this.#store.findSession(session);
    if (row === undefined || !maySee(caller, row)) return refuseUnknownSession();
    const verdict = await verifySession(this.#store, session, {
      checkpoints: checkpoint === undefined ? [] : [checkpoint],
      generationFloor: highWaterFloor(this.#store),
      pause: this.#pause,
      isAborted: () => waiting.aborted !== undefined,
    });
    switch (verdict?.outcome) {
      case "sound":
        return verdict.head;
      case "damaged":
        return refuseFinding(verdict.finding);
      case "checkpoint_missed":
        return refuseMissed(verdict.sequence, verdict.head.sequence);
      case "aborted":
        return waiting.aborted ?? refuse(ErrorReason.CALLER_GONE, "nobody waits any more");
      case undefined:
        return refuseUnknownSession();
    }
  }
}

function refuseOtherSession(): Refusal {
  const fields = { field: "checkpoint.session_id" };
  const message = "checkpoint.session_id is not that of the session to verify";
  return refuse(ErrorReason.REFERENCE_MISMATCH, message, fields);
}

function refuseFinding({ table, key, sequence, fault }: Finding): Refusal {
  return refuse(ErrorReason.DATA_DAMAGED, `${table}: ${key} ${fault}`, {
    ...{ table, key, fault },
    ...(sequence === undefined ? {} : { sequence: sequence.toString() }),
  });
}

function refuseMissed(sequence: bigint, headSequence: bigint): Refusal {
  return refuse(
    ErrorReason.CHECKPOINT_MISMATCH,
    `the log of ${headSequence} events does not go through the checkpoint at ${sequence}`,
    { sequence: sequence.toString(), head_sequence: headSequence.toString() },
  );
}
