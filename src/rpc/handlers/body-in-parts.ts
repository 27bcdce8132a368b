import {
  WriteBodyRequestSchema,
  type WriteBodyRequest,
} from "../../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { create } from "@bufbuild/protobuf";
import type { Refusal } from "../../domain/refusal.js";
import type { BodyHead, BodyParts } from "../../ledger/body-writer.js";
import { checkFirstPart, checkLaterPart } from "../validate/uploads.js";

/** An upload: what its first message says, and the bytes of all of them. */
export interface BodyInParts {
  readonly head: BodyHead;
  readonly parts: BodyParts;
}

/** The messages of an upload, each checked as it comes. */
export async function bodyInParts(
  requests: AsyncGenerator<WriteBodyRequest>,
): Promise<BodyInParts | Refusal> {
  const first = await requests.next();
  const head = first.done === true ? create(WriteBodyRequestSchema) : first.value;
  return checkFirstPart(head) ?? { head, parts: partsOf(head, requests) };
}

async function* partsOf(
  { chunk: first }: WriteBodyRequest,
  others: AsyncIterable<WriteBodyRequest>,
): AsyncGenerator<Uint8Array | Refusal> {
  yield first;
  for await (const request of others) yield checkLaterPart(request) ?? request.chunk;
}
