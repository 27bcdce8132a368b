import { INHERITED_MUTANTS } from "./inherited-mutants.js";
import { PLACE_MUTANTS } from "./place-mutants.js";
import type {
  CommandWrite,
  CommitResult,
  EventRow,
  NewEvent,
  RequestRow,
  SessionRef,
  Store,
} from "../../src/ledger/store-port.js";
import { A, bytes, findRequest } from "../conformance/store-fixture.js";
import { ASK_MUTANTS } from "./ask-mutants.js";
import { DEADLINE_MUTANTS } from "./deadline-mutants.js";
import { TREE_MUTANTS } from "./tree-mutants.js";
import {
  overriding,
  reading,
  type StoreMutant,
  type WriteChange,
  writing,
} from "./broken-store.js";

const LARGEST = 2n ** 63n - 1n;
const UNLIMITED = 1 << 30;
const REFUSED: CommitResult = {
  outcome: "command_failed",
  index: 0,
  cause: new Error("refused by the mutant"),
};

/** Breaks the rows of events as they are written. */
function writingRows(change: (row: EventRow) => EventRow): StoreMutant["wrap"] {
  return writing((write) => ({
    ...write,
    events: write.events.map((event) => ({ ...event, row: change(event.row) })),
  }));
}

/** Gives each event whose number is taken the next free one, as an upsert or a counter of its own would. */
function renumbering(
  field: "position" | "sequence",
  last: (store: Store, session: SessionRef) => Promise<bigint>,
): StoreMutant["wrap"] {
  return (store) =>
    overriding(store, {
      commit: async (writes) => {
        const highest = new Map<string, bigint>();
        const changed: CommandWrite[] = [];
        for (const write of writes) {
          const scope = field === "position" ? "" : `${write.tenant} ${write.sessionId}`;
          let before = highest.get(scope) ?? (await last(store, write));
          const events: NewEvent[] = write.events.map((event) => {
            before = event.row[field] > before ? event.row[field] : before + 1n;
            return { ...event, row: { ...event.row, [field]: before } };
          });
          highest.set(scope, before);
          changed.push({ ...write, events });
        }
        return store.commit(changed);
      },
    });
}

async function commitOneByOne(
  store: Store,
  writes: readonly CommandWrite[],
): Promise<CommitResult> {
  for (const [index, write] of writes.entries()) {
    const result = await store.commit([write]);
    if (result.outcome === "command_failed") return { ...result, index };
  }
  return { outcome: "committed" };
}

function requestsInMemory(store: Store): Store {
  const requests = new Map<string, RequestRow>();
  return overriding(store, {
    commit: async (writes) => {
      const known = writes.some(({ request }) => request && requests.has(request.requestId));
      if (known) return REFUSED;
      const result = await store.commit(writes.map((write) => ({ ...write, request: undefined })));
      for (const { request } of writes) if (request) requests.set(request.requestId, request);
      return result;
    },
    findRequests: async (asked) => asked.map(({ requestId }) => requests.get(requestId)),
  });
}

function rollbackInMemory(store: Store): Store {
  const left: CommandWrite[] = [];
  return overriding(store, {
    commit: async (writes) => {
      const result = await store.commit(writes);
      if (result.outcome === "command_failed") left.push(...writes.slice(0, result.index));
      return result;
    },
    close: async () => {
      await store.commit(left);
      await store.close();
    },
  });
}

