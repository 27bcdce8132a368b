/** Where a value stands in a JSON text, as string indices: `text.slice(start, end)` is the value as it was written. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

export type JsonPath = readonly (string | number)[];

const WHITESPACE = " \t\n\r";
const LITERAL = /true|false|null|-?\d+(?:[.]\d+)?(?:[eE][+-]?\d+)?/y;

function skipWhitespace(text: string, from: number): number {
  let at = from;
  while (at < text.length && WHITESPACE.includes(text.charAt(at))) at += 1;
  return at;
}

function fail(text: string, at: number, wanted: string): never {
  throw new SyntaxError(`JSON text has ${JSON.stringify(text.charAt(at))} at ${at}, not ${wanted}`);
}

function endOfString(text: string, start: number): number {
  if (text.charAt(start) !== '"') fail(text, start, "a string");
  let at = start + 1;
  while (text.charAt(at) !== '"') {
    if (at >= text.length) fail(text, at, "the end of a string");
    at += text.charAt(at) === "\\" ? 2 : 1;
  }
  return at + 1;
}

function endOfLiteral(text: string, start: number): number {
  LITERAL.lastIndex = start;
  if (!LITERAL.test(text)) fail(text, start, "a value");
  return LITERAL.lastIndex;
}

type Visit = (key: string | number, value: Span) => void;

/** Steps over an object or array that starts at `start`, and says where each member's value stands. */
function endOfContainer(text: string, start: number, visit: Visit): number {
  const isObject = text.charAt(start) === "{";
  const close = isObject ? "}" : "]";
  let at = skipWhitespace(text, start + 1);
  if (text.charAt(at) === close) return at + 1;
  for (let index = 0; ; index += 1) {
    let key: string | number = index;
    if (isObject) {
      const endOfKey = endOfString(text, at);
      key = String(JSON.parse(text.slice(at, endOfKey)));
      at = skipWhitespace(text, endOfKey);
      if (text.charAt(at) !== ":") fail(text, at, "a colon");
      at = skipWhitespace(text, at + 1);
    }
    const end = endOfValue(text, at, () => undefined);
    visit(key, { start: at, end });
    at = skipWhitespace(text, end);
    if (text.charAt(at) === close) return at + 1;
    if (text.charAt(at) !== ",") fail(text, at, `a comma or ${close}`);
    at = skipWhitespace(text, at + 1);
  }
}

function endOfValue(text: string, start: number, visit: Visit): number {
  const first = text.charAt(start);
  if (first === '"') return endOfString(text, start);
  if (first === "{" || first === "[") return endOfContainer(text, start, visit);
  return endOfLiteral(text, start);
}

/**
 * The span of the value at a path, or nothing if there is none. Of repeated keys the last counts, as for JSON.parse.
 */
export function jsonSpan(text: string, path: JsonPath): Span | undefined {
  const root = skipWhitespace(text, 0);
  let span: Span | undefined = { start: root, end: endOfValue(text, root, () => undefined) };
  for (const step of path) {
    if (span === undefined) return undefined;
    let found: Span | undefined;
    endOfValue(text, span.start, (key, value) => {
      if (key === step) found = value;
    });
    span = found;
  }
  return span;
}
