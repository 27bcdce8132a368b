import type { DueRecord, Store } from "../../src/ledger/store-port.js";
import { overriding, reading, type StoreMutant, writing, writingEvents } from "./broken-store.js";

const LARGEST = 2n ** 63n - 1n;
const EVERY_DEADLINE = {
  untilMs: 1e15,
  untilPosition: undefined,
  after: undefined,
  limit: 1000,
} as const;

async function waits(store: Store, sessionId: string, recordId: string): Promise<boolean> {
  const all = await store.listDue(EVERY_DEADLINE);
  return all.some((due) => due.session.sessionId === sessionId && due.recordId === recordId);
}

/** One for each record id, the last in order. */
function byRecordAlone(due: readonly DueRecord[]): DueRecord[] {
  return [...new Map(due.map((each) => [each.recordId, each])).values()];
}

/** Knows the deadlines that it wrote itself, and no other. */
function deadlinesInMemory(store: Store): Store {
  const written = new Set<bigint>();
  return overriding(store, {
    commit: (writes) => {
      for (const { events } of writes) for (const { row } of events) written.add(row.position);
      return store.commit(writes);
    },
    listDue: async (query) =>
      (await store.listDue(query)).filter(({ position }) => written.has(position)),
  });
}

export const DEADLINE_MUTANTS: readonly StoreMutant[] = [
  {
    name: "takes no deadline for one at 0",
    kills: ["without a deadline nothing is due and none comes next"],
    wrap: reading((store) => ({
      nextDeadlineMs: async () => (await store.nextDeadlineMs()) ?? 0,
    })),
  },
  {
    name: "gives a record as due a moment late",
    kills: ["a record is due from its deadline on, with its session and the position that set it"],
    wrap: reading((store) => ({
      listDue: (query) => store.listDue({ ...query, untilMs: query.untilMs - 1 }),
    })),
  },
  {
    name: "keeps deadlines by record alone",
    kills: ["a record is due from its deadline on, with its session and the position that set it"],
    wrap: reading((store) => ({
      listDue: async (query) => byRecordAlone(await store.listDue(query)),
    })),
  },
  {
    name: "gives the last deadline as the next",
    kills: [
      "a record is due from its deadline on, with its session and the position that set it",
      "a record that waits no longer is not due, until it waits again",
    ],
    wrap: reading((store) => ({
      nextDeadlineMs: async () => (await store.listDue(EVERY_DEADLINE)).at(-1)?.timeMs,
    })),
  },
  {
    name: "keeps a record's first deadline",
    kills: ["a later deadline of a record replaces the earlier one"],
    wrap: writingEvents(async (event, { sessionId }, store) => {
      const id = event.record?.recordId ?? "";
      return (await waits(store, sessionId, id)) ? { ...event, deadline: undefined } : event;
    }),
  },
  {
    name: "never clears a deadline",
    kills: [
      "a record that waits no longer is not due, until it waits again",
      "deadlines are there after a restart, and cleared ones are not",
    ],
    wrap: writingEvents((event) =>
      event.deadline?.timeMs === undefined ? { ...event, deadline: undefined } : event,
    ),
  },
  {
    name: "clears a deadline that an event says nothing of",
    kills: ["an event that says nothing of a deadline leaves the record's deadline as it is"],
    wrap: writingEvents((event) =>
      event.record === undefined
        ? event
        : { ...event, deadline: event.deadline ?? { timeMs: undefined } },
    ),
  },
  {
    name: "writes a group's deadlines after it cleared them",
    kills: ["a deadline set and cleared in one group leaves none"],
    wrap: writing((write) => {
      const isSet = (recordId: string | undefined) =>
        write.events.some((event) => event.record?.recordId === recordId && event.deadline?.timeMs);
      const events = write.events.map((event) =>
        event.deadline?.timeMs === undefined && isSet(event.record?.recordId)
          ? { ...event, deadline: undefined }
          : event,
      );
      return { ...write, events };
    }),
  },
  {
    name: "pages by time and repeats records of equal times",
    kills: ["due records come by deadline, then position, page after page, equal times included"],
    wrap: reading((store) => ({
      listDue: (query) =>
        store.listDue({ ...query, after: query.after && { ...query.after, position: 0n } }),
    })),
  },
  {
    name: "pages by time and loses records of equal times",
    kills: ["due records come by deadline, then position, page after page, equal times included"],
    wrap: reading((store) => ({
      listDue: (query) =>
        store.listDue({ ...query, after: query.after && { ...query.after, position: LARGEST } }),
    })),
  },
  {
    name: "lists due records by position",
    kills: ["due records come by deadline, then position, page after page, equal times included"],
    wrap: reading((store) => ({
      listDue: async (query) =>
        (await store.listDue(query)).sort((left, right) => Number(left.position - right.position)),
    })),
  },
  {
    name: "ignores until which position deadlines were set",
    kills: ["deadlines set after a position are left out if it is given"],
    wrap: reading((store) => ({
      listDue: (query) => store.listDue({ ...query, untilPosition: undefined }),
    })),
  },
  {
    name: "leaves out the deadline set at the position given",
    kills: ["deadlines set after a position are left out if it is given"],
    wrap: reading((store) => ({
      listDue: ({ untilPosition, ...query }) =>
        store.listDue({ ...query, untilPosition: untilPosition && untilPosition - 1n }),
    })),
  },
  {
    name: "drops a deadline of no record",
    kills: ["a deadline of no record is refused"],
    wrap: writingEvents((event) =>
      event.record === undefined ? { ...event, deadline: undefined } : event,
    ),
  },
  {
    name: "keeps deadlines in memory alone",
    kills: ["deadlines are there after a restart, and cleared ones are not"],
    wrap: deadlinesInMemory,
  },
  {
    name: "finds what is due after a time instead of what was set",
    kills: ["deadlines that were set after a time are found, the latest set first"],
    wrap: reading((store) => ({
      listDueSetAfter: async (timeMs, limit) =>
        (await store.listDue(EVERY_DEADLINE)).filter((due) => due.timeMs > timeMs).slice(0, limit),
    })),
  },
];
