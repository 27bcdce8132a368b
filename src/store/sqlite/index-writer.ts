import type { EventRow, NewEvent, RecordKey, SessionRow } from "../../ledger/store-port.js";
import type { WriteStatements } from "./statements.js";

/** A write that no constraint catches and that the port refuses all the same. */
export class WriteRefusedError extends Error {
  override readonly name = "WriteRefusedError";
}

type AskSession = Pick<
  SessionRow,
  "tenant" | "ownerSubject" | "createdBySubject" | "rootSessionId"
>;

/** Keeps the rows by which records, asks and deadlines are found in step with the log. */
export class IndexWriter {
  readonly #statements: Pick<
    WriteStatements,
    "putRecord" | "putAsk" | "putDeadline" | "dropDeadline"
  >;

  constructor(statements: WriteStatements) {
    this.#statements = statements;
  }

  /** `key` stands for the session. Events come in order. Throws WriteRefusedError. */
  put(key: number, event: NewEvent, session: AskSession): void {
    const { row, record, ask, deadline } = event;
    for (const each of event.inherited ?? []) {
      const { firstSequence, ...brought } = each;
      this.#putRecord(key, brought, row, firstSequence);
      this.#putWaiting(key, { ...brought, row, record: brought }, session);
    }
    if (record !== undefined) this.#putRecord(key, record, row);
    this.#putWaiting(key, { row, record, ask, deadline }, session);
  }

  #putRecord(
    key: number,
    record: RecordKey,
    { sequence, chain }: EventRow,
    firstSequence = sequence,
  ): void {
    const { changes } = this.#statements.putRecord.run(
      key,
      record.family,
      firstSequence,
      sequence,
      record.recordId,
      record.toolCallId ?? null,
      chain,
    );
    if (changes === 0) throw new WriteRefusedError("a record changes its family or its call");
  }

  #putWaiting(key: number, event: NewEvent, session: AskSession): void {
    if (event.ask !== undefined) this.#putAsk(key, event, session);
    if (event.deadline !== undefined) this.#putDeadline(key, event);
  }

  #putAsk(key: number, { row, record, ask }: NewEvent, session: AskSession): void {
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
      session.tenant,
      session.ownerSubject,
      session.createdBySubject,
      session.rootSessionId,
      row.chain,
    );
    if (changes === 0) throw new WriteRefusedError("an ask changes its tool or its times");
  }

  #putDeadline(key: number, { row, record, deadline }: NewEvent): void {
    if (record === undefined) throw new WriteRefusedError("a deadline is of no record");
    const { putDeadline, dropDeadline } = this.#statements;
    if (deadline?.timeMs === undefined) dropDeadline.run(key, record.recordId);
    else putDeadline.run(key, record.recordId, deadline.timeMs, row.position, row.timeMs);
  }
}
