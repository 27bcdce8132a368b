const LENGTH_MAX = 64;
const OTHER_CHARACTER = /[^a-zA-Z0-9_-]/gu;

/** A tool's name as every provider takes it. Two names may become one: nothing pairs by it where there are ids. */
export function toolNameFor(name: string): string {
  return name.replace(OTHER_CHARACTER, "_").slice(0, LENGTH_MAX) || "unnamed_tool";
}