const EVENT_MUTANTS: readonly StoreMutant[] = [
  {
    name: "drops the private commitment",
    kills: ["an event is read back to the byte in every column"],
    wrap: writingRows((row) => ({ ...row, privateCommitment: undefined })),
  },
  {
    name: "takes empty bytes for absent ones",
    kills: ["empty bytes are bytes, not absence"],
    wrap: reading((store) => ({
      readEvent: async (session, sequence) => {
        const row = await store.readEvent(session, sequence);
        return row?.payload?.length === 0 ? { ...row, payload: undefined } : row;
      },
    })),
  },
  {
    name: "keeps the buffer behind a view",
    kills: ["bytes that are part of a larger buffer are stored without the rest"],
    wrap: writingRows((row) => ({
      ...row,
      payload: row.payload && new Uint8Array(row.payload.buffer),
    })),
  },
  {
    name: "passes integers through doubles",
    kills: ["positions, sequences and revisions survive beyond 2^53, up to 2^63 - 1"],
    wrap: writingRows((row) => ({ ...row, sequence: BigInt(Number(row.sequence)) })),
  },
  {
    name: "cuts integers to 64 bits",
    kills: ["an integer of more than 64 bits is refused"],
    wrap: writingRows((row) => ({
      ...row,
      revision: (row.revision ?? 0n) > LARGEST ? LARGEST : row.revision,
    })),
  },
  {
    name: "includes the sequence given",
    kills: ["events come in order, after the sequence given, at most as many as the limit"],
    wrap: reading((store) => ({
      readEvents: (session, after, limit, maxBytes) =>
        store.readEvents(session, after - 1n, limit, maxBytes),
    })),
  },
  {
    name: "ignores the limit",
    kills: ["events come in order, after the sequence given, at most as many as the limit"],
    wrap: reading((store) => ({
      readEvents: (session, after, _limit, maxBytes) =>
        store.readEvents(session, after, UNLIMITED, maxBytes),
    })),
  },
  {
    name: "gives the newest first",
    kills: ["events come in order, after the sequence given, at most as many as the limit"],
    wrap: reading((store) => ({
      readEvents: async (...query) => (await store.readEvents(...query)).reverse(),
    })),
  },
  {
    name: "ignores the byte limit",
    kills: [
      "a page ends with the event that brings the payloads to the byte limit",
      "an event larger than the byte limit is still given",
    ],
    wrap: reading((store) => ({
      readEvents: (session, after, limit) => store.readEvents(session, after, limit, UNLIMITED),
    })),
  },
  {
    name: "leaves out the event that passes the byte limit",
    kills: [
      "a page ends with the event that brings the payloads to the byte limit",
      "an event larger than the byte limit is still given",
    ],
    wrap: reading((store) => ({
      readEvents: async (session, after, limit, maxBytes) => {
        let sizeBytes = 0;
        const rows = await store.readEvents(session, after, limit, maxBytes);
        return rows.filter((row) => (sizeBytes += row.payload?.length ?? 0) <= maxBytes);
      },
    })),
  },
  {
    name: "finds sessions by id alone",
    kills: [
      "a session's events are its own, also where another tenant uses its id",
      "a body is known in its session alone",
    ],
    wrap: writing((write) => ({ ...write, tenant: "acme" })),
  },
  {
    name: "throws for what it does not know",
    kills: ["what is not there is absent, not an error"],
    wrap: reading((store) => ({
      readEvent: async (session, sequence) => {
        const row = await store.readEvent(session, sequence);
        if (row === undefined) throw new Error("no such event");
        return row;
      },
    })),
  },
  {
    name: "has a last position before the first event",
    kills: ["the last position is 0 in an empty store, then the highest committed one"],
    wrap: reading((store) => ({
      lastPosition: async () => (await store.lastPosition()) || 1n,
    })),
  },
  {
    name: "doubles quotes as for a statement's text",
    kills: ["text is data: quotes, semicolons and any script are kept"],
    wrap: writingRows((row) => ({ ...row, kind: row.kind.replaceAll("'", "''") })),
  },
  {
    name: "gives a taken position's event another one",
    kills: [
      "a position is taken once in the whole store",
      "a position is higher than every earlier one",
    ],
    wrap: renumbering("position", (store) => store.lastPosition()),
  },
  {
    name: "gives a taken sequence's event another one",
    kills: [
      "a sequence is taken once in a session",
      "commands of a group see the ones before them",
    ],
    wrap: renumbering(
      "sequence",
      async (store, session) => (await store.findSession(session))?.head.sequence ?? 0n,
    ),
  },
  {
    name: "does not keep revisions unique",
    kills: [
      "a revision is taken once in a session",
      "events without a revision never collide, and sessions count apart",
    ],
    wrap: writingRows((row) => ({ ...row, revision: undefined })),
  },
  {
    name: "completes half an erasure",
    kills: ["payload and salt are there together or not at all"],
    wrap: writingRows((row) => ({
      ...row,
      payload: row.payload ?? bytes(""),
      salt: row.salt ?? bytes(""),
    })),
  },
];

const COMMIT_MUTANTS: readonly StoreMutant[] = [
  {
    name: "commits each command on its own",
    kills: [
      "a refused command takes its whole group with it, and is named by its index",
      "what was refused can be written again without the command in the way",
      "a read sees a group whole or not at all",
      "nothing of a refused group is there after a restart",
      "a refused group opens and settles no ask",
      "a refused group sets, moves and clears no deadline",
    ],
    wrap: reading((store) => ({ commit: (writes) => commitOneByOne(store, writes) })),
  },
  {
    name: "names the first command",
    kills: [
      "a refused command takes its whole group with it, and is named by its index",
      "commands of a group see the ones before them",
    ],
    wrap: reading((store) => ({
      commit: async (writes) => {
        const result = await store.commit(writes);
        return result.outcome === "command_failed" ? { ...result, index: 0 } : result;
      },
    })),
  },
  {
    name: "fails without work",
    kills: ["an empty group is committed and changes nothing"],
    wrap: reading((store) => ({
      commit: async (writes) => (writes.length === 0 ? REFUSED : store.commit(writes)),
    })),
  },
];

