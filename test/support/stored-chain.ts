import BetterSqlite from "better-sqlite3";
import { CHAIN_START, chainAfter } from "../../src/domain/chain.js";

interface ChainRow {
  readonly session_id: string;
  readonly sequence: bigint;
  readonly position: bigint;
  readonly revision: bigint | null;
  readonly kind: string;
  readonly time_ms: bigint;
  readonly commitment: Buffer;
  readonly private_commitment: Buffer | null;
  readonly chain: Buffer;
}

const READ_CHAIN = `
  SELECT session_id, e.sequence, e.position, revision, kind, time_ms,
    commitment, private_commitment, e.chain
  FROM events e JOIN sessions s USING (session)
  WHERE session_id = ? ORDER BY e.sequence`;

/**
 * The chain values of a session in a database that nobody has open, by sequence, each computed anew
 * from the columns that it covers. Throws if a stored one differs.
 */
export function recomputedChain(path: string, sessionId: string): Map<bigint, string> {
  const database = new BetterSqlite(path, { readonly: true });
  try {
    const rows = database.prepare<[string], ChainRow>(READ_CHAIN).safeIntegers().all(sessionId);
    let chain = CHAIN_START;
    return new Map(
      rows.map((row) => {
        chain = chainOf(chain, row);
        if (!row.chain.equals(chain)) throw new Error(`chain broken at ${row.sequence}`);
        return [row.sequence, row.chain.toString("hex")];
      }),
    );
  } finally {
    database.close();
  }
}

function chainOf(before: Uint8Array, row: ChainRow): Uint8Array {
  return chainAfter(before, {
    sessionId: row.session_id,
    sequence: row.sequence,
    position: row.position,
    revision: row.revision ?? undefined,
    kind: row.kind,
    timeMs: Number(row.time_ms),
    commitment: row.commitment,
    privateCommitment: row.private_commitment ?? undefined,
  });
}
