import { jsonMember, type JsonNode } from "../domain/json-text.js";
import { PROVIDER_ID_BYTES, TOOL_NAME_BYTES } from "../domain/limits.js";
import type { PayloadFault } from "../domain/provider-turn.js";
import { stringMember } from "./json-members.js";

/** The path of an object's member. */
export function memberPath(path: string, key: string): string {
  return path === "" ? key : `${path}.${key}`;
}

/** Whether a member is absent or null. */
export function isVoid(node: JsonNode | undefined): node is undefined {
  return node === undefined || node.type === "null";
}

/** Reads the members of a response. Reading goes on after a fault: the first one is what is wrong with the response. */
export class FieldReader {
  #fault: PayloadFault | undefined;

  get fault(): PayloadFault | undefined {
    return this.#fault;
  }

  refuse(path: string, rule: string): void {
    this.#fault ??= { path, rule };
  }

  /** The elements of an array. None if it is no array. */
  elements(array: JsonNode | undefined, path: string): readonly JsonNode[] {
    if (array?.type === "array") return array.children ?? [];
    this.refuse(path, "must be an array");
    return [];
  }

  /** Whether a value is an object. */
  isObject(node: JsonNode | undefined, path: string): node is JsonNode {
    if (node?.type === "object") return true;
    this.refuse(path, "must be an object");
    return false;
  }

  /** A string that must be there. */
  text(object: JsonNode, key: string, path: string): string {
    const text = stringMember(object, key);
    if (text === undefined) this.refuse(memberPath(path, key), "must be a string");
    return text ?? "";
  }

  /** A string that may be absent or null. */
  optionalText(object: JsonNode, key: string, path: string): string | undefined {
    return isVoid(jsonMember(object, key)) ? undefined : this.text(object, key, path);
  }

  /** The id that the provider gave, if it gave one. */
  id(object: JsonNode, key: string, path: string): string | undefined {
    const id = this.optionalText(object, key, path);
    if (id !== undefined) this.#checkSize(id, PROVIDER_ID_BYTES, memberPath(path, key));
    return id;
  }

  toolName(object: JsonNode, key: string, path: string): string {
    const name = this.text(object, key, path);
    if (name === "") this.refuse(memberPath(path, key), "must not be empty");
    this.#checkSize(name, TOOL_NAME_BYTES, memberPath(path, key));
    return name;
  }

  #checkSize(text: string, bytesMax: number, path: string): void {
    if (!text.isWellFormed()) this.refuse(path, "must be well-formed Unicode");
    if (Buffer.byteLength(text) > bytesMax) {
      this.refuse(path, `must have at most ${bytesMax} bytes`);
    }
  }
}