const SESSION_MUTANTS: readonly StoreMutant[] = [
  {
    name: "keeps the head of the creation",
    kills: [
      "a session's row is read back as last written",
      "of several commands of a session in one group the last one's row stays",
    ],
    wrap: (store) => {
      const first = new Map<string, CommandWrite["session"]>();
      const change: WriteChange = (write) => {
        const session = first.get(write.sessionId) ?? write.session;
        first.set(write.sessionId, session);
        return { ...write, session };
      };
      return writing(change)(store);
    },
  },
  {
    name: "takes the head from the events",
    kills: ["a command without events still writes the session's row"],
    wrap: writing(async (write, store) => {
      if (write.events.length > 0) return write;
      return { ...write, session: (await store.findSession(write)) ?? write.session };
    }),
  },
  {
    name: "ignores another owner instead of refusing it",
    kills: ["a session keeps its owner, its creator and its place in the order of creation"],
    wrap: writing(async (write, store) => {
      const known = (await store.findSession(write)) ?? write.session;
      const { state, head } = write.session;
      return { ...write, session: { ...known, state, head } };
    }),
  },
  {
    name: "lists sessions by id",
    kills: ["sessions of one tenant are listed in order of creation, page after page"],
    wrap: reading((store) => ({
      listSessions: async (query) =>
        (await store.listSessions(query)).sort((left, right) =>
          left.sessionId < right.sessionId ? -1 : 1,
        ),
    })),
  },
  {
    name: "repeats the last session of the page before",
    kills: [
      "sessions of one tenant are listed in order of creation, page after page",
      "a subject's list has what it owns or created, each once, in order of creation",
    ],
    wrap: reading((store) => ({
      listSessions: (query) =>
        store.listSessions({ ...query, afterCreatePosition: query.afterCreatePosition - 1n }),
    })),
  },
  {
    name: "shows a subject only what it owns",
    kills: ["a subject's list has what it owns or created, each once, in order of creation"],
    wrap: reading((store) => ({
      listSessions: (query) =>
        store.listSessions({
          ...query,
          ownerSubject: query.ownerSubject ?? query.visibleToSubject,
        }),
    })),
  },
  {
    name: "ignores the filter by state",
    kills: ["filters by owner and state narrow a list, together with what is visible"],
    wrap: reading((store) => ({
      listSessions: (query) => store.listSessions({ ...query, state: undefined }),
    })),
  },
  {
    name: "lets the filter by owner widen what is visible",
    kills: ["filters by owner and state narrow a list, together with what is visible"],
    wrap: reading((store) => ({
      listSessions: (query) =>
        store.listSessions(
          query.ownerSubject === undefined ? query : { ...query, visibleToSubject: undefined },
        ),
    })),
  },
];

const RECORD_MUTANTS: readonly StoreMutant[] = [
  {
    name: "leaves a record at its first event",
    kills: ["a record is found with its last event and the sequence of its first"],
    wrap: reading((store) => ({
      findRecord: async (session, recordId) => {
        const record = await store.findRecord(session, recordId);
        const event = record && (await store.readEvent(session, record.firstSequence));
        return record && event && { ...record, event };
      },
    })),
  },
  {
    name: "lists records by their last event",
    kills: ["records are listed by family in order of their first event, page after page"],
    wrap: reading((store) => ({
      listRecords: async (session, query) =>
        (await store.listRecords(session, query)).sort((left, right) =>
          Number(left.lastSequence - right.lastSequence),
        ),
    })),
  },
  {
    name: "ignores the call",
    kills: ["a call's records are those that name it"],
    wrap: reading((store) => ({
      listRecords: (session, query) =>
        store.listRecords(session, { ...query, toolCallId: undefined }),
    })),
  },
  {
    name: "keeps a record's family and call silently",
    kills: ["a record keeps its family and its call"],
    wrap: writing(async (write, store) => {
      const events: NewEvent[] = [];
      for (const event of write.events) {
        const { record } = event;
        const known = record && (await store.findRecord(write, record.recordId));
        const kept = known && {
          recordId: known.recordId,
          family: known.family,
          toolCallId: known.toolCallId,
        };
        events.push({ ...event, record: kept ?? record });
      }
      return { ...write, events };
    }),
  },
  {
    name: "indexes records by id alone",
    kills: ["sessions that share a record's id have records of their own"],
    wrap: reading((store) => ({
      findRecord: (_session, recordId) => store.findRecord(A, recordId),
    })),
  },
];

