const SURROGATE_ESCAPE = /\\u[dD][89a-fA-F]/;
/** An escape of a JSON string: a pair of surrogates, one surrogate, or any other. */
const ESCAPE = /\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F]..)|\\./g;
const REPLACEMENT = String.raw`\ufffd`;

/** A JSON text with U+FFFD for each surrogate without its mate, escaped or not; else as it is. */
export function strictJson(json: string): string {
  const wellFormed = json.toWellFormed();
  if (!SURROGATE_ESCAPE.test(wellFormed)) return wellFormed;
  return wellFormed.replace(ESCAPE, (escape, lone: string | undefined) =>
    lone === undefined ? escape : REPLACEMENT,
  );
}

/** A text as a JSON string. Surrogates without their mate become U+FFFD. */
export function jsonString(text: string): string {
  return JSON.stringify(text.toWellFormed());
}
