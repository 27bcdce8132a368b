const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPENING = new Set([0x5b, 0x7b]);
const CLOSING = new Set([0x5d, 0x7d]);

/** How large a JSON text may be beside its length. */
export interface JsonExtent {
  /** Arrays and objects in each other. */
  readonly depth: number;
  /** Values, taken as many as there are commas and openings at most. */
  readonly values: number;
}

/** In what a JSON text is above its limits, before it is parsed. Nothing if it is within them. */
export function exceededExtent(text: string, limits: JsonExtent): keyof JsonExtent | undefined {
  let depth = 0;
  let values = 1;
  let isInString = false;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit === QUOTE) isInString = !isInString;
    else if (isInString) at += unit === BACKSLASH ? 1 : 0;
    else if (OPENING.has(unit)) {
      depth += 1;
      values += 1;
    } else if (CLOSING.has(unit)) depth -= 1;
    else if (unit === COMMA) values += 1;
    if (depth > limits.depth) return "depth";
    if (values > limits.values) return "values";
  }
  return undefined;
}
