import type { JsonNode } from "../domain/json-text.js";
import type { JsonSpan } from "./wire.js";

/** Characters of the text and what stands there instead. */
interface Edit {
  readonly start: number;
  readonly end: number;
  readonly json: string;
}

/** Edits of a JSON text that leave every other character as it was written. */
export class JsonSplice {
  readonly #text: string;
  readonly #replaced = new Map<JsonNode, string>();
  readonly #inserted = new Map<JsonNode, string[]>();
  readonly #removed = new Set<JsonNode>();
  #sorted: readonly Edit[] | undefined;

  constructor(span: JsonSpan) {
    this.#text = span.text;
  }

  /** Puts a JSON text in the place of a value. */
  replace(node: JsonNode, json: string): void {
    this.#replaced.set(node, json);
    this.#sorted = undefined;
  }

  /** Puts a member, such as `"id":"1"`, before those that an object has. */
  insert(object: JsonNode, member: string): void {
    const members = this.#inserted.get(object);
    if (members === undefined) this.#inserted.set(object, [member]);
    else members.push(member);
    this.#sorted = undefined;
  }

  /** Removes an element of an array or the property node of an object's member, with its comma. */
  remove(child: JsonNode): void {
    this.#removed.add(child);
    this.#sorted = undefined;
  }

  /** A value as it was written, with the edits in it. */
  text(node: JsonNode): string {
    const start = node.offset;
    const end = node.offset + node.length;
    const edits = (this.#sorted ??= this.#edits());
    let written = "";
    let at = start;
    for (let index = firstFrom(edits, start); index < edits.length; index += 1) {
      const edit = edits[index];
      if (edit === undefined || edit.start > end) break;
      // What an outer edit took away has no edits of its own any more.
      if (edit.start < at || edit.end > end) continue;
      written += this.#text.slice(at, edit.start) + edit.json;
      at = edit.end;
    }
    return written + this.#text.slice(at, end);
  }

  #edits(): Edit[] {
    const edits: Edit[] = [];
    const parents = new Set([...this.#removed].map(({ parent }) => parent));
    for (const parent of parents) edits.push(...this.#removals(parent?.children ?? []));
    for (const [node, json] of this.#replaced) {
      edits.push({ start: node.offset, end: node.offset + node.length, json });
    }
    for (const [object, members] of this.#inserted) edits.push(this.#insertion(object, members));
    return edits.sort(
      (left, right) =>
        left.start - right.start ||
        Number(isEmpty(right)) - Number(isEmpty(left)) ||
        right.end - left.end,
    );
  }

  #insertion(object: JsonNode, members: readonly string[]): Edit {
    const start = object.offset + 1;
    const isFollowed = (object.children ?? []).some((child) => !this.#removed.has(child));
    return { start, end: start, json: members.join(",") + (isFollowed ? "," : "") };
  }

  /** A removed child takes the comma before it along; one that no child stays before, that behind it. */
  #removals(siblings: readonly JsonNode[]): Edit[] {
    const edits: Edit[] = [];
    let isKeptBefore = false;
    for (const [index, node] of siblings.entries()) {
      if (!this.#removed.has(node)) {
        isKeptBefore = true;
        continue;
      }
      const before = siblings[index - 1];
      const after = siblings[index + 1];
      const end = node.offset + node.length;
      const isFromBefore = isKeptBefore && before !== undefined;
      edits.push({
        start: isFromBefore ? before.offset + before.length : node.offset,
        end: isFromBefore || after === undefined ? end : after.offset,
        json: "",
      });
    }
    return edits;
  }
}

function isEmpty({ start, end }: Edit): boolean {
  return start === end;
}

/** Index of the first edit that begins at `start` or later. */
function firstFrom(edits: readonly Edit[], start: number): number {
  let low = 0;
  let high = edits.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((edits[middle]?.start ?? 0) < start) low = middle + 1;
    else high = middle;
  }
  return low;
}
