import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import type { Limits } from "../domain/limits.js";
import { mapBodies, storedBodiesOf } from "../domain/record-bodies.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { BodyReader, refuseDamagedBody } from "./body-reader.js";
import type { SessionRef, Store } from "./store-port.js";

type AnyRecord = EventRecord["record"];

const WHOLE = { offsetBytes: 0n, limitBytes: 0n };
/** The field itself, quoted. */
const BESIDE_DATA_BYTES = 16;

/** Bytes that a body's data takes in JSON, where it is in base64. */
export function inlineBytes({ sizeBytes }: Body): number {
  return Math.ceil(Number(sizeBytes) / 3) * 4 + BESIDE_DATA_BYTES;
}

/** Puts bodies into records, each checked whole. */
export class InlineBodies {
  readonly #bodies: BodyReader;
  readonly #inlineBodyBytes: number;

  constructor(store: Store, { inlineBodyBytes }: Limits) {
    this.#bodies = new BodyReader(store, inlineBodyBytes);
    this.#inlineBodyBytes = inlineBodyBytes;
  }

  /**
   * The record with the bytes of its bodies up to the inline limit, of each as long as it fits into `roomBytes` of
   * JSON, and what is left of the room.
   */
  async into<R extends AnyRecord>(
    session: SessionRef,
    record: R,
    roomBytes = Infinity,
  ): Promise<{ readonly record: R; readonly roomBytes: number } | Refusal> {
    const inline: (Uint8Array | undefined)[] = [];
    let left = roomBytes;
    for (const body of storedBodiesOf(record)) {
      const isShown = body.sizeBytes <= BigInt(this.#inlineBodyBytes) && inlineBytes(body) <= left;
      const data = isShown ? await this.#read(session, body.bodyRef) : undefined;
      if (isRefusal(data)) return data;
      if (isShown) left -= inlineBytes(body);
      inline.push(data);
    }
    let next = 0;
    const mapped = mapBodies(record, (body) => {
      const data = body.bodyRef === "" ? undefined : inline[next++];
      return data === undefined ? body : { ...body, data };
    });
    return { record: mapped as R, roomBytes: left };
  }

  async #read(session: SessionRef, bodyRef: string): Promise<Uint8Array | Refusal> {
    const parts = await this.#bodies.read(session, bodyRef, WHOLE);
    if (isRefusal(parts)) {
      // A body that a record names was stored with it.
      const isGone = parts.reason === ErrorReason.BODY_NOT_FOUND;
      return isGone ? refuseDamagedBody(bodyRef) : parts;
    }
    return Buffer.concat([...parts].map(({ chunk }) => chunk));
  }
}
