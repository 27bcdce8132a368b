import type { StoreMutant } from "./broken-store.js";
import { reading, writing } from "./broken-store.js";

const RECORDS =
  "the places of a session's records are listed by family, with the chain value of their last event";
const ASKS = "a session's asks are listed by id with the chain value of their last event";
const ROWS =
  "a session's deadlines, bodies, pairings and requests are listed by their keys, page after page";

/** Faults in what a store gives to those who check it. */
export const PLACE_MUTANTS: readonly StoreMutant[] = [
  {
    name: "lists the places of one family alone",
    kills: [RECORDS],
    wrap: reading(() => ({ listRecordPlaces: async () => [] })),
  },
  {
    name: "gives the chain value of a record's first event",
    kills: [RECORDS],
    wrap: reading((store) => ({
      listRecordPlaces: async (session, query) => {
        const places = await store.listRecordPlaces(session, query);
        return Promise.all(
          places.map(async (place) => {
            const first = await store.readEvent(session, place.firstSequence);
            return { ...place, lastChain: first?.chain ?? place.lastChain };
          }),
        );
      },
    })),
  },
  {
    name: "begins every page of asks anew",
    kills: [ASKS],
    wrap: reading((store) => ({
      listAskPlaces: async (session, after, limit) =>
        after === "" ? store.listAskPlaces(session, "", limit) : [],
    })),
  },
  {
    name: "lists bodies from the last to the first",
    kills: [ROWS],
    wrap: reading((store) => ({
      listBodyRefs: async (...page) => (await store.listBodyRefs(...page)).reverse(),
    })),
  },
  {
    name: "lists the requests of another tenant's session of that id",
    kills: [ROWS],
    wrap: reading((store) => ({
      listRequests: async (session, ...page) => [
        ...(await store.listRequests(session, ...page)),
        ...(await store.listRequests({ ...session, tenant: "other" }, ...page)),
      ],
    })),
  },
  {
    name: "gives the highest time of all events as that of the last",
    kills: ["the time of the last event is that of the highest position"],
    wrap: reading((store) => ({
      lastEventTimeMs: async () => {
        const last = await store.lastEventTimeMs();
        return last === undefined ? undefined : Math.max(last, 9000);
      },
    })),
  },
  {
    name: "keeps the head of whoever wrote last",
    kills: ["a session's head never goes back, whatever snapshot comes with it"],
    wrap: writing(async (write, store) => {
      const stored = await store.findSession(write);
      const lags = stored !== undefined && stored.head.sequence > write.session.head.sequence;
      return lags ? { ...write, session: stored } : write;
    }),
  },
];
