import type { SessionState } from "../domain/session-state.js";
import type { PreparedAdoption } from "./prepare-adoption.js";
import type { SessionRef, SessionRow } from "./store-port.js";

/** A session that takes commands, as the write path holds it. */
export interface LiveSession {
  readonly kind: "live";
  readonly row: SessionRow;
  readonly state: SessionState;
  readonly eventsSinceSnapshot: number;
  /** Set if the session is only mounted: its first write brings it in. */
  readonly mounted?: PreparedAdoption | undefined;
}

/** A session whose last revision cannot be established: it can be read, never guessed for. */
export interface ReadOnlySession {
  readonly kind: "read-only";
  readonly row: SessionRow;
  readonly cause: string;
  /** Set if nothing of it is stored: it is mounted and cannot be read. */
  readonly isMounted?: true;
}

export type LoadedSession = LiveSession | ReadOnlySession;

/** One string for a session across tenants. */
export function sessionKey({ tenant, sessionId }: SessionRef): string {
  return `${tenant.length}:${tenant}${sessionId}`;
}
