import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import type { Origin } from "../../../gen/toolmark/v1/origin_pb.js";
import { refuse, type Refusal } from "../refusal.js";

/** Evidence is written to the session where it was born, or nowhere. */
export function refuseForeignOrigin(
  sessionId: string,
  origin: Origin | undefined,
): Refusal | undefined {
  if (origin === undefined || origin.sessionId === sessionId) return undefined;
  return refuse(ErrorReason.ORIGIN_MISMATCH, "command.origin is not the session written to", {
    field: "command.origin",
  });
}
