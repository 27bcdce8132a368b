import { createHash } from "node:crypto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { WriteBodyRequestSchema } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import { given } from "./conversation.js";
import type { Clients } from "./service.js";

export type UploadPart = MessageInitShape<typeof WriteBodyRequestSchema>;

const PART_BYTES = 1024 * 1024;

/** What the first message of an upload may say besides its bytes. */
export interface UploadOptions {
  readonly mediaType?: string;
  readonly sha256?: Uint8Array;
  readonly private?: boolean;
  readonly partBytes?: number;
}

/** The messages of an upload. */
export async function* partsOf(
  sessionId: string,
  data: Uint8Array,
  { partBytes = PART_BYTES, ...said }: UploadOptions = {},
): AsyncGenerator<UploadPart> {
  yield await Promise.resolve({ sessionId, ...said, chunk: data.subarray(0, partBytes) });
  for (let at = partBytes; at < data.length; at += partBytes) {
    yield { chunk: data.subarray(at, at + partBytes) };
  }
}

/** Uploads a body as a harness does. */
export async function upload(
  { evidence }: Clients,
  sessionId: string,
  data: Uint8Array,
  options?: UploadOptions,
): Promise<Body> {
  return given((await evidence.writeBody(partsOf(sessionId, data, options))).body, "body");
}

/** All bytes of a body, or a range of them, and the sizes of the parts that they came in. */
export async function readWhole(
  { history }: Clients,
  sessionId: string,
  bodyRef: string,
  range: { readonly offsetBytes?: bigint; readonly limitBytes?: bigint } = {},
): Promise<{ data: Buffer; parts: number[] }> {
  const parts: Uint8Array[] = [];
  for await (const { chunk } of history.readBody({ sessionId, bodyRef, ...range })) {
    parts.push(chunk);
  }
  return { data: Buffer.concat(parts), parts: parts.map(({ length }) => length) };
}

export function sha256Of(data: Uint8Array): Buffer {
  return createHash("sha256").update(data).digest();
}
