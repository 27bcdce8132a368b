import { InvariantError } from "../domain/invariant.js";

/**
 * What the log tells of a fault. An error's message may quote what was being handled, so it is left
 * out.
 */
export interface FaultTrace {
  readonly name: string;
  readonly code?: string;
  /** Which invariant broke: text of this program. */
  readonly invariant?: string;
  readonly frames: readonly string[];
  readonly cause?: FaultTrace;
}

const CAUSE_DEPTH = 3;
const FRAME = /^\s+at /;

export function traceOf(fault: unknown, depth = CAUSE_DEPTH): FaultTrace {
  if (!(fault instanceof Error)) return { name: typeof fault, frames: [] };
  return {
    name: fault.name,
    ...codeOf(fault),
    ...(fault instanceof InvariantError ? { invariant: fault.message } : {}),
    frames: framesOf(fault),
    ...(fault.cause !== undefined && depth > 0 ? { cause: traceOf(fault.cause, depth - 1) } : {}),
  };
}

/**
 * The stack behind the message, whose own lines may look like frames. None if it does not begin
 * with the message.
 */
function framesOf({ stack = "", message }: Error): string[] {
  const start = stack.indexOf(message);
  if (start < 0) return [];
  const lines = stack.slice(start + message.length).split("\n");
  return lines.filter((line) => FRAME.test(line)).map((line) => line.trim());
}

function codeOf(fault: Error): { code?: string } {
  if (!("code" in fault)) return {};
  const { code } = fault;
  return typeof code === "string" || typeof code === "number" ? { code: String(code) } : {};
}
