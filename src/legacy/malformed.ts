/** Why a source cannot be read. Nothing of it is loaded. */
export interface Malformed {
  /** What is wrong, in words. Never a value of the source. */
  readonly malformed: string;
  /** Where: the path of the value, such as `$.messages[3].tool_calls[0].ID`. */
  readonly path: string;
  /** Where: bytes before it in the source. */
  readonly offsetBytes: number;
}

/** Thrown inside this folder only, and given as a value by each decoder. */
export class MalformedError extends Error {
  override readonly name = "MalformedError";

  constructor(readonly fault: Malformed) {
    super(`${fault.path}: ${fault.malformed}`);
  }
}

export function isMalformed(value: object): value is Malformed {
  return "malformed" in value;
}

/** What a decoder gives, or why it gives nothing. */
export function orMalformed<Decoded>(decode: () => Decoded): Decoded | Malformed {
  try {
    return decode();
  } catch (error) {
    if (error instanceof MalformedError) return error.fault;
    throw error;
  }
}
