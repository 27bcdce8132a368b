import type {
  BodyRow,
  CommandWrite,
  CommitResult,
  NewEvent,
  RecordKey,
  SessionRow,
  SnapshotRow,
} from "../../ledger/store-port.js";
import { InvariantError } from "../../domain/invariant.js";
import type { SessionKeys } from "./session-keys.js";
import { sqliteCode, toError, type SqliteDatabase } from "./sqlite-database.js";
import type { ReadStatements, WriteStatements } from "./statements.js";

const COMMITTED: CommitResult = { outcome: "committed" };

/** A write that no constraint catches and that the port refuses all the same. */
class WriteRefusedError extends Error {
  override readonly name = "WriteRefusedError";
}

/** Commits groups of commands, each group in one transaction. Synchronous: no transaction is open between calls. */
export class SqliteWriter {
  readonly #database: SqliteDatabase;
  readonly #keys: SessionKeys;
  readonly #statements: WriteStatements;
  readonly #findBody: ReadStatements["findBody"];
  /** Sessions of the group and the index of their last write. */
  readonly #heads = new Map<number, number>();

  constructor(
    database: SqliteDatabase,
    keys: SessionKeys,
    writes: WriteStatements,
    reads: ReadStatements,
  ) {
    this.#database = database;
    this.#keys = keys;
    this.#statements = writes;
    this.#findBody = reads.findBody;
  }

  commit(writes: readonly CommandWrite[]): CommitResult {
    if (writes.length === 0) return COMMITTED;
    let index: number | undefined;
    try {
      this.#statements.begin.run();
      for (index = 0; index < writes.length; index += 1) this.#write(writes, index);
      for (const [key, last] of this.#heads) {
        index = last;
        const write = writes[last];
        if (write !== undefined) this.#updateHead(key, write.session);
      }
      index = undefined;
      this.#statements.commit.run();
      return COMMITTED;
    } catch (error) {
      return failure(this.#rollBack(toError(error)), index);
    } finally {
      this.#heads.clear();
    }
  }

  #write(writes: readonly CommandWrite[], index: number): void {
    const write = writes[index];
    if (write === undefined) return;
    const key = this.#sessionKey(write);
    const before = this.#heads.get(key);
    if (before !== undefined) requireSameSession(writes[before]?.session, write.session);
    this.#heads.set(key, index);
    for (const event of write.events) this.#insertEvent(key, event, write);
    for (const body of write.bodies) this.#insertBody(key, body);
    const { insertPairing, insertRequest, insertCreation } = this.#statements;
    for (const row of write.pairings) {
      insertPairing.run(key, row.toolCallId, row.sequence, row.salt ?? null, row.pairing ?? null);
    }
    const { request, creation, snapshot } = write;
    if (request !== undefined) {
      insertRequest.run(key, request.requestId, request.digest, request.outcome);
    }
    if (creation !== undefined) {
      const { tenant, subject, requestId, digest, sessionId } = creation;
      insertCreation.run(tenant, subject, requestId, digest, sessionId);
    }
    if (snapshot !== undefined) this.#putSnapshot(key, snapshot);
  }

