import BetterSqlite from "better-sqlite3";
import type { CommandWrite } from "../src/ledger/store-port.js";
import { prepareWrites, type WriteStatements } from "../src/store/sqlite/statements.js";

/**
 * Milliseconds that a bare loop takes to insert the rows of writes into an empty store, so many writes in each commit,
 * as durable as the store's own.
 */
export function timeBareInserts(
  writes: readonly CommandWrite[],
  path: string,
  groupWrites: number,
): number {
  const database = new BetterSqlite(path).defaultSafeIntegers();
  try {
    database.pragma("synchronous = FULL");
    const statements = prepareWrites(database);
    const startMs = performance.now();
    for (let start = 0; start < writes.length; start += groupWrites) {
      statements.begin.run();
      for (const write of writes.slice(start, start + groupWrites)) insert(statements, write);
      statements.commit.run();
    }
    return performance.now() - startMs;
  } finally {
    database.close();
  }
}

function insert(statements: WriteStatements, write: CommandWrite): void {
  const { session, events, bodies, pairings, request } = write;
  const { head } = session;
  const { lastInsertRowid: key } = statements.insertSession.run(
    ...[write.tenant, write.sessionId, session.ownerSubject, session.createdBySubject],
    ...[session.parentSessionId ?? null, session.rootSessionId, session.state],
    ...[session.createPosition, head.sequence, head.position, head.highWater, head.chain],
    ...[head.sessionSequence, head.activeRunId ?? null, head.updateTimeMs, session.checksum],
  );
  for (const { row, record, inherited = [] } of events) {
    statements.insertEvent.run(
      ...[row.position, key, row.sequence, row.revision ?? null, row.kind, row.timeMs],
      ...[row.commitment, row.privateCommitment ?? null, row.chain],
      ...[row.salt ?? null, row.payload ?? null],
    );
    const own = record === undefined ? [] : [{ ...record, firstSequence: row.sequence }];
    for (const { family, firstSequence, recordId, toolCallId } of [...inherited, ...own]) {
      statements.putRecord.run(
        ...[key, family, firstSequence, row.sequence, recordId, toolCallId ?? null, row.chain],
      );
    }
  }
  for (const { bodyRef, sha256, sizeBytes, isJsonObject, data } of bodies) {
    statements.insertBody.run(key, bodyRef, sha256, sizeBytes, isJsonObject ? 1 : 0, data);
  }
  for (const { recordId, sequence, salt, pairing } of pairings) {
    statements.insertPairing.run(key, recordId, sequence, salt ?? null, pairing ?? null);
  }
  if (request === undefined) return;
  const { requestId, digest, outcome, checksum } = request;
  statements.insertRequest.run(key, requestId, digest, outcome, checksum);
}
