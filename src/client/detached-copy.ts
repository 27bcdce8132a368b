import { clone, type DescMessage, type Message } from "@bufbuild/protobuf";

/** A copy that shares nothing with the message. `clone` shares the bytes of a Buffer, whose slice is a view. */
export function detachedCopy<M extends Message>(schema: DescMessage, message: M): M {
  const copy = clone(schema, message) as unknown as M;
  ownBytes(copy);
  return copy;
}

/** Bytes of their own, and of no other class. */
export function detachedBytes(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(bytes);
}

function ownBytes(holder: object): void {
  for (const [name, value] of Object.entries(holder) as [string, unknown][]) {
    if (value instanceof Uint8Array) {
      const isPlain = Object.getPrototypeOf(value) === Uint8Array.prototype;
      if (!isPlain) Reflect.set(holder, name, detachedBytes(value));
    } else if (typeof value === "object" && value !== null) {
      ownBytes(value);
    }
  }
}
