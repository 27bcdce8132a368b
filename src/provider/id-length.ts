const CONTROL_CHARACTER = /\p{Cc}/u;

/** Whether an id is a text of at most `lengthMax` characters that any provider would take as it is. */
export function fitsLength(id: string, lengthMax: number): boolean {
  return id.length <= lengthMax && id.isWellFormed() && !CONTROL_CHARACTER.test(id);
}
