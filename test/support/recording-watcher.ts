import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { toBinary } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { EventSchema, type Event } from "../../gen/toolmark/v1/event_pb.js";
import type { WatchEventsResponse } from "../../gen/toolmark/v1/history_service_pb.js";
import { openEvents, type EventServer, type EventWire } from "./event-wires.js";
import type { Life, LivingServer } from "./living-server.js";
import type { EventMark, RecordedFrame, RecordedWatcher } from "./watch-validators.js";

/** What a watcher watches, and how it behaves. */
export interface WatcherPlan {
  readonly name: string;
  readonly wire: EventWire;
  readonly sessionId: string;
  readonly includeDescendants: boolean;
  readonly kinds: readonly string[];
  /** How long it takes over some of its messages; 0 for one that is fast. */
  readonly pauseMs: number;
  /** After which share of its messages it leaves without a word. */
  readonly leavingShare: number;
}

const PAUSING_SHARE = 1 / 16;
const LOOK_AGAIN_MS = 5;
const GOES_ON: ReadonlySet<string> = new Set(["DRAINING", "WATCH_LAGGING", "CALLER_GONE"]);

/** Keeps each mark once, however many watchers got it. */
export class Marks {
  readonly #marks = new Map<string, EventMark>();

  of(event: Event): EventMark {
    const digest = createHash("sha1").update(toBinary(EventSchema, event)).digest("base64");
    const { sessionId, sequence, position, kind } = event;
    const key = `${position} ${digest}`;
    const mark = this.#marks.get(key) ?? { sessionId, sequence, position, kind, digest };
    this.#marks.set(key, mark);
    return mark;
  }
}

interface Stream {
  readonly after: string;
  readonly kinds: readonly string[];
  readonly frames: RecordedFrame[];
  endCursor?: string;
}

/** Watches through all lives of a server, leaves and comes again, and keeps what it got. */
export class RecordingWatcher {
  frames = 0;
  /** How often it left, was told to go on later, and lost its connection. */
  readonly ends = { left: 0, lagging: 0, draining: 0, lost: 0 };
  /** What it was refused for good. */
  fault: string | undefined;
  readonly #streams: Stream[] = [];
  readonly #canceller = new AbortController();
  #isSettling = false;
  #cursor = "";
  #last = 0n;
  #server: { readonly life: number; readonly of: EventServer } | undefined;

  constructor(
    readonly plan: WatcherPlan,
    readonly server: LivingServer,
    readonly marks: Marks,
    readonly random: () => number,
  ) {}

  /** Position of the last event that came. */
  get last(): bigint {
    return this.#last;
  }

  /** Whether it was told that it has caught up, by the stream that it has now. */
  get isLive(): boolean {
    const frames = this.#streams.at(-1)?.frames ?? [];
    return frames.some(({ phase, event }) => phase === "live" && event === undefined);
  }

  /** No longer leaves of itself, and takes all that comes. */
  settle(): void {
    this.#isSettling = true;
  }

  stop(): void {
    this.#canceller.abort();
  }

  get recorded(): RecordedWatcher {
    const { name, sessionId, includeDescendants } = this.plan;
    return { name, sessionId, includeDescendants, streams: this.#streams, isComplete: true };
  }

  /** Until it is stopped or refused for good. */
  async run(): Promise<void> {
    while (!this.#hasStopped() && this.fault === undefined) {
      const life = await this.server.life();
      await this.#take(this.#serverOf(life));
    }
  }

  #hasStopped(): boolean {
    return this.#canceller.signal.aborted;
  }

  /** One connection for each life, however often it is used. */
  #serverOf(life: Life): EventServer {
    if (this.#server?.life !== life.number) {
      const { httpAddress } = life;
      const clients = life.clients(this.plan.wire === "sse" ? "grpc" : this.plan.wire);
      this.#server = { life: life.number, of: { httpAddress, clients: () => clients } };
    }
    return this.#server.of;
  }

  async #take(server: EventServer): Promise<void> {
    const { wire, sessionId, includeDescendants, kinds } = this.plan;
    const stream: Stream = { after: this.#cursor, kinds, frames: [] };
    this.#streams.push(stream);
    const leaving = new AbortController();
    const signal = AbortSignal.any([leaving.signal, this.#canceller.signal]);
    const request = { sessionId, includeDescendants, kinds: [...kinds], cursor: this.#cursor };
    try {
      for await (const message of openEvents(server, wire, request, signal)) {
        this.#keep(stream, message);
        if (await this.#leaves()) break;
      }
    } catch (error) {
      if (!this.#hasStopped()) await this.#ended(stream, ConnectError.from(error));
    } finally {
      leaving.abort();
    }
  }

  #keep(stream: Stream, { phase, cursor, event }: WatchEventsResponse): void {
    this.#cursor = cursor;
    this.frames += 1;
    if (event === undefined) {
      stream.frames.push({ phase, cursor });
      return;
    }
    stream.frames.push({ phase, cursor, event: this.marks.of(event) });
    this.#last = event.position;
  }

  async #leaves(): Promise<boolean> {
    const { pauseMs, leavingShare } = this.plan;
    if (this.#isSettling) return false;
    if (pauseMs > 0 && this.random() < PAUSING_SHARE) await delay(pauseMs);
    const leaves = this.random() < leavingShare;
    if (leaves) this.ends.left += 1;
    return leaves;
  }

  async #ended(stream: Stream, error: ConnectError): Promise<void> {
    const [info] = error.findDetails(ErrorInfoSchema);
    if (info !== undefined && !GOES_ON.has(info.reason)) {
      this.fault = `${this.plan.name}: ${info.reason} ${error.message}`;
      return;
    }
    const cursor = info?.metadata["cursor"];
    if (cursor !== undefined) {
      stream.endCursor = cursor;
      // A client may take the cursor that it was told, or the last one that it got.
      if (this.random() < 0.5) this.#cursor = cursor;
    }
    if (info?.reason === "WATCH_LAGGING") this.ends.lagging += 1;
    else if (info?.reason === "DRAINING") this.ends.draining += 1;
    else this.ends.lost += 1;
    await delay(LOOK_AGAIN_MS);
  }
}
