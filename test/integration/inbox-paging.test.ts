import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import type { Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { answer, askAbout, askAboutEach, openAsk, withdraw } from "../support/asking.js";
import { beginRun, freshRequestId, given, newCall, type OpenRun } from "../support/conversation.js";
import { propertyOptions, seededTitle } from "../support/seed.js";
import { startTestService, WIRES, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

let folder: StoreFolder;
let service: TestService;
let everyWire: readonly Clients[];

beforeAll(async () => {
  folder = await makeStoreFolder();
  service = await startTestService({ store: folder.store });
  everyWire = WIRES.map((wire) => service.clients(wire));
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

type Change =
  | { readonly kind: "open"; readonly session: number }
  | { readonly kind: "answer" | "withdraw" | "supersede"; readonly pick: number };

interface Plan {
  /** Asks that are open in each session at the start. */
  readonly open: readonly number[];
  readonly pageSize: number;
  /** What happens after each page. */
  readonly between: readonly (readonly Change[])[];
}

const change: fc.Arbitrary<Change> = fc.oneof(
  fc.record({ kind: fc.constant("open" as const), session: fc.nat(2) }),
  fc.record({
    kind: fc.constantFrom("answer" as const, "withdraw" as const, "supersede" as const),
    pick: fc.nat(),
  }),
);

const plans: fc.Arbitrary<Plan> = fc.record({
  open: fc.array(fc.integer({ min: 1, max: 8 }), { minLength: 3, maxLength: 3 }),
  pageSize: fc.integer({ min: 1, max: 5 }),
  between: fc.array(fc.array(change, { maxLength: 3 }), { minLength: 1, maxLength: 12 }),
});

/** Asks of one owner, in three sessions, and which of them are open. */
class Inbox {
  readonly #clients: Clients;
  readonly #runs: OpenRun[] = [];
  readonly open = new Map<string, { readonly ask: Ask; readonly run: OpenRun }>();

  constructor(
    clients: Clients,
    readonly ownerSubject: string,
  ) {
    this.#clients = clients;
  }

  async fill(counts: readonly number[]): Promise<void> {
    for (const count of counts) {
      const creation = { requestId: freshRequestId(), kind: SessionKind.MAIN };
      const { ownerSubject } = this;
      const { session } = await this.#clients.sessions.createSession({ ...creation, ownerSubject });
      const { sessionId } = given(session, "session");
      const run = await beginRun(this.#clients, sessionId, StartGate.OFF);
      this.#runs.push(run);
      const calls = Array.from({ length: count }, () => newCall());
      for (const ask of await askAboutEach(this.#clients, run, calls)) this.#add(run, ask);
    }
  }

  #add(run: OpenRun, ask: Ask): void {
    this.open.set(ask.askId, { ask, run });
  }

  async carryOut(one: Change): Promise<void> {
    if (one.kind === "open") {
      const run = given(this.#runs[one.session], "run");
      this.#add(run, await askAbout(this.#clients, run));
      return;
    }
    const picked = [...this.open.values()][one.pick % Math.max(1, this.open.size)];
    if (picked === undefined) return;
    const { ask, run } = picked;
    this.open.delete(ask.askId);
    if (one.kind === "answer") await answer(this.#clients, ask);
    else if (one.kind === "withdraw") await withdraw(this.#clients, run, ask.askId);
    else this.#add(run, await openAsk(this.#clients, run, ask.toolCallId));
  }
}

/** A page, and what was open while it was read. */
interface ReadPage {
  readonly ids: readonly string[];
  readonly open: readonly string[];
}

async function read(plan: Plan, ownerSubject: string): Promise<ReadPage[]> {
  const inbox = new Inbox(given(everyWire[0], "clients"), ownerSubject);
  await inbox.fill(plan.open);
  const { pageSize } = plan;
  const pages: ReadPage[] = [];
  let pageToken = "";
  do {
    const { approvals } = given(everyWire[pages.length % everyWire.length], "clients");
    const page = await approvals.listAsks({ ownerSubject, pageSize, pageToken });
    const ids = page.asks.map(({ ask }) => given(ask, "ask").askId);
    pages.push({ ids, open: [...inbox.open.keys()] });
    for (const one of plan.between[pages.length - 1] ?? []) await inbox.carryOut(one);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return pages;
}

/** What is wrong with a list that was read page by page while asks opened and settled. */
function faultsOf(pages: readonly ReadPage[]): string[] {
  const faults: string[] = [];
  const everyId = pages.flatMap(({ ids }) => ids);
  const times = new Map<string, number>();
  for (const id of everyId) times.set(id, (times.get(id) ?? 0) + 1);
  for (const [id, count] of times) if (count > 1) faults.push(`${id} is given ${count} times`);
  const [first = { ids: [], open: [] }] = pages;
  const throughout = first.open.filter((id) => pages.every(({ open }) => open.includes(id)));
  for (const id of throughout) if (!times.has(id)) faults.push(`${id} is missed`);
  for (const { ids, open } of pages) {
    for (const id of ids) if (!open.includes(id)) faults.push(`${id} is given though settled`);
  }
  // Maps keep the order of opening.
  const order = new Map([...new Set(pages.flatMap(({ open }) => open))].map((id, at) => [id, at]));
  const places = everyId.map((id) => order.get(id) ?? -1);
  const sorted = [...places].sort((left, right) => left - right);
  if (String(places) !== String(sorted)) faults.push("the asks are not in the order of opening");
  return faults;
}

describe("an inbox that is read page by page while asks open and settle", () => {
  test(
    seededTitle("gives every ask that is open throughout once, and none twice"),
    async () => {
      let inboxes = 0;
      const property = fc.asyncProperty(plans, async (plan) => {
        inboxes += 1;
        expect(faultsOf(await read(plan, `owner ${inboxes}`))).toEqual([]);
      });
      await fc.assert(property, propertyOptions(200));
    },
    120_000,
  );

  test("or it is found out", () => {
    const open = ["a", "b", "c"];
    const sound = [
      { ids: ["a"], open },
      { ids: ["c"], open: ["a", "c", "d"] },
      { ids: ["d"], open: ["c", "d"] },
    ];
    expect(faultsOf(sound)).toEqual([]);
    const faultsWith = (...ids: string[][]) =>
      String(faultsOf(sound.map((page, at) => ({ ...page, ids: ids[at] ?? [] }))));
    expect(faultsWith(["a"], ["a"], ["c"])).toBe("a is given 2 times");
    expect(faultsWith(["a"], [], ["d"])).toBe("c is missed");
    expect(faultsWith(["a"], ["b"], ["c"])).toBe("b is given though settled");
    expect(faultsWith(["a"], ["d"], ["c"])).toBe("the asks are not in the order of opening");
  });
});
