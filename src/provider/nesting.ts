const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPENING = new Set([0x5b, 0x7b]);
const CLOSING = new Set([0x5d, 0x7d]);
const COMMA = 0x2c;

/** Whether a JSON text has more than `valuesMax` values. At most as many are taken as there are commas and openings. */
export function hasMoreValues(text: string, valuesMax: number): boolean {
  let values = 1;
  let isInString = false;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit === QUOTE) isInString = !isInString;
    else if (isInString) at += unit === BACKSLASH ? 1 : 0;
    else if (unit === COMMA || OPENING.has(unit)) values += 1;
    if (values > valuesMax) return true;
  }
  return false;
}

/** Whether arrays and objects of a JSON text are nested deeper than `depthMax`. */
export function isNestedDeeper(text: string, depthMax: number): boolean {
  let depth = 0;
  let isInString = false;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit === QUOTE) isInString = !isInString;
    else if (isInString) at += unit === BACKSLASH ? 1 : 0;
    else if (OPENING.has(unit)) depth += 1;
    else if (CLOSING.has(unit)) depth -= 1;
    if (depth > depthMax) return true;
  }
  return false;
}
