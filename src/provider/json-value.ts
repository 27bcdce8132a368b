/** The value of a JSON text, or nothing if it is none. To be looked at, never to be written again. */
export function jsonValue(text: string): { readonly value: unknown } | undefined {
  try {
    return { value: JSON.parse(text) };
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof RangeError) return undefined;
    throw error;
  }
}

/** Whether a text is one well-formed JSON object. */
export function isJsonObjectText(text: string): boolean {
  const value = jsonValue(text)?.value;
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
