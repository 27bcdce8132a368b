import type { CallsInFlight } from "../rpc/calls-in-flight.js";
import type { GrpcListener } from "./grpc-listener.js";
import type { HttpListener } from "./http-listener.js";
import { nextTurn } from "./next-turn.js";

export interface Drainable {
  readonly callsInFlight: CallsInFlight;
  readonly grpc: GrpcListener;
  readonly http: HttpListener;
  readonly timeoutMs: number;
}

/**
 * Share of the time that calls may take to finish by themselves; the rest is for ending what did
 * not.
 */
const PATIENCE = 0.7;

/** Longest time to send what is decided to callers that still read. */
const LAST_WORDS_MS = 500;

/** The order of a shutdown. The same promise, however often it is called. */
export function drainOnce(server: Drainable): () => Promise<void> {
  let draining: Promise<void> | undefined;
  return () => (draining ??= drain(server));
}

async function drain({ callsInFlight, grpc, http, timeoutMs }: Drainable): Promise<void> {
  grpc.stopServing();
  // Those who watch the health are told before the first call is refused.
  await nextTurn();
  callsInFlight.startDraining();
  await within(timeoutMs * PATIENCE, callsInFlight.untilAnswered());
  const restMs = timeoutMs * (1 - PATIENCE);
  callsInFlight.cutOff();
  await within(restMs / 2, callsInFlight.untilStreamsEnded());
  const graceMs = Math.min(LAST_WORDS_MS, restMs / 2);
  await Promise.all([grpc.close(graceMs), http.close(graceMs)]);
}

/** Waits for `done`, but not longer than `timeoutMs`. */
function within(timeoutMs: number, done: Promise<void>): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, timeoutMs);
    done.then(() => {
      clearTimeout(timer);
      resolve();
    }, reject);
  });
}
