import { InvariantError } from "../domain/invariant.js";

/** What the log tells of a fault. An error's message may quote what was being handled, so it is left out. */
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
  const frames = (fault.stack ?? "").split("\n").filter((line) => FRAME.test(line));
  return {
    name: fault.name,
    ...codeOf(fault),
    ...(fault instanceof InvariantError ? { invariant: fault.message } : {}),
    frames: frames.map((line) => line.trim()),
    ...(fault.cause !== undefined && depth > 0 ? { cause: traceOf(fault.cause, depth - 1) } : {}),
  };
}

function codeOf(fault: Error): { code?: string } {
  if (!("code" in fault)) return {};
  const { code } = fault;
  return typeof code === "string" || typeof code === "number" ? { code: String(code) } : {};
}
