/** A broken invariant: a fault of this program. It is never caught to go on; the process stops. */
export class InvariantError extends Error {
  override readonly name = "InvariantError";
}

export function invariant(condition: boolean, message: string): asserts condition {
  if (!condition) throw new InvariantError(message);
}

/** Marks a place that no value can reach; does not compile when one can. */
export function unreachable(value: never): never {
  throw new InvariantError(`unexpected value ${String(value)}`);
}
