import type {
  BodyCopy,
  BodyRow,
  CommandWrite,
  CommitResult,
  NewEvent,
  SessionRow,
  SnapshotRow,
} from "../../ledger/store-port.js";
import { InvariantError } from "../../domain/invariant.js";
import { IndexWriter, WriteRefusedError } from "./index-writer.js";
import { commitFailure, isFinal, type CommitFault, type FailedCommit } from "./commit-failure.js";
import { IdleCheckpoint } from "./idle-checkpoint.js";
import type { OpenedDatabase } from "./open.js";
import type { SessionKeys } from "./session-keys.js";
import { toError } from "./sqlite-database.js";
import type { ReadStatements, WriteStatements } from "./statements.js";
import { hasRoom } from "./write-room.js";

const COMMITTED: CommitResult = { outcome: "committed" };

/**
 * Commits groups of commands, each group in one transaction. Synchronous: no transaction is open between calls. Once a
 * commit was "lost" or "damaged", every further one is answered so, and the file is not touched.
 */
export class SqliteWriter {
  readonly #opened: OpenedDatabase;
  readonly #keys: SessionKeys;
  readonly #statements: WriteStatements;
  readonly #index: IndexWriter;
  readonly #findBody: ReadStatements["findBody"];
  readonly #idle: IdleCheckpoint;
  /** Sessions of the group and the index of their last write. */
  readonly #heads = new Map<number, number>();
  #ended: FailedCommit | undefined;

  constructor(
    opened: OpenedDatabase,
    keys: SessionKeys,
    writes: WriteStatements,
    reads: ReadStatements,
  ) {
    this.#opened = opened;
    this.#keys = keys;
    this.#statements = writes;
    this.#index = new IndexWriter(writes);
    this.#findBody = reads.findBody;
    this.#idle = new IdleCheckpoint({
      database: opened.database,
      logPath: `${opened.path}-wal`,
      busyTimeoutMs: opened.busyTimeoutMs,
      onFault: (error) => {
        this.#endIfFinal(this.#failure(error, undefined));
      },
    });
  }

  commit(writes: readonly CommandWrite[]): CommitResult {
    if (writes.length === 0) return COMMITTED;
    if (this.#ended !== undefined) return this.#ended;
    const result = this.#tryCommit(writes);
    if (result.outcome !== "committed") return this.#endIfFinal(result);
    const gone = this.#opened.guard.gone();
    if (gone !== undefined) {
      return this.#endIfFinal({ outcome: "failed", reason: "lost", cause: gone });
    }
    const position = lastPosition(writes);
    if (position !== undefined) this.#opened.mark.advance(position);
    this.#idle.committed();
    return COMMITTED;
  }

  /**
   * Releases the file. After a lost commit it stays open until the process ends: closing it would write on, and so keep
   * the next start from beginning with what is on disk. Throws StoreFilesGoneError.
   */
  close(): void {
    this.#idle.stop();
    if (this.#ended?.reason !== "lost") this.#opened.close();
  }

  #tryCommit(writes: readonly CommandWrite[]): CommitResult {
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
      return this.#failure(this.#rollBack(toError(error)), index);
    } finally {
      this.#heads.clear();
    }
  }

  #failure(cause: Error, index: number | undefined): CommitFault {
    return commitFailure(cause, index, () => hasRoom(this.#opened.path));
  }

  #endIfFinal(result: CommitFault): CommitFault {
    if (result.outcome === "failed" && isFinal(result)) {
      this.#ended = result;
      this.#idle.stop();
    }
    return result;
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
    for (const copy of write.bodyCopies ?? []) this.#copyBody(key, copy);
    const { insertPairing, insertRequest, insertCreation } = this.#statements;
    for (const row of write.pairings) {
      insertPairing.run(key, row.recordId, row.sequence, row.salt ?? null, row.pairing ?? null);
    }
    const { request, creation, snapshot } = write;
    if (request !== undefined) {
      insertRequest.run(key, request.requestId, request.digest, request.outcome, request.checksum);
    }
    if (creation !== undefined) {
      const { tenant, subject, requestId, digest, sessionId, checksum } = creation;
      insertCreation.run(tenant, subject, requestId, digest, sessionId, checksum);
    }
    if (snapshot !== undefined) this.#putSnapshot(key, snapshot);
  }

  #sessionKey(write: CommandWrite): number {
    const known = this.#keys.find(write);
    if (known !== undefined) return known;
    const { ownerSubject, createdBySubject, parentSessionId, rootSessionId } = write.session;
    const { state, createPosition, head } = write.session;
    const { lastInsertRowid } = this.#statements.insertSession.run(
      write.tenant,
      write.sessionId,
      ownerSubject,
      createdBySubject,
      parentSessionId ?? null,
      rootSessionId,
      state,
      createPosition,
      head.sequence,
      head.position,
      head.highWater,
      head.chain,
      head.sessionSequence,
      head.activeRunId ?? null,
      head.updateTimeMs,
      write.session.checksum,
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
      session.checksum,
      key,
      session.ownerSubject,
      session.createdBySubject,
      session.createPosition,
      session.parentSessionId ?? null,
      session.rootSessionId,
      head.sequence,
    );
    if (changes === 0) throw sessionChanged();
  }

  #insertEvent(key: number, event: NewEvent, write: CommandWrite): void {
    const { row } = event;
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
    this.#index.put(key, event, write.session);
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

  #copyBody(session: number, { from, bodyRef, newBodyRef }: BodyCopy): void {
    const source = this.#keys.find(from);
    const names = { session, from: source ?? null, bodyRef, newBodyRef };
    const { changes } = this.#statements.copyBody.run(names);
    if (changes === 0) throw new WriteRefusedError("a body to be copied is not there");
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
      if (this.#opened.database.inTransaction) this.#statements.rollback.run();
      return cause;
    } catch (error) {
      this.#idle.stop();
      this.#opened.close();
      const causes = new AggregateError(
        [cause, error],
        "a transaction can neither end nor be undone",
      );
      throw new InvariantError(causes.message, { cause: causes });
    }
  }
}

function sessionChanged(): WriteRefusedError {
  return new WriteRefusedError(
    "a session changes its owner, creator, parent, root or place of creation, or its head goes back",
  );
}

function requireSameSession(before: SessionRow | undefined, after: SessionRow): void {
  if (
    before?.ownerSubject !== after.ownerSubject ||
    before.createdBySubject !== after.createdBySubject ||
    before.parentSessionId !== after.parentSessionId ||
    before.rootSessionId !== after.rootSessionId ||
    before.createPosition !== after.createPosition
  ) {
    throw sessionChanged();
  }
}

/** Of the last event of a group; undefined if it has none. */
function lastPosition(writes: readonly CommandWrite[]): bigint | undefined {
  return writes.findLast(({ events }) => events.length > 0)?.events.at(-1)?.row.position;
}
