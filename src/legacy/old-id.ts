import { isDerivedId } from "../domain/identity.js";

const ID_BYTES_MAX = 512;
const CONTROL = /\p{Cc}/u;

/** Whether an id of the old system can be one here: it must not have the form of those that are derived here. */
export function isUsableId(id: string): boolean {
  const isId = id !== "" && Buffer.byteLength(id) <= ID_BYTES_MAX && !CONTROL.test(id);
  return isId && !isDerivedId(id);
}
