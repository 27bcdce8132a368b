import { toBinary } from "@bufbuild/protobuf";
import { EventSchema, type Event } from "../../gen/toolmark/v1/event_pb.js";
import { allEvents } from "./conversation.js";
import type { Clients } from "./service.js";

/** Every revision that was ever read from a session, over all generations of its log. */
export class PublishedRevisions {
  /** What was published under a session's revision. */
  readonly #published = new Map<string, string>();
  readonly faults: string[] = [];
  highest = 0n;

  /** Reads a log, and notes what it gives under a revision that had been given to something else. */
  async read(clients: Clients, sessionId: string): Promise<void> {
    for (const event of await allEvents(clients, sessionId)) this.#note(event);
  }

  #note(event: Event): void {
    const { sessionId, revision } = event;
    if (revision === undefined) return;
    const key = `${sessionId} ${revision}`;
    const content = Buffer.from(toBinary(EventSchema, event)).toString("base64");
    const before = this.#published.get(key);
    if (before !== undefined && before !== content) this.faults.push(`${key} came again`);
    this.#published.set(key, content);
    if (revision > this.highest) this.highest = revision;
  }
}
