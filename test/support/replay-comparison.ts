import { copyOf, isObject, parseLossless, writeLossless, type Lossless } from "./lossless-json.js";

/** JSON text with the keys in order, so that equal values are equal texts. */
export function canonicalText(value: Lossless): string {
  return writeLossless(sorted(value));
}

function sorted(value: Lossless): Lossless {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isObject(value)) return value;
  const entries = [...value].map(([key, member]) => [key, sorted(member)] as const);
  return new Map(entries.sort(([left], [right]) => (left < right ? -1 : 1)));
}

/** Calls back for every object that has the last member of a path such as `content[].logprobs`. */
function visit(
  value: Lossless,
  path: string,
  found: (holder: Map<string, Lossless>, key: string) => void,
): void {
  const [head = "", ...rest] = path.split(".");
  const key = head.replace(/\[\]$/, "");
  if (!isObject(value)) return;
  const member = value.get(key);
  if (rest.length === 0) {
    if (member !== undefined) found(value, key);
    return;
  }
  if (member === undefined) return;
  const members = Array.isArray(member) && head.endsWith("[]") ? member : [member];
  for (const each of members) visit(each, rest.join("."), found);
}

export function without(value: Lossless, path: string): Lossless {
  const copy = copyOf(value);
  visit(copy, path, (holder, key) => holder.delete(key));
  return copy;
}

function textsAt(value: Lossless, path: string): string[] {
  const texts: string[] = [];
  visit(value, path, (holder, key) => {
    texts.push(canonicalOf(holder.get(key)));
  });
  return texts;
}

/** A text itself, and any other value as JSON. */
function canonicalOf(value: Lossless | undefined): string {
  return typeof value === "string" ? value : canonicalText(value ?? null);
}

const CHANGE = /^([-+~])([^(]+)(?:\((.*)\))?$/;

/**
 * Ours and theirs without what the recording client is known to have changed. What it only wrote in another way must
 * still say the same.
 */
export function withoutObserved(
  ours: Lossless,
  theirs: Lossless,
  changes: readonly string[],
): { ours: string; theirs: string } {
  let [left, right] = [ours, theirs];
  for (const change of changes) {
    if (change === "verbatim") continue;
    const [, sign, path = "", how] = CHANGE.exec(change) ?? [];
    if (sign === undefined) throw new Error(`unknown change ${change}`);
    if (how === "json re-encoded") {
      sameTexts(left, right, path, (text) => canonicalText(parseLossless(text)));
    }
    if (how === "base64 alphabet") sameTexts(left, right, path, standardBase64);
    if (sign !== "+") left = without(left, path);
    if (sign !== "-") right = without(right, path);
  }
  return { ours: canonicalText(left), theirs: canonicalText(right) };
}

function standardBase64(text: string): string {
  return text.replaceAll("-", "+").replaceAll("_", "/");
}

function sameTexts(
  ours: Lossless,
  theirs: Lossless,
  path: string,
  meaning: (text: string) => string,
): void {
  const [left, right] = [textsAt(ours, path), textsAt(theirs, path)];
  const isSame =
    left.length === right.length &&
    left.every((text, index) => meaning(text) === meaning(right[index] ?? ""));
  if (!isSame) throw new Error(`${path} does not say the same: ${left.join()} and ${right.join()}`);
}
