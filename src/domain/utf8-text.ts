const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const lossy = new TextDecoder("utf-8", { ignoreBOM: true });

/** The text of bytes, or nothing if they are not UTF-8. */
export function utf8Text(bytes: Uint8Array): string | undefined {
  try {
    return strict.decode(bytes);
  } catch (error) {
    if (error instanceof TypeError) return undefined;
    throw error;
  }
}

/** The text of bytes. What is not UTF-8 becomes U+FFFD. */
export function lossyUtf8Text(bytes: Uint8Array): string {
  return lossy.decode(bytes);
}
