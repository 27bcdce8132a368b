import type { SessionRef } from "../../ledger/store-port.js";
import type { SqliteStatement } from "./sqlite-database.js";

const REMEMBERED_MAX = 20_000;

/** The small integers that stand for sessions in every table, remembered so that commits need not look them up. */
export class SessionKeys {
  readonly #find: SqliteStatement<{ session: number }>;
  readonly #byTenant = new Map<string, Map<string, number>>();
  #count = 0;

  constructor(find: SqliteStatement<{ session: number }>) {
    this.#find = find;
  }

  find({ tenant, sessionId }: SessionRef): number | undefined {
    const remembered = this.#byTenant.get(tenant)?.get(sessionId);
    if (remembered !== undefined) return remembered;
    const found = this.#find.get(tenant, sessionId)?.session;
    if (found !== undefined) this.remember(tenant, sessionId, found);
    return found;
  }

  remember(tenant: string, sessionId: string, key: number): void {
    if (this.#count >= REMEMBERED_MAX) this.forgetAll();
    let keys = this.#byTenant.get(tenant);
    if (keys === undefined) this.#byTenant.set(tenant, (keys = new Map<string, number>()));
    keys.set(sessionId, key);
    this.#count += 1;
  }

  /** A key given in a transaction that was rolled back is free again. */
  forgetAll(): void {
    this.#byTenant.clear();
    this.#count = 0;
  }
}
