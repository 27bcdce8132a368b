import type { Body } from "../../gen/toolmark/v1/body_pb.js";

/**
 * The bytes of a body as far as they were read, from its beginning. Absent if none were.
 */
export type BytesOf = (body: Body) => Uint8Array | undefined;

/** Bytes of a body that are shown at most. */
export const SHOWN_BODY_BYTES = 64 * 1024;

/** A body for display: its text, or what can be said of it instead. Empty for an empty body. */
export function bodyText(body: Body, bytesOf: BytesOf): string {
  const { sizeBytes, mediaType } = body;
  if (sizeBytes === 0n) return "";
  const bytes = bytesOf(body)?.subarray(0, SHOWN_BODY_BYTES);
  if (bytes === undefined) return `(${sizeBytes.toString()} bytes, not read)`;
  const left = sizeBytes - BigInt(bytes.length);
  const text = decoded(bytes, left > 0n);
  if (text === undefined) {
    const type = mediaType === "" ? "" : ` of ${mediaType}`;
    return `(${sizeBytes.toString()} bytes${type} that are no text)`;
  }
  return left > 0n ? `${text}\n(${left.toString()} more bytes)` : text;
}

/** The arguments of a call as an editor shows them: the object that they spell. Absent if they spell none. */
export function shownObject(body: Body, bytesOf: BytesOf): object | undefined {
  if (!body.isJsonObject || body.sizeBytes > BigInt(SHOWN_BODY_BYTES)) return undefined;
  const bytes = bytesOf(body);
  if (bytes === undefined || BigInt(bytes.length) !== body.sizeBytes) return undefined;
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(bytes));
    return typeof value === "object" && value !== null ? value : undefined;
  } catch (error) {
    // As where the service looked at it: the text may be too deep for this machine.
    if (error instanceof SyntaxError || error instanceof RangeError) return undefined;
    throw error;
  }
}

/** Of a text that goes on, a half character at the end is left out. */
function decoded(bytes: Uint8Array, goesOn: boolean): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: goesOn });
  } catch (error) {
    if (error instanceof TypeError) return undefined;
    throw error;
  }
}

/** A text of at most so many characters. */
export function shortened(text: string, limit: number): string {
  if (text.length <= limit) return text;
  return `${text.slice(0, limit)}… (${text.length - limit} more characters)`;
}
