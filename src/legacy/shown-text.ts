/** Bytes of a text that people read, of a name, and of an id: as many as the service itself takes. */
export const TEXT_BYTES = 16 * 1024;
export const NAME_BYTES = 512;
export const TITLE_BYTES = 1024;
/** References of one review. */
export const REFERENCES = 32;

const utf8 = new TextEncoder();

/** The beginning of a text that would not fit a record; whole characters. The source has the rest. */
export function cutText(text: string, bytesMax: number): string {
  if (text.length * 3 <= bytesMax) return text;
  const bytes = utf8.encode(text);
  if (bytes.length <= bytesMax) return text;
  return new TextDecoder().decode(bytes.subarray(0, bytesMax), { stream: true });
}
