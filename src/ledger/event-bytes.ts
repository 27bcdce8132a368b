import { BinaryReader, type BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { timestampFromMs, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { EventPayloadSchema } from "../../gen/toolmark/storage/v1/storage_pb.js";
import { EventSchema } from "../../gen/toolmark/v1/event_pb.js";
import type { EventRow } from "./store-port.js";

const EVENT = EventSchema.field;
const TIMESTAMP = TimestampSchema.field;
const PAYLOAD = EventPayloadSchema.field;
/** Numbers that the fields of a payload have in the event. */
const NUMBER_IN_EVENT: ReadonlyMap<number, number> = new Map([
  [PAYLOAD.actor.number, EVENT.actor.number],
  [PAYLOAD.record.number, EVENT.record.number],
]);

/**
 * Writes what `eventOf` gives, in its binary form: the payload's fields are put into it as they are stored. `payload`
 * is that of the row, checked.
 */
export function writeEvent(
  writer: BinaryWriter,
  sessionId: string,
  row: EventRow,
  payload: Uint8Array,
): void {
  const { seconds, nanos } = timestampFromMs(row.timeMs);
  writer.tag(EVENT.sessionId.number, WireType.LengthDelimited).string(sessionId);
  writer.tag(EVENT.sequence.number, WireType.Varint).uint64(row.sequence);
  writer.tag(EVENT.position.number, WireType.Varint).uint64(row.position);
  if (row.revision !== undefined) {
    writer.tag(EVENT.revision.number, WireType.Varint).uint64(row.revision);
  }
  writer.tag(EVENT.recordTime.number, WireType.LengthDelimited).fork();
  writer.tag(TIMESTAMP.seconds.number, WireType.Varint).int64(seconds);
  writer.tag(TIMESTAMP.nanos.number, WireType.Varint).int32(nanos).join();
  writer.tag(EVENT.kind.number, WireType.LengthDelimited).string(row.kind);
  writePayload(writer, payload);
}

function writePayload(writer: BinaryWriter, payload: Uint8Array): void {
  const reader = new BinaryReader(payload);
  while (reader.pos < reader.len) {
    const [number, type] = reader.tag();
    const inEvent = NUMBER_IN_EVENT.get(number);
    if (inEvent === undefined || type !== WireType.LengthDelimited) reader.skip(type, number);
    else writer.tag(inEvent, type).bytes(reader.bytes());
  }
}
