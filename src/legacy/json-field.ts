import { isJsonFault, jsonMember, parseJsonText, type JsonNode } from "../domain/json-text.js";
import { MalformedError } from "./malformed.js";

const utf8 = new TextEncoder();

/** A text that a field is part of. */
interface JsonSource {
  readonly text: string;
  /** Bytes of the whole source before the text. */
  readonly offsetBytes: number;
}

/**
 * A value of an old JSON text, which may be absent. Keys are taken in exactly this case, `null` is as good as absent,
 * and a value of another type than the one that is asked for is malformed.
 */
export class JsonField {
  readonly #source: JsonSource;
  readonly #node: JsonNode | undefined;
  /** Where it stands in the text: an absent one where what it is absent from does. */
  readonly #offset: number;
  readonly path: string;

  private constructor(
    source: JsonSource,
    node: JsonNode | undefined,
    path: string,
    parentOffset = 0,
  ) {
    this.#source = source;
    this.#node = node?.type === "null" ? undefined : node;
    this.#offset = node?.offset ?? parentOffset;
    this.path = path;
  }

  /** The value that the text is. `path` and `offsetBytes` say where the text stands in its source. */
  static parse(text: string, path = "$", offsetBytes = 0): JsonField {
    const source = { text, offsetBytes };
    const root = parseJsonText(text);
    if (isJsonFault(root)) throw malformed(source, path, root.offset, `not JSON: ${root.fault}`);
    return new JsonField(source, root, path);
  }

  get isAbsent(): boolean {
    return this.#node === undefined;
  }

  /** A member of the object that this is; absent if this is. */
  get(key: string): JsonField {
    const object = this.#typed("object");
    const path = `${this.path}.${key}`;
    return new JsonField(this.#source, object && jsonMember(object, key), path, this.#offset);
  }

  /** The keys of the object that this is, in their order; none if it is absent. */
  keys(): string[] {
    const members = this.#typed("object")?.children ?? [];
    return members.map(({ children }) => String(children?.[0]?.value));
  }

  /** The elements of the array that this is; none if it is absent. */
  items(): JsonField[] {
    const elements = this.#typed("array")?.children ?? [];
    return elements.map(
      (element, index) => new JsonField(this.#source, element, `${this.path}[${index}]`),
    );
  }

  string(): string | undefined {
    return this.#typed("string")?.value as string | undefined;
  }

  boolean(): boolean | undefined {
    return this.#typed("boolean")?.value as boolean | undefined;
  }

  /** A whole number from 0 up to the largest that is exact. */
  count(): number | undefined {
    const value = this.#typed("number")?.value as number | undefined;
    if (value === undefined || (Number.isSafeInteger(value) && value >= 0)) return value;
    return this.fail("must be a whole number from 0 on");
  }

  /** The bytes of the value as it was written, of whatever type. */
  bytes(): Uint8Array | undefined {
    const node = this.#node;
    if (node === undefined) return undefined;
    return utf8.encode(this.#source.text.slice(node.offset, node.offset + node.length));
  }

  fail(message: string): never {
    throw malformed(this.#source, this.path, this.#offset, message);
  }

  #typed(type: JsonNode["type"]): JsonNode | undefined {
    if (this.#node === undefined || this.#node.type === type) return this.#node;
    return this.fail(`must be ${type === "array" || type === "object" ? "an" : "a"} ${type}`);
  }
}

function malformed(
  { text, offsetBytes }: JsonSource,
  path: string,
  offset: number,
  message: string,
): MalformedError {
  const before = utf8.encode(text.slice(0, offset)).length;
  return new MalformedError({ malformed: message, path, offsetBytes: offsetBytes + before });
}
