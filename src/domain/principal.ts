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
