import { createHash } from "node:crypto";
import BetterSqlite from "better-sqlite3";

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
const CHAIN_START = Buffer.alloc(32);

/**
 * The chain values of a session in a database that nobody has open, by sequence, each computed anew
 * as docs/storage.md says. Throws if a stored one differs.
 */
export function recomputedChain(path: string, sessionId: string): Map<bigint, string> {
  const database = new BetterSqlite(path, { readonly: true });
  try {
    const rows = database.prepare<[string], ChainRow>(READ_CHAIN).safeIntegers().all(sessionId);
    let chain: Buffer = CHAIN_START;
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

function chainOf(before: Buffer, row: ChainRow): Buffer {
  const hash = createHash("sha256");
  const fields = [
    before,
    Buffer.from(row.session_id),
    ...[row.sequence, row.position, row.revision].map(bytesOf),
    Buffer.from(row.kind),
    bytesOf(row.time_ms),
    row.commitment,
    row.private_commitment ?? Buffer.alloc(0),
  ];
  for (const field of fields) {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(field.length);
    hash.update(length).update(field);
  }
  return hash.digest();
}

function bytesOf(number: bigint | null): Buffer {
  if (number === null) return Buffer.alloc(0);
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(number);
  return bytes;
}
