import { isRefusal } from "../../domain/refusal.js";
import { mapItems, type Middleware } from "../reply.js";

/**
 * A handler built a reply that clients need not accept. Pages and parts are to be cut before it
 * comes to this.
 */
export class ReplyTooLargeError extends Error {
  override readonly name = "ReplyTooLargeError";
}

/** No reply above the limit leaves: it is a fault of this program, answered and logged as one. */
export function outgoingSize(limitBytes: number): Middleware {
  return (call, request, next) =>
    mapItems(next(call, request), (item) => {
      if (isRefusal(item)) return item;
      const sizeBytes = call.encode(item).length;
      if (sizeBytes <= limitBytes) return item;
      throw new ReplyTooLargeError(
        `a reply of ${String(sizeBytes)} bytes exceeds ${String(limitBytes)}`,
      );
    });
}