  #sessionKey(write: CommandWrite): number {
    const known = this.#keys.find(write);
    if (known !== undefined) return known;
    const { ownerSubject, createdBySubject, state, createPosition, head } = write.session;
    const { lastInsertRowid } = this.#statements.insertSession.run(
      write.tenant,
      write.sessionId,
      ownerSubject,
      createdBySubject,
      state,
      createPosition,
      head.sequence,
      head.position,
      head.highWater,
      head.chain,
      head.sessionSequence,
      head.activeRunId ?? null,
      head.updateTimeMs,
    );
    const key = Number(lastInsertRowid);
    this.#keys.remember(write.tenant, write.sessionId, key);
    return key;
  }

  #updateHead(key: number, session: SessionRow): void {
    const { head } = session;
    const { changes } = this.#statements.updateHead.run(
      session.state,
      head.sequence,
      head.position,
      head.highWater,
      head.chain,
      head.sessionSequence,
      head.activeRunId ?? null,
      head.updateTimeMs,
      key,
      session.ownerSubject,
      session.createdBySubject,
      session.createPosition,
    );
    if (changes === 0) throw sessionChanged();
  }

  #insertEvent(key: number, event: NewEvent, write: CommandWrite): void {
    const { row, record, ask, deadline } = event;
    this.#statements.insertEvent.run(
      row.position,
      key,
      row.sequence,
      row.revision ?? null,
      row.kind,
      row.timeMs,
      row.commitment,
      row.privateCommitment ?? null,
      row.chain,
      row.salt ?? null,
      row.payload ?? null,
    );
    if (record !== undefined) this.#putRecord(key, record, row.sequence);
    if (ask !== undefined) this.#putAsk(key, event, write);
    if (deadline !== undefined) this.#putDeadline(key, event);
  }

  #putRecord(key: number, record: RecordKey, sequence: bigint): void {
    const { changes } = this.#statements.putRecord.run(
      key,
      record.family,
      sequence,
      sequence,
      record.recordId,
      record.toolCallId ?? null,
    );
    if (changes === 0) throw new WriteRefusedError("a record changes its family or its call");
  }

  #putAsk(key: number, { row, record, ask }: NewEvent, write: CommandWrite): void {
    if (record?.toolCallId === undefined || ask === undefined) {
      throw new WriteRefusedError("an ask is no record of a call");
    }
    const { changes } = this.#statements.putAsk.run(
      row.position,
      key,
      record.recordId,
      record.toolCallId,
      ask.toolName,
      ask.state,
      ask.createTimeMs,
      ask.expireTimeMs ?? null,
      row.position,
      write.tenant,
      write.session.ownerSubject,
      write.session.createdBySubject,
    );
    if (changes === 0) throw new WriteRefusedError("an ask changes its tool or its times");
  }

  #putDeadline(key: number, { row, record, deadline }: NewEvent): void {
    if (record === undefined) throw new WriteRefusedError("a deadline is of no record");
    const { putDeadline, dropDeadline } = this.#statements;
    if (deadline?.timeMs === undefined) dropDeadline.run(key, record.recordId);
    else putDeadline.run(key, record.recordId, deadline.timeMs, row.position);
  }

  #insertBody(key: number, body: BodyRow): void {
    const { changes } = this.#statements.insertBody.run(
      key,
      body.bodyRef,
      body.sha256,
      body.sizeBytes,
      body.isJsonObject ? 1 : 0,
      body.data,
    );
    if (changes > 0) return;
    const stored = this.#findBody.get(key, body.bodyRef);
    if (stored !== undefined && Buffer.compare(stored.sha256, body.sha256) === 0) return;
    throw new WriteRefusedError("a body reference names other bytes already");
  }

  #putSnapshot(key: number, snapshot: SnapshotRow): void {
    const { sequence, highWater, chain, state, digest } = snapshot;
    this.#statements.putSnapshot.run(key, sequence, highWater, chain, state, digest);
    this.#statements.dropOldSnapshots.run(key, key);
  }

  /** If even this fails, reads could see rows that were never committed: then the process must stop. */
  #rollBack(cause: Error): Error {
    this.#keys.forgetAll();
    try {
      if (this.#database.inTransaction) this.#statements.rollback.run();
      return cause;
    } catch (error) {
      this.#database.close();
      const causes = new AggregateError(
        [cause, error],
        "a transaction can neither end nor be undone",
      );
      throw new InvariantError(causes.message, { cause: causes });
    }
  }
}

function sessionChanged(): WriteRefusedError {
  return new WriteRefusedError("a session changes its owner, creator or place of creation");
}

function requireSameSession(before: SessionRow | undefined, after: SessionRow): void {
  if (
    before?.ownerSubject !== after.ownerSubject ||
    before.createdBySubject !== after.createdBySubject ||
    before.createPosition !== after.createPosition
  ) {
    throw sessionChanged();
  }
}

/** `index` is that of the write being written, absent while the transaction as a whole began or ended. */
function failure(cause: Error, index: number | undefined): CommitResult {
  const code = sqliteCode(cause);
  if (index !== undefined && isRefusal(code)) {
    return { outcome: "command_failed", index, cause };
  }
  return { outcome: "failed", reason: failureReason(code), cause };
}

/** Without a code it is this file's own refusal, or a value that cannot be bound. */
function isRefusal(code: string | undefined): boolean {
  return code === undefined || /^SQLITE_(CONSTRAINT|MISMATCH|TOOBIG|RANGE)(_|$)/.test(code);
}

function failureReason(code: string | undefined): "full" | "busy" | "other" {
  if (code === "SQLITE_FULL") return "full";
  return code !== undefined && /^SQLITE_(BUSY|LOCKED)/.test(code) ? "busy" : "other";
}
