import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { expect } from "vitest";
import { EventSchema, type Event } from "../../gen/toolmark/v1/event_pb.js";
import type { CompactSessionRequestSchema } from "../../gen/toolmark/v1/session_service_pb.js";
import type { Store } from "../../src/ledger/store-port.js";
import { allCalls, allEvents, freshRequestId, readSession } from "../support/conversation.js";
import { FaultyStore } from "../support/faulty-store.js";
import { projectionFaults, projectionOf, type ProjectedItem } from "../support/projection.js";
import { RecordLog } from "../support/record-log.js";
import type { Clients } from "../support/service.js";

type CompactInit = MessageInitShape<typeof CompactSessionRequestSchema>;

/** A request to archive events. */
export function archiving(
  sessionId: string,
  throughSequence: number | bigint,
  requestId = freshRequestId(),
): CompactInit & { readonly requestId: string } {
  const through = BigInt(throughSequence);
  return { sessionId, requestId, throughSequence: through, summary: `all up to ${through}` };
}

/** Archives events. The last one that was. */
export async function compact(
  { sessions }: Clients,
  sessionId: string,
  throughSequence: number | bigint,
): Promise<number> {
  const reply = await sessions.compactSession(archiving(sessionId, throughSequence));
  return Number(reply.throughSequence);
}

/** Archives as much as can be, up to the head of the log. */
export async function compactAll(clients: Clients, sessionId: string): Promise<number> {
  return compact(clients, sessionId, await headOf(clients, sessionId));
}

export async function headOf(clients: Clients, sessionId: string): Promise<number> {
  const { checkpoint } = await readSession(clients, sessionId);
  return Number(checkpoint?.sequence ?? 0n);
}

/** What a reader projects, which must be whole: no result without its call, no settled call without its result. */
export async function projected(clients: Clients, sessionId: string): Promise<ProjectedItem[]> {
  const log = await allEvents(clients, sessionId);
  const items = projectionOf(log);
  expect(projectionFaults(items, await allCalls(clients, sessionId))).toEqual([]);
  return items;
}

/** Whether what a reader projects would be whole if the log had been cut at an event. */
export function isWholeAt(log: readonly Event[], throughSequence: number): boolean {
  const record = {
    case: "compaction" as const,
    value: { throughSequence: BigInt(throughSequence) },
  };
  const cut = [...log, create(EventSchema, { record: { record } })];
  const { calls } = new RecordLog(log);
  return projectionFaults(projectionOf(cut), [...calls.values()]).length === 0;
}

/** Every row of the session is as it was written, as VerifySession says. */
export async function expectSound({ sessions, ...clients }: Clients, sessionId: string) {
  const { checkpoint } = await readSession({ sessions, ...clients }, sessionId);
  const { head } = await sessions.verifySession({ sessionId, ...(checkpoint && { checkpoint }) });
  expect(head).toEqual(checkpoint);
}

/** A store that keeps pages of a log to itself for a while, as they were when they were read. */
export class HeldReads extends FaultyStore {
  readonly #held = new Set<() => void>();
  #isHolding = false;
  readonly #readNow: Store["readEvents"];

  constructor(store: Store) {
    super(store);
    this.#readNow = this.readEvents;
    this.readEvents = async (...args) => {
      const page = await this.#readNow(...args);
      if (this.#isHolding) await this.#untilReleased();
      return page;
    };
  }

  /** Pages that are held. */
  get waiting(): number {
    return this.#held.size;
  }

  /** Holds pages that are read from now on. */
  hold(): void {
    this.#isHolding = true;
  }

  /** Holds no more, but keeps those that are held. */
  pass(): void {
    this.#isHolding = false;
  }

  #untilReleased(): Promise<void> {
    return new Promise((resolve) => {
      this.#held.add(resolve);
    });
  }

  release(): void {
    this.#isHolding = false;
    for (const give of this.#held) give();
    this.#held.clear();
  }
}
