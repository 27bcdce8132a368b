import type { CallsInFlight } from "../calls-in-flight.js";
import { whenEnded, type Middleware } from "../reply.js";

/**
 * Refuses new calls once the server drains, and tells the shutdown which calls it still has to wait
 * for.
 */
export function draining(callsInFlight: CallsInFlight): Middleware {
  return (call, request, next) => {
    const refusal = callsInFlight.enter(call);
    if (refusal !== undefined) return refusal;
    return whenEnded(next(call, request), () => {
      callsInFlight.leave(call);
    });
  };
}
