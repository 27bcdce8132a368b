import { parseTree, printParseErrorCode, type Node, type ParseError } from "jsonc-parser";

/** A value of a JSON text and where it stands: `text.slice(offset, offset + length)` is it as it was written. */
export type JsonNode = Node;

/** Why a text is not one JSON value. */
export interface JsonFault {
  readonly fault: string;
  /** Index in the text. */
  readonly offset: number;
}

const STRICT = { disallowComments: true, allowTrailingComma: false, allowEmptyContent: false };

/** The values of a JSON text. Only looked at: what is taken from it is taken as it was written. */
export function parseJsonText(text: string): JsonNode | JsonFault {
  const errors: ParseError[] = [];
  try {
    const root = parseTree(text, errors, STRICT);
    const [first] = errors;
    if (first !== undefined) {
      return { fault: printParseErrorCode(first.error), offset: first.offset };
    }
    return root ?? { fault: "ValueExpected", offset: 0 };
  } catch (error) {
    if (error instanceof RangeError) return { fault: "NestedTooDeeply", offset: 0 };
    throw error;
  }
}

export function isJsonFault(parsed: JsonNode | JsonFault): parsed is JsonFault {
  return "fault" in parsed;
}

/** The member of an object under exactly this key, the last one if it is repeated. */
export function jsonMember(node: JsonNode, key: string): JsonNode | undefined {
  return node.children?.findLast(({ children }) => children?.[0]?.value === key)?.children?.[1];
}
