import { toBinary } from "@bufbuild/protobuf";
import {
  type WatchEventsResponse,
  WatchEventsResponseSchema,
} from "../gen/toolmark/v1/history_service_pb.js";
import type { ActiveRun, Preparation } from "./requests.js";

/** Messages of the service in base64, for a server that sends equal ones. */
export interface BareMessages {
  /** The first of a replay. */
  readonly replayed: readonly string[];
  /** The one without an event that says that everything was given. */
  readonly boundary: string;
  /** What every watcher of an event is sent. */
  readonly live: string;
}

const REPLAYED_MAX = 1000;
const LIVE = "live";

/** Takes the messages from watches of a session with many events, and of one that a hook outcome is published in. */
export async function takeMessages(
  preparation: Preparation,
  replayedSessionId: string,
  run: ActiveRun,
  toolCallId: string,
): Promise<BareMessages> {
  const replayed: string[] = [];
  for await (const message of preparation.watchEvents(replayedSessionId)) {
    if (message.phase === LIVE) break;
    replayed.push(textOf(message));
    if (replayed.length === REPLAYED_MAX) break;
  }
  let boundary: string | undefined;
  for await (const message of preparation.watchEvents(run.sessionId)) {
    if (message.phase !== LIVE) continue;
    if (boundary !== undefined) return { replayed, boundary, live: textOf(message) };
    boundary = textOf(message);
    await preparation.publishHook(run, toolCallId);
  }
  throw new Error("a watch ended");
}

/** The cursor after everything that was committed to a session. */
export async function cursorAtEnd(preparation: Preparation, sessionId: string): Promise<string> {
  for await (const { phase, cursor } of preparation.watchEvents(sessionId)) {
    if (phase === LIVE) return cursor;
  }
  throw new Error("a watch ended");
}

function textOf(message: WatchEventsResponse): string {
  return Buffer.from(toBinary(WatchEventsResponseSchema, message)).toString("base64");
}
