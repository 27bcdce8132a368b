import { create, toBinary } from "@bufbuild/protobuf";
import { EventPayloadSchema } from "../../gen/toolmark/storage/v1/storage_pb.js";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { SessionState } from "../../gen/toolmark/v1/session_pb.js";
import { requestChecksum } from "../../src/ledger/checksums.js";
import { RecordFamily, type SessionRows } from "../../src/ledger/store-port.js";
import { flipped, type AlteredSession } from "./altered-session.js";

const isCall = (record: EventRecord["record"]) => record.case === "toolCall";

/** A row that is not as it was written, and where that must be found. */
export const ALTERED_ROWS: readonly {
  readonly rule: string;
  readonly table: string;
  readonly fault: RegExp;
  readonly change: (from: AlteredSession) => Partial<SessionRows>;
}[] = [
  {
    rule: "an event left out",
    table: "events",
    fault: /is missing/,
    change: (from) => from.eventsThrough((rows) => rows.filter(({ sequence }) => sequence !== 3n)),
  },
  {
    rule: "the last event left out",
    table: "events",
    fault: /is missing/,
    change: (from) => from.eventsThrough((rows) => rows.slice(0, -1)),
  },
  {
    rule: "an event under another's sequence",
    table: "events",
    fault: /is missing/,
    change: (from) => from.event(4n, (row) => ({ ...row, sequence: 3n })),
  },
  {
    rule: "a position that does not rise",
    table: "events",
    fault: /no higher position/,
    change: (from) => from.event(4n, (row) => ({ ...row, position: 1n })),
  },
  ...(["kind", "timeMs", "revision", "commitment", "privateCommitment", "chain"] as const).map(
    (column) => ({
      rule: `an event with another ${column}`,
      table: "events",
      fault: /does not follow the chain/,
      change: (from: AlteredSession) =>
        from.event(8n, (row) => ({
          ...row,
          kind: column === "kind" ? "OTHER" : row.kind,
          timeMs: row.timeMs + (column === "timeMs" ? 1 : 0),
          revision: column === "revision" ? (row.revision ?? 0n) + 1n : row.revision,
          commitment: column === "commitment" ? flipped(row.commitment) : row.commitment,
          privateCommitment:
            column === "privateCommitment"
              ? flipped(row.privateCommitment ?? new Uint8Array(32))
              : row.privateCommitment,
          chain: column === "chain" ? flipped(row.chain) : row.chain,
        })),
    }),
  ),
  {
    rule: "a payload with another byte",
    table: "events",
    fault: /does not match its commitment/,
    change: (from) => from.event(4n, (row) => ({ ...row, payload: flipped(row.payload) })),
  },
  {
    rule: "another salt",
    table: "events",
    fault: /does not match its commitment/,
    change: (from) => from.event(4n, (row) => ({ ...row, salt: flipped(row.salt) })),
  },
  {
    rule: "an erased event of a session that is not erased",
    table: "events",
    fault: /no payload or no salt/,
    change: (from) => from.event(4n, (row) => ({ ...row, payload: undefined, salt: undefined })),
  },
  {
    rule: "a payload that is none",
    table: "events",
    fault: /cannot be decoded/,
    change: (from) => from.forged(isCall, () => ({ payload: new Uint8Array([255]) })),
  },
  {
    rule: "a revision that is not the record's",
    table: "events",
    fault: /another revision than its record/,
    change: (from) =>
      from.forged(isCall, (_, { revision = 0n }) => ({ revision: revision + 100n })),
  },
  {
    rule: "a record without its revision",
    table: "events",
    fault: /has no revision/,
    change: (from) => from.forged(isCall, () => ({ revision: undefined })),
  },
  {
    rule: "a revision where none belongs",
    table: "events",
    fault: /does not take/,
    change: (from) =>
      from.forged(
        ({ case: kind }) => kind === "run",
        () => ({ revision: 1n }),
      ),
  },
  {
    rule: "a record of another origin",
    table: "events",
    fault: /another origin/,
    change: (from) =>
      from.forged(isCall, ({ record }) => {
        if (record.case === "toolCall" && record.value.origin !== undefined) {
          record.value.origin.sessionId = "ses_other";
        }
        return { payload: payloadOf(record) };
      }),
  },
  {
    rule: "events that contradict each other",
    table: "events",
    fault: /contradicts the events before it/,
    change: (from) =>
      from.forged(
        (record) => record.case === "hook",
        ({ record }) => {
          if (record.case === "hook") record.value.revision = 0n;
          return { revision: 0n, payload: payloadOf(record) };
        },
      ),
  },
  {
    rule: "a body under another's reference",
    table: "events",
    fault: /another's digest/,
    change: (from) =>
      from.forged(isCall, ({ record }) => {
        if (record.case === "toolCall" && record.value.proposed !== undefined) {
          record.value.proposed.sha256 = new Uint8Array(32);
        }
        return { payload: payloadOf(record) };
      }),
  },
  {
    rule: "a session's row that does not match its checksum",
    table: "sessions",
    fault: /checksum/,
    change: (from) => ({
      findSession: async (session) => {
        const row = await from.store.findSession(session);
        return row && { ...row, ownerSubject: "eve" };
      },
    }),
  },
  {
    rule: "a head behind the last event",
    table: "sessions",
    fault: /another end/,
    change: (from) => from.head({ sequence: 3n }),
  },
  {
    rule: "a head with another position",
    table: "sessions",
    fault: /another end/,
    change: (from) => from.head({ position: 3n }),
  },
  {
    rule: "a head ahead of the last event",
    table: "events",
    fault: /is missing/,
    change: (from) => from.head({ sequence: 3000n }),
  },
  {
    rule: "a head with another chain value",
    table: "sessions",
    fault: /another chain value/,
    change: (from) => from.head({ chain: new Uint8Array(32) }),
  },
  {
    rule: "a lower high-water",
    table: "sessions",
    fault: /high-water/,
    change: (from) => from.head({ highWater: 1n }),
  },
  {
    rule: "a higher high-water",
    table: "sessions",
    fault: /high-water/,
    change: (from) => from.head({ highWater: 1n << 32n }),
  },
  {
    rule: "another sequence of the session's record",
    table: "sessions",
    fault: /sequence of the session's record/,
    change: (from) => from.head({ sessionSequence: 2n }),
  },
  {
    rule: "another active run",
    table: "sessions",
    fault: /active run/,
    change: (from) => from.head({ activeRunId: undefined }),
  },
  {
    rule: "another time of the last update",
    table: "sessions",
    fault: /time of the last update/,
    change: (from) => from.head({ updateTimeMs: 1 }),
  },
  {
    rule: "another owner",
    table: "sessions",
    fault: /another owner/,
    change: (from) => from.sessionRow((row) => ({ ...row, ownerSubject: "eve" })),
  },
  {
    rule: "another creator",
    table: "sessions",
    fault: /another creator/,
    change: (from) => from.sessionRow((row) => ({ ...row, createdBySubject: "eve" })),
  },
  {
    rule: "another state",
    table: "sessions",
    fault: /another state/,
    change: (from) => from.sessionRow((row) => ({ ...row, state: SessionState.ENDED })),
  },
  {
    rule: "another position of creation",
    table: "sessions",
    fault: /position of creation/,
    change: (from) => from.sessionRow((row) => ({ ...row, createPosition: 1n })),
  },
  ...(["state", "chain", "highWater", "digest"] as const).map((column) => ({
    rule: `a snapshot with another ${column}`,
    table: "snapshots",
    fault: /digest/,
    change: (from: AlteredSession) =>
      from.firstOf("readSnapshots", (row) => ({
        ...row,
        [column]: column === "highWater" ? row.highWater + 1n : flipped(row[column]),
      })),
  })),
  {
    rule: "a snapshot ahead of the head",
    table: "snapshots",
    fault: /ahead of the last event/,
    change: (from) => from.firstOf("readSnapshots", (row) => ({ ...row, sequence: 3000n })),
  },
  ...(["family", "toolCallId", "firstSequence", "lastSequence", "lastChain"] as const).map(
    (column) => ({
      rule: `a place in the index with another ${column}`,
      table: "records",
      fault: /another|is missing/,
      change: (from: AlteredSession) =>
        from.listing("listRecordPlaces", (row) =>
          row.family !== RecordFamily.ask
            ? row
            : {
                ...row,
                family: column === "family" ? RecordFamily.hook : row.family,
                toolCallId: column === "toolCallId" ? "tc_other" : row.toolCallId,
                firstSequence: row.firstSequence + (column === "firstSequence" ? 1n : 0n),
                lastSequence: row.lastSequence + (column === "lastSequence" ? 1n : 0n),
                lastChain: column === "lastChain" ? flipped(row.lastChain) : row.lastChain,
              },
        ),
    }),
  ),
  {
    rule: "a record left out of the index",
    table: "records",
    fault: /is missing/,
    change: (from) =>
      from.listing("listRecordPlaces", (row) =>
        row.family === RecordFamily.toolCall ? undefined : row,
      ),
  },
  {
    rule: "a record of the index that no event has",
    table: "records",
    fault: /no event has/,
    change: (from) => from.firstOf("listRecordPlaces", (row) => ({ ...row, recordId: "tc_other" })),
  },
  ...(
    [
      ["toolCallId", "tc_other"],
      ["toolName", "other"],
      ["state", AskState.ANSWERED],
      ["createTimeMs", 1],
      ["expireTimeMs", 1],
      ["position", 1n],
      ["lastPosition", 1n],
      ["tenant", "other"],
      ["ownerSubject", "eve"],
      ["createdBySubject", "eve"],
      ["lastChain", new Uint8Array(32)],
    ] as const
  ).map(([column, value]) => ({
    rule: `an ask of the inbox with another ${column}`,
    table: "asks",
    fault: /another/,
    change: (from: AlteredSession) =>
      from.firstOf("listAskPlaces", (row) => ({ ...row, [column]: value })),
  })),
  {
    rule: "an ask left out of the inbox",
    table: "asks",
    fault: /is missing/,
    change: (from) => from.firstOf("listAskPlaces", () => undefined),
  },
  {
    rule: "an ask of the inbox that no event has",
    table: "asks",
    fault: /no event has/,
    change: (from) => from.firstOf("listAskPlaces", (row) => ({ ...row, askId: "ask_other" })),
  },
  ...(
    [
      ["timeMs", 1],
      ["position", 1n],
    ] as const
  ).map(([column, value]) => ({
    rule: `a deadline with another ${column}`,
    table: "deadlines",
    fault: /another/,
    change: (from: AlteredSession) =>
      from.firstOf("listDeadlines", (row) => ({ ...row, [column]: value })),
  })),
  {
    rule: "a deadline left out",
    table: "deadlines",
    fault: /is missing/,
    change: (from) => from.firstOf("listDeadlines", () => undefined),
  },
  {
    rule: "a deadline of what does not wait",
    table: "deadlines",
    fault: /does not wait/,
    change: (from) => from.firstOf("listDeadlines", (row) => ({ ...row, recordId: "ask_other" })),
  },
  ...(["data", "sha256", "sizeBytes", "isJsonObject"] as const).map((column) => ({
    rule: `a body with another ${column}`,
    table: "bodies",
    fault: /reference, digest or size|JSON object/,
    change: (from: AlteredSession): Partial<SessionRows> => ({
      readBody: async (session, ref) => {
        const body = await from.store.readBody(session, ref);
        if (body === undefined) return undefined;
        return {
          ...body,
          data: column === "data" ? flipped(body.data) : body.data,
          sha256: column === "sha256" ? flipped(body.sha256) : body.sha256,
          sizeBytes: body.sizeBytes + (column === "sizeBytes" ? 1 : 0),
          isJsonObject: body.isJsonObject !== (column === "isJsonObject"),
        };
      },
    }),
  })),
  {
    rule: "a body left out",
    table: "bodies",
    fault: /is missing/,
    change: (from) => ({
      listBodyRefs: async (...args) => (await from.store.listBodyRefs(...args)).slice(1),
    }),
  },
  ...(["salt", "pairing"] as const).map((column) => ({
    rule: `a pairing with another ${column}`,
    table: "pairings",
    fault: /private commitment/,
    change: (from: AlteredSession) =>
      from.firstOf("listPairings", (row) => ({ ...row, [column]: flipped(row[column]) })),
  })),
  {
    rule: "an erased pairing of a session that is not erased",
    table: "pairings",
    fault: /no bytes or no salt/,
    change: (from) =>
      from.firstOf("listPairings", (row) => ({ ...row, salt: undefined, pairing: undefined })),
  },
  {
    rule: "a pairing of another event",
    table: "pairings",
    fault: /another event/,
    change: (from) => from.firstOf("listPairings", (row) => ({ ...row, sequence: 1n })),
  },
  {
    rule: "a pairing without an event",
    table: "pairings",
    fault: /without one/,
    change: (from) => from.firstOf("listPairings", (row) => ({ ...row, recordId: "tc_other" })),
  },
  {
    rule: "a pairing left out",
    table: "pairings",
    fault: /is missing/,
    change: (from) => from.firstOf("listPairings", () => undefined),
  },
  ...(["digest", "outcome", "checksum"] as const).map((column) => ({
    rule: `a request with another ${column}`,
    table: "requests",
    fault: /checksum/,
    change: (from: AlteredSession) =>
      from.firstOf("listRequests", (row) => ({ ...row, [column]: flipped(row[column]) })),
  })),
  ...(
    [
      [new Uint8Array([10, 3, 10, 1, 100]), "not there"],
      [new Uint8Array([255]), "cannot be decoded"],
    ] as const
  ).map(([outcome, fault]) => ({
    rule: `a request with an outcome that is ${fault}`,
    table: "requests",
    fault: new RegExp(fault),
    change: (from: AlteredSession) =>
      from.firstOf("listRequests", (row) => {
        const changed = { ...row, outcome };
        return { ...changed, checksum: requestChecksum(from.session, changed) };
      }),
  })),
  {
    rule: "an index that leads in circles",
    table: "requests",
    fault: /out of order/,
    change: (from) => ({
      listRequests: (session, _after, limit) => from.store.listRequests(session, "", limit),
    }),
  },
];

function payloadOf(record: EventRecord["record"]): Uint8Array {
  return toBinary(EventPayloadSchema, create(EventPayloadSchema, { record: { record } }));
}
