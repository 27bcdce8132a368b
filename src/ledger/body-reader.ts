import type { Ask } from "../../gen/toolmark/v1/ask_pb.js";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import type { ToolCall, ToolResult } from "../../gen/toolmark/v1/tool_call_pb.js";
import { isRefOf } from "../domain/archive.js";
import { equalBytes } from "../domain/bytes.js";
import type { KnownBody } from "../domain/decide/draft.js";
import { isArchiveRef } from "../domain/identity.js";
import { isJsonObject } from "../domain/json-object.js";
import { STREAM_PART_BYTES } from "../domain/limits.js";
import { isRefusal, refuse, refuseField, type Refusal } from "../domain/refusal.js";
import { sha256 } from "../domain/sha256.js";
import type { BodyRow, SessionRef, Store } from "./store-port.js";

/** Part of a body as it is streamed. */
export interface BodyChunk {
  readonly offsetBytes: bigint;
  readonly chunk: Uint8Array;
  readonly sizeBytes: bigint;
  readonly sha256: Uint8Array;
}

/** Which bytes of a body are wanted; a limit of 0 is none. */
export interface BodyRange {
  readonly offsetBytes: bigint;
  readonly limitBytes: bigint;
}

/** Reads bodies, each checked whole against its digest before any of it is served. */
export class BodyReader {
  readonly #store: Store;
  readonly #inlineBytes: number;

  constructor(store: Store, inlineBytes: number) {
    this.#store = store;
    this.#inlineBytes = inlineBytes;
  }

  async read(
    session: SessionRef,
    bodyRef: string,
    range: BodyRange,
  ): Promise<Iterable<BodyChunk> | Refusal> {
    const body = await readServedBody(this.#store, session, bodyRef);
    if (body === undefined) {
      return refuse(ErrorReason.BODY_NOT_FOUND, "the session has no such body");
    }
    if (!isIntactBody(session, body)) return refuseDamagedBody(bodyRef);
    if (range.offsetBytes > BigInt(body.data.length)) {
      return refuseField("offset_bytes", "is above the size of the body");
    }
    return chunksOf(body, range);
  }

  /** The call with the bytes of its bodies up to the inline limit. */
  async withData(session: SessionRef, call: ToolCall): Promise<ToolCall | Refusal> {
    const proposed = await this.#bodyWithData(session, call.proposed);
    if (isRefusal(proposed)) return proposed;
    const effective = await this.#bodyWithData(session, call.effective);
    if (isRefusal(effective)) return effective;
    const result = await this.#resultWithData(session, call.result);
    if (isRefusal(result)) return result;
    const lateResult = await this.#resultWithData(session, call.lateResult);
    if (isRefusal(lateResult)) return lateResult;
    return { ...call, proposed, effective, result, lateResult };
  }

  /** The ask with the bytes that it presents, up to the inline limit. Those of a held result are not here. */
  async askWithData(session: SessionRef, ask: Ask): Promise<Ask | Refusal> {
    if (ask.presented === undefined || ask.presented.bodyRef === "") return ask;
    const presented = await this.#bodyWithData(session, ask.presented);
    if (isRefusal(presented)) return presented;
    return presented === undefined ? ask : { ...ask, presented };
  }

  async #resultWithData(
    session: SessionRef,
    result: ToolResult | undefined,
  ): Promise<ToolResult | undefined | Refusal> {
    if (result === undefined) return undefined;
    const content = await this.#bodyWithData(session, result.content);
    return isRefusal(content) ? content : { ...result, content };
  }

  async #bodyWithData(
    session: SessionRef,
    body: Body | undefined,
  ): Promise<Body | undefined | Refusal> {
    if (body === undefined || body.sizeBytes > BigInt(this.#inlineBytes)) return body;
    const whole = await readWholeBody(this.#store, session, body);
    return isRefusal(whole) ? whole : { ...body, data: whole.data };
  }
}

/** What a body reference stands for, proven by the bytes themselves. */
export async function findBody(
  store: Store,
  session: SessionRef,
  bodyRef: string,
): Promise<KnownBody | undefined | Refusal> {
  const body = await readServedBody(store, session, bodyRef);
  if (body === undefined) return undefined;
  if (!isIntactBody(session, body)) return refuseDamagedBody(bodyRef);
  const { sha256: digest, data } = body;
  return {
    bodyRef,
    sha256: digest,
    sizeBytes: data.length,
    isJsonObject: isJsonObject(data),
  };
}

/** A body that may be shown and named: sources of older systems hold what is private. */
function readServedBody(
  store: Store,
  session: SessionRef,
  bodyRef: string,
): Promise<BodyRow | undefined> {
  return isArchiveRef(bodyRef) ? Promise.resolve(undefined) : store.readBody(session, bodyRef);
}

/** Whether the bytes are those that the reference was made of, and the row says so. */
export function isIntactBody({ sessionId }: SessionRef, body: BodyRow): boolean {
  const digest = sha256(body.data);
  return (
    equalBytes(digest, body.sha256) &&
    isRefOf(sessionId, body.bodyRef, digest) &&
    body.sizeBytes === body.data.length
  );
}

export function refuseDamagedBody(bodyRef: string): Refusal {
  return refuse(ErrorReason.DATA_DAMAGED, "a body does not match its digest and is not served", {
    id: bodyRef,
  });
}

function* chunksOf(body: BodyRow, { offsetBytes, limitBytes }: BodyRange): Generator<BodyChunk> {
  const size = body.data.length;
  const start = Number(offsetBytes);
  const end = limitBytes === 0n ? size : Math.min(size, start + Number(limitBytes));
  let at = start;
  do {
    yield {
      offsetBytes: BigInt(at),
      chunk: body.data.subarray(at, Math.min(at + STREAM_PART_BYTES, end)),
      sizeBytes: BigInt(size),
      sha256: body.sha256,
    };
    at += STREAM_PART_BYTES;
  } while (at < end);
}

/** The bytes that a record says it has, checked. A body that a record names was stored with it. */
export async function readWholeBody(
  store: Store,
  session: SessionRef,
  named: Body | undefined,
): Promise<{ readonly data: Uint8Array; readonly mediaType: string } | Refusal> {
  const { bodyRef = "", sha256: digest = new Uint8Array(), mediaType = "" } = named ?? {};
  const body = await readServedBody(store, session, bodyRef);
  if (body === undefined || !equalBytes(sha256(body.data), digest)) {
    return refuseDamagedBody(bodyRef);
  }
  return { data: body.data, mediaType };
}
