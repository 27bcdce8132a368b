import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { maySee, type Caller } from "../domain/principal.js";
import { refuse, type Refusal } from "../domain/refusal.js";
import { isIntactSession } from "./checksums.js";
import { refuseDamagedRow } from "./event-codec.js";
import type { SessionRow, Store } from "./store-port.js";

/** The session's row, or one answer for what is not there and what the caller may not know of. */
export async function findVisible(
  store: Store,
  caller: Caller,
  sessionId: string,
): Promise<SessionRow | Refusal> {
  const row = await store.findSession({ tenant: caller.tenant, sessionId });
  if (row === undefined || !maySee(caller, row)) return refuseUnknownSession();
  return isIntactSession(row) ? row : refuseDamagedRow(sessionId);
}

/** Whose sessions a caller's lists are about: one subject's, or all of the tenant. */
export function visibleToSubject({ scope, subject }: Caller): string | undefined {
  return scope === "tenant" ? undefined : subject;
}

/** The same answer for a session that is not there and for one that the caller may not know of. */
export function refuseUnknownSession(): Refusal {
  return refuse(ErrorReason.SESSION_NOT_FOUND, "there is no such session");
}
