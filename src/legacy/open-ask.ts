import { isAtWork } from "./event-types.js";
import type { OldEvent, OldLog } from "./old-session.js";

/**
 * The line of the ask that a log leaves open. As in the old system, whatever is said of any ask takes away the one that
 * is open; and so does all that shows that work went on, of any run: the verdict may have been lost.
 */
export function openAskLine({ records }: OldLog): number | undefined {
  const last = records.findLast(({ entry }) => entry.kind === "gap" || takesAway(entry));
  return last?.entry.kind === "event" && last.entry.payload.of === "ask" ? last.line : undefined;
}

function takesAway({ type, payload }: OldEvent): boolean {
  switch (payload.of) {
    case "title":
    case "archive":
      return false;
    case "hook":
      return payload.hook.providerCallId !== "";
    case "other":
      return isAtWork(type);
    default:
      return true;
  }
}
