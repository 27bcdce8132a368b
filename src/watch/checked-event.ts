import { fromBinary } from "@bufbuild/protobuf";
import type { BinaryWriter } from "@bufbuild/protobuf/wire";
import { EventPayloadSchema } from "../../gen/toolmark/storage/v1/storage_pb.js";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import { writeEvent } from "../ledger/event-bytes.js";
import { eventOf } from "../ledger/event-codec.js";
import type { EventRow } from "../ledger/store-port.js";

/**
 * A committed event, checked against its commitment and the chain. Shared by all who watch it: never changed. Few need
 * it decoded: most are sent its bytes.
 */
export class CheckedEvent {
  readonly row: EventRow;
  /** Chain value before it. */
  readonly chainBefore: Uint8Array;
  readonly #sessionId: string;
  readonly #payload: Uint8Array;
  #event: Event | undefined;

  /** `payload` is that of the row, checked. */
  constructor(sessionId: string, row: EventRow, payload: Uint8Array, chainBefore: Uint8Array) {
    this.#sessionId = sessionId;
    this.row = row;
    this.#payload = payload;
    this.chainBefore = chainBefore;
  }

  get sizeBytes(): number {
    return this.#payload.length;
  }

  get event(): Event {
    return (this.#event ??= eventOf(
      this.#sessionId,
      this.row,
      fromBinary(EventPayloadSchema, this.#payload),
    ));
  }

  /** Writes the event in its binary form. */
  writeTo(writer: BinaryWriter): void {
    writeEvent(writer, this.#sessionId, this.row, this.#payload);
  }
}
