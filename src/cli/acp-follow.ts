import type { SessionUpdate } from "@agentclientprotocol/sdk";
import type { BaseState } from "../../gen/toolmark/v1/base_state_pb.js";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import type { Event, EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { WatchEventsResponse } from "../../gen/toolmark/v1/history_service_pb.js";
import { watchEvents } from "../client/watch-events.js";
import { archivedSummary } from "../domain/archived-summary.js";
import type { Evidence } from "../domain/attachment.js";
import { baseBodyOf } from "../domain/session-record.js";
import { acpNotice, AcpProjection } from "../projection/acp.js";
import { serverFaultOf, type ServerLink } from "../server/server-link.js";
import type { BodyReader } from "./acp-bodies.js";
import { waitMs } from "./acp-retry.js";

/** Messages that are read before the one that is shown, so that their bodies come together. */
const READ_AHEAD = 32;
const SETTLE_MS = 100;
/** Of a session of an older system that lies in its folder: every other session has an event from the start. */
const NO_EVENTS =
  "This session of an older system has no events here yet. `toolmark transcript` prints what it says.";

/** What one following of a session works with. */
export interface FollowMeans {
  readonly link: Pick<ServerLink, "history" | "approvals">;
  readonly sessionId: string;
  readonly bodies: BodyReader;
  /** Sends an update to the editor, in the order of the calls. */
  readonly send: (update: SessionUpdate) => Promise<void>;
  readonly log: (text: string) => void;
  /** Ends it. */
  readonly signal: AbortSignal;
}

/** Shows a session to an editor from its beginning, and goes on with what is recorded. */
export class SessionFollow {
  readonly projection: AcpProjection;
  readonly #means: FollowMeans;
  #waiters: (() => void)[] = [];
  #willSettle = false;
  #hasEvents = false;

  constructor(means: FollowMeans) {
    this.#means = means;
    this.projection = new AcpProjection(means.sessionId);
  }

  /**
   * Follows until the signal aborts or the session is erased. `onCaughtUp` is called each time that all there was is
   * shown. What the server refuses for good is thrown.
   */
  async run(onCaughtUp: () => void): Promise<void> {
    const { link, sessionId, signal, log } = this.#means;
    const onRetry = ({ rawMessage }: { rawMessage: string }): void => {
      log(`the watch is opened again: ${rawMessage}`);
    };
    const wanted = { sessionId, includeDescendants: true };
    const messages = watchEvents(link.history, wanted, { signal, onRetry });
    for await (const message of readAhead(messages, (next) => this.#prefetch(next))) {
      await this.#show(message);
      if (message.phase === "live" && message.event === undefined) onCaughtUp();
      this.#wake();
    }
  }

  /** Waits until a record was shown, at most so long. */
  async whenShown(sessionId: string, record: Evidence, timeoutMs: number): Promise<void> {
    const waiting = new AbortController();
    const { signal } = this.#means;
    const check = (): void => {
      if (signal.aborted || this.projection.hasSeen(sessionId, record)) waiting.abort();
      else this.#waiters.push(check);
    };
    check();
    await waitMs(timeoutMs, AbortSignal.any([waiting.signal, signal]));
  }

  #wake(): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const check of waiters) check();
  }

  async #prefetch({ event }: WatchEventsResponse): Promise<void> {
    const record = event?.record?.record;
    if (event === undefined || record === undefined) return;
    const { sessionId } = event;
    const shown = this.projection.bodiesToShow(sessionId, record);
    await this.#means.bodies.readRecord(sessionId, record, shown);
  }

  async #show({ phase, event }: WatchEventsResponse): Promise<void> {
    if (event !== undefined) await this.#showEvent(event);
    if (phase === "gap") await this.#sendAll([acpNotice("Events may be missing here.")]);
    if (phase === "erased") await this.#sendAll([acpNotice("The session was erased.")]);
    if (phase !== "live") return;
    if (event === undefined) await this.#caughtUp();
    else this.#settleSoon();
  }

  async #caughtUp(): Promise<void> {
    await this.#sendAll(this.projection.settle());
    if (!this.#hasEvents) await this.#sendAll([acpNotice(NO_EVENTS)]);
    this.#hasEvents = true;
  }

  async #showEvent(event: Event): Promise<void> {
    this.#hasEvents = true;
    const { sessionId, record } = event;
    if (record === undefined) return;
    const { bodies } = this.#means;
    const shown = this.projection.bodiesToShow(sessionId, record.record);
    const bytesOf = await bodies.readRecord(sessionId, record.record, shown);
    await this.#sendAll(this.projection.add(event, bytesOf));
    const base = baseBodyOf(record.record);
    if (base !== undefined) await this.#showBase(sessionId, base);
  }

  async #showBase(sessionId: string, body: Body): Promise<void> {
    const { bodies } = this.#means;
    const base = await bodies.readBase(sessionId, body);
    if (base === undefined) return;
    for (const record of broughtRecords(base)) {
      const shown = this.projection.bodiesToShow(sessionId, record);
      const bytesOf = await bodies.readRecord(sessionId, record, shown);
      await this.#sendAll(this.projection.addBrought(sessionId, record, bytesOf));
    }
    await this.#sendAll(this.projection.settle());
  }

  /** All are given to be sent before anything is waited for: nothing comes in between. */
  async #sendAll(updates: readonly SessionUpdate[]): Promise<void> {
    if (this.#means.signal.aborted) return;
    await Promise.all(updates.map((update) => this.#means.send(update)));
  }

  /** Output in small parts is shown a few times a second. */
  #settleSoon(): void {
    if (this.#willSettle || this.projection.isSettled) return;
    this.#willSettle = true;
    this.#settleLater().catch((error: unknown) => {
      this.#means.log(`an update was not sent: ${String(error)}`);
    });
  }

  async #settleLater(): Promise<void> {
    await waitMs(SETTLE_MS, this.#means.signal);
    this.#willSettle = false;
    await this.#sendAll(this.projection.settle());
  }
}

/** The records of a base state in order, with the text that stands for those that were archived behind them. */
function broughtRecords(base: BaseState): EventRecord["record"][] {
  const brought = base.records.flatMap(({ record }) =>
    record === undefined ? [] : [record.record],
  );
  const value = archivedSummary(base);
  if (value === undefined) return brought;
  return brought.toSpliced(base.archivedRecordCount, 0, { case: "compaction", value });
}

/** What to say when the server does not let a session be followed any longer. */
export function followFaultText(thrown: unknown): string {
  const { reason, message } = serverFaultOf(thrown);
  return `The session cannot be followed any longer: ${reason} ${message}`;
}

/** The items in their order. Something is begun with each before its turn comes. */
async function* readAhead<Item>(
  source: AsyncGenerator<Item, void>,
  begin: (item: Item) => Promise<void>,
): AsyncGenerator<Item> {
  const coming: Promise<IteratorResult<Item, void>>[] = [];
  const pull = (): void => {
    const next = source.next().then((result) => {
      if (result.done !== true) unhurried(begin(result.value));
      return result;
    });
    unhurried(next);
    coming.push(next);
  };
  for (let count = 0; count < READ_AHEAD; count += 1) pull();
  for (;;) {
    const result = await coming.shift();
    if (result === undefined || result.done === true) return;
    pull();
    yield result.value;
  }
}

/** A rejection is dealt with by whoever waits for the same thing when its turn comes. */
function unhurried(promise: Promise<unknown>): void {
  promise.catch((error: unknown) => error);
}
