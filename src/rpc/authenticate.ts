import type { Principal } from "../domain/principal.js";
import type { Refusal } from "../domain/refusal.js";

/** What the transport knows of a caller before it is verified. */
export interface UnverifiedCaller {
  /** Address of the other end of the connection, with its port where known. */
  readonly peer: string;
  /** A header of the request by its lower-case name. */
  header(name: string): string | undefined;
}

/** Verifies a caller: the one seam for every kind of credential. */
export type Authenticate = (caller: UnverifiedCaller) => Principal | Refusal;

const LOOPBACK_PRINCIPAL: Principal = Object.freeze({
  tenant: "default",
  subject: "loopback",
  roles: Object.freeze({
    engine: "tenant",
    approver: "tenant",
    reader: "tenant",
    admin: "tenant",
  } as const),
});

/** Trusts whoever reaches the server: right only while it listens on loopback addresses alone. */
export const authenticateLoopback: Authenticate = () => LOOPBACK_PRINCIPAL;
