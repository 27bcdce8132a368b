import { isDeepStrictEqual } from "node:util";
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Conversation, type RevisedRecord } from "../../src/client/index.js";
import { keyOf } from "../../src/client/revised-records.js";
import { attachmentOf } from "../../src/domain/attachment.js";
import {
  adoptedLog,
  ARCHIVED_TEXT,
  disordered,
  forkedLogs,
  isOfTheLog,
  oldModels,
  readRecords,
  take,
  type BroughtLog,
} from "../support/brought-sessions.js";
import { propertyOptions, seededTitle } from "../support/seed.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";

const ORDERS = 20;
const TIMEOUT_MS = 600_000;

type MakeConversation = (sessionId: string) => Conversation;
const lawful: MakeConversation = (sessionId) => new Conversation(sessionId);

let service: TestService;
let clients: Clients;

beforeAll(async () => {
  service = await startTestService();
  clients = service.clients();
});

afterAll(async () => {
  await service.stop();
});

/** Any order and repetition ends in what the order of the log ends in. */
function checkConvergence(
  log: BroughtLog,
  runs: { readonly numRuns: number; readonly seed: number },
  make = lawful,
): void {
  const inOrder = make(log.sessionId);
  take(inOrder, log.given);
  const expected = inOrder.view();
  const property = fc.property(disordered(log), (given) => {
    const conversation = make(log.sessionId);
    take(conversation, given);
    const got = conversation.view();
    if (!isDeepStrictEqual(got, expected)) expect(got).toEqual(expected);
  });
  fc.assert(property, runs);
}

/** What the events and base states alone came to is what the lists have: nothing more, and no contradiction. */
async function checkAgainstLists(from: Clients, { sessionId, given }: BroughtLog): Promise<void> {
  const conversation = lawful(sessionId);
  take(conversation, given.filter(isOfTheLog));
  const lists = await readRecords(from, sessionId);
  const cards = conversation.cards().map(({ call }) => call);
  const keyed = (calls: typeof cards) =>
    new Map(calls.map(({ toolCallId, state, revision }) => [toolCallId, [state, revision]]));
  expect(keyed(cards)).toEqual(keyed([...lists.toolCalls]));
  const evidence = conversation.evidence();
  // An older system may have published one review twice: the second stands alone, under an id of its own.
  expect(evidence.filter(({ conflict }) => conflict === "contradiction")).toEqual([]);
  expect(evidence.filter(({ attachment }) => attachment === "PENDING")).toEqual([]);
  const shown = evidence.map(({ record }) => record);
  // Lists of asks leave out those that a fork copied.
  const isListed = (record: RevisedRecord): boolean =>
    record.$typeName !== "toolmark.v1.Ask" || record.origin?.sessionId === sessionId;
  const { hooks, asks, receipts, authorizations } = lists;
  const listed = [...hooks, ...asks, ...receipts, ...authorizations];
  expect(shown.filter(isListed).map(keyOf).sort()).toEqual(listed.map(keyOf).sort());
}

describe("a conversation", () => {
  test(
    seededTitle("P9: over what a fork copied, any order ends in the same state"),
    async () => {
      for (const isArchived of [false, true]) {
        for (const log of await forkedLogs(clients, isArchived)) {
          await checkAgainstLists(clients, log);
          checkConvergence(log, propertyOptions(1_000));
        }
      }
    },
    TIMEOUT_MS,
  );

  test(
    seededTitle("P9: over an adopted session, any order ends in the same state"),
    async () => {
      const property = fc.asyncProperty(oldModels, fc.nat(), async (model, seed) => {
        const own = await startTestService();
        try {
          const log = await adoptedLog(own.clients(), model);
          await checkAgainstLists(own.clients(), log);
          checkConvergence(log, { numRuns: ORDERS, seed });
        } finally {
          await own.stop();
        }
      });
      await fc.assert(property, propertyOptions(300));
    },
    TIMEOUT_MS,
  );

  test("shows the text that stands for what the source of a fork had archived", async () => {
    const [, log] = await forkedLogs(clients, true);
    const { sessionId, given } = log ?? { sessionId: "", given: [] };
    const conversation = lawful(sessionId);
    take(conversation, given.filter(isOfTheLog));
    const [brought] = conversation.view().sessions[0]?.compactions ?? [];
    expect(brought).toMatchObject({ summary: ARCHIVED_TEXT, throughSequence: 0n });
  });

  test("the property catches one in which the last update wins", async () => {
    const [log] = await forkedLogs(clients, false);
    const rules = { merge: () => "advanced" as const, attachmentOf };
    const make: MakeConversation = (sessionId) => new Conversation(sessionId, {}, rules);
    expect(() => {
      if (log !== undefined) checkConvergence(log, { numRuns: 50, seed: 1 }, make);
    }).toThrow();
  });
});
