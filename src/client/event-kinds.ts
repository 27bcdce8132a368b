import { EventKind } from "../domain/event-kind.js";

/** Kinds of event that this version knows: those that it writes, and the one that ends an erased log. */
export const KNOWN_EVENT_KINDS: ReadonlySet<string> = new Set([
  ...Object.values(EventKind),
  "ERASED",
]);
