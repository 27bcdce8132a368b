import { toBinary } from "@bufbuild/protobuf";
import { EventRecordSchema, type EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { Replies } from "../../src/ledger/batch-context.js";
import type { EndedSession } from "../../src/ledger/session-ending.js";

/** What a request about sessions is answered with. */
export type Reply = Replies | EndedSession;

type RecordCase = Exclude<EventRecord["record"]["case"], undefined>;
type RecordOf<Case extends RecordCase> = Extract<EventRecord["record"], { case: Case }>["value"];

/** The records of one kind in a reply. */
export function recordsOf<Case extends RecordCase>(reply: Replies, wanted: Case): RecordOf<Case>[] {
  return reply
    .flat()
    .flatMap(({ record }) => (record.case === wanted ? [record.value as RecordOf<Case>] : []));
}

/** The last of them. */
export function recordOf<Case extends RecordCase>(
  reply: Replies,
  wanted: Case,
): RecordOf<Case> | undefined {
  return recordsOf(reply, wanted).at(-1);
}

/** Equal exactly for equal replies. */
export function replyText(reply: Reply): string {
  const replies = "replies" in reply ? reply.replies : reply;
  const encoded = replies.map((records) =>
    records.map((record) => Buffer.from(toBinary(EventRecordSchema, record)).toString("base64")),
  );
  return textOf([encoded, "replies" in reply ? reply.descendants : []]);
}

/** Equal exactly for equal values. */
export function textOf(value: unknown): string {
  return JSON.stringify(value, (_key, part: unknown) =>
    typeof part === "bigint" ? `${part}n` : part,
  );
}
