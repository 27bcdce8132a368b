/** What a caller may do. */
export type Role = "engine" | "approver" | "reader" | "admin";

/** `own`: sessions that the caller owns or created. `tenant`: every session of the tenant. */
export type RoleScope = "own" | "tenant";

/** A verified caller. Comes from the credential alone, never from a field of a request. */
export interface Principal {
  readonly tenant: string;
  readonly subject: string;
  readonly roles: Readonly<Partial<Record<Role, RoleScope>>>;
}

/** A caller as the ledger needs it: who, and how far the roles that allow the method reach. */
export interface Caller {
  readonly tenant: string;
  readonly subject: string;
  readonly scope: RoleScope;
}

/** Who may know of a session. */
export interface SessionOwnership {
  readonly tenant: string;
  readonly ownerSubject: string;
  readonly createdBySubject: string;
}

/** Whether a caller may know of a session. Decided before anything tells whether it exists. */
export function maySee(caller: Caller, session: SessionOwnership): boolean {
  if (caller.tenant !== session.tenant) return false;
  return (
    caller.scope === "tenant" ||
    caller.subject === session.ownerSubject ||
    caller.subject === session.createdBySubject
  );
}
