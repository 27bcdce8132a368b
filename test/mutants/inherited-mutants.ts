import type { CommandWrite, InheritedRecord, Store } from "../../src/ledger/store-port.js";
import { overriding, reading, type StoreMutant, writing, writingEvents } from "./broken-store.js";

const PLACED =
  "records that an event brings besides its own are placed before every event, in their order";
const LISTED =
  "records that an event brought are listed page after page and by call, with the others";
const COPIED = "a body is copied to another session under a reference of its own";
const MISSING =
  "a copy of a body that the named session does not have is refused with all of its batch";
const UNDONE =
  "what an event brings and what is copied with it is undone if a later write is refused";
const WAITING =
  "an ask and a deadline that an event brings are found as if they had events, and change with a later one";

/** Commits each write alone and goes on until one is refused. */
function oneByOne(store: Store): Store {
  return overriding(store, {
    commit: async (writes) => {
      for (const [index, write] of writes.entries()) {
        const result = await store.commit([write]);
        if (result.outcome === "command_failed") return { ...result, index };
        if (result.outcome !== "committed") return result;
      }
      return { outcome: "committed" };
    },
  });
}

async function withKnownCopies(write: CommandWrite, store: Store): Promise<CommandWrite> {
  const bodyCopies = [];
  for (const copy of write.bodyCopies ?? []) {
    if ((await store.readBody(copy.from, copy.bodyRef)) !== undefined) bodyCopies.push(copy);
  }
  return { ...write, bodyCopies };
}

/** The same records, each in the place of another. */
export function turned(inherited: readonly InheritedRecord[]): InheritedRecord[] {
  const places = inherited.map(({ firstSequence }) => firstSequence);
  return inherited
    .toReversed()
    .map((record, index) => ({ ...record, firstSequence: places[index] ?? 0n }));
}

/** Stores that break a rule of what a fork copies. */
export const INHERITED_MUTANTS: readonly StoreMutant[] = [
  {
    name: "drops the records that an event brings",
    kills: [PLACED, LISTED, UNDONE],
    wrap: writingEvents((event) => ({ ...event, inherited: undefined })),
  },
  {
    name: "keeps the asks that an event brings out of the inbox",
    kills: [WAITING],
    wrap: writingEvents((event) => ({
      ...event,
      inherited: event.inherited?.map((record) => ({ ...record, ask: undefined })),
    })),
  },
  {
    name: "forgets until when the records that an event brings wait",
    kills: [WAITING],
    wrap: writingEvents((event) => ({
      ...event,
      inherited: event.inherited?.map((record) => ({ ...record, deadline: undefined })),
    })),
  },
  {
    name: "turns the order of the records that an event brings",
    kills: [PLACED, LISTED],
    wrap: writingEvents((event) => ({ ...event, inherited: turned(event.inherited ?? []) })),
  },
  {
    name: "begins each list at the first event",
    kills: [PLACED, LISTED],
    wrap: reading((store) => ({
      listRecords: (session, query) => {
        const { afterFirstSequence: after } = query;
        return store.listRecords(session, {
          ...query,
          afterFirstSequence: after < 0n ? 0n : after,
        });
      },
    })),
  },
  {
    name: "copies no body",
    kills: [COPIED, MISSING],
    wrap: writing((write) => ({ ...write, bodyCopies: undefined })),
  },
  {
    name: "skips a copy of a body that is not there",
    kills: [COPIED, MISSING],
    wrap: writing(withKnownCopies),
  },
  {
    name: "finds the body to be copied by its session's id alone",
    kills: [MISSING],
    wrap: writing((write) => ({
      ...write,
      bodyCopies: write.bodyCopies?.map((copy) => ({
        ...copy,
        from: { ...copy.from, tenant: write.tenant },
      })),
    })),
  },
  {
    name: "keeps what a batch copied before a write of it was refused",
    kills: [MISSING, UNDONE],
    wrap: oneByOne,
  },
];