const ROW_MUTANTS: readonly StoreMutant[] = [
  {
    name: "parses bodies and writes them again",
    kills: ["a body is read back to the byte"],
    wrap: writing((write) => ({
      ...write,
      bodies: write.bodies.map((body) => {
        if (!body.isJsonObject) return body;
        const parsed: unknown = JSON.parse(new TextDecoder().decode(body.data));
        return { ...body, data: bytes(JSON.stringify(parsed)) };
      }),
    })),
  },
  {
    name: "keeps the first bytes of a reference silently",
    kills: ["an equal body may come again; a reference never changes its bytes"],
    wrap: writing(async (write, store) => {
      const known = await Promise.all(
        write.bodies.map(({ bodyRef }) => store.readBody(write, bodyRef)),
      );
      return { ...write, bodies: write.bodies.filter((_, index) => known[index] === undefined) };
    }),
  },
  {
    name: "refuses a body that comes again",
    kills: ["an equal body may come again; a reference never changes its bytes"],
    wrap: reading((store) => ({
      commit: async (writes) => {
        const refs = writes.flatMap(({ bodies }) => bodies.map(({ bodyRef }) => bodyRef));
        return new Set(refs).size < refs.length ? REFUSED : store.commit(writes);
      },
    })),
  },
  {
    name: "shares bodies between sessions",
    kills: ["a body is known in its session alone"],
    wrap: reading((store) => ({ readBody: (_session, bodyRef) => store.readBody(A, bodyRef) })),
  },
  {
    name: "gives pairings nobody named",
    kills: ["pairings of the named calls are given, each once, in the order of the names"],
    wrap: reading((store) => ({
      readPairings: (session, ids) => store.readPairings(session, [...ids, "tc_1"]),
    })),
  },
  {
    name: "keeps the first pairing of a call silently",
    kills: ["a call's pairing is written once"],
    wrap: writing(async (write, store) => {
      const ids = write.pairings.map(({ recordId }) => recordId);
      const known = await store.readPairings(write, ids);
      return known.length > 0 ? { ...write, pairings: [] } : write;
    }),
  },
  {
    name: "remembers a request again",
    kills: ["a request is remembered once in its session"],
    wrap: writing(async ({ request, ...write }, store) => {
      const known = request && (await findRequest(store, write, request.requestId));
      return { ...write, request: known === undefined ? request : undefined };
    }),
  },
  {
    name: "finds creations by request id alone",
    kills: ["a creation is remembered once for its tenant and principal"],
    wrap: reading((store) => ({
      findCreation: (_tenant, _subject, requestId) =>
        store.findCreation("acme", "creator", requestId),
    })),
  },
  {
    name: "gives the oldest snapshot first",
    kills: ["the last two snapshots are kept, newest first"],
    wrap: reading((store) => ({
      readSnapshots: async (session) => (await store.readSnapshots(session)).reverse(),
    })),
  },
  {
    name: "keeps one snapshot",
    kills: ["the last two snapshots are kept, newest first"],
    wrap: reading((store) => ({
      readSnapshots: async (session) => (await store.readSnapshots(session)).slice(0, 1),
    })),
  },
  {
    name: "keeps the first snapshot of a sequence",
    kills: ["a snapshot of the same sequence replaces the one before"],
    wrap: writing(async ({ snapshot, ...write }, store) => {
      const kept = await store.readSnapshots(write);
      const known = kept.some(({ sequence }) => sequence === snapshot?.sequence);
      return { ...write, snapshot: known ? undefined : snapshot };
    }),
  },
  {
    name: "keeps requests in memory alone",
    kills: [
      "everything committed is there after a restart",
      "after a restart the same things are refused as before it",
    ],
    wrap: requestsInMemory,
  },
  {
    name: "rolls back in memory alone",
    kills: ["nothing of a refused group is there after a restart"],
    wrap: rollbackInMemory,
  },
];

export const STORE_MUTANTS: readonly StoreMutant[] = [
  ...EVENT_MUTANTS,
  ...COMMIT_MUTANTS,
  ...SESSION_MUTANTS,
  ...RECORD_MUTANTS,
  ...ROW_MUTANTS,
  ...ASK_MUTANTS,
  ...DEADLINE_MUTANTS,
  ...PLACE_MUTANTS,
  ...TREE_MUTANTS,
  ...INHERITED_MUTANTS,
];
