import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { expect, test } from "vitest";
import { EventPayloadSchema } from "../../gen/toolmark/storage/v1/storage_pb.js";
import { EventSchema } from "../../gen/toolmark/v1/event_pb.js";
import { RunSchema } from "../../gen/toolmark/v1/run_pb.js";
import { writeEvent } from "../../src/ledger/event-bytes.js";
import { eventOf } from "../../src/ledger/event-codec.js";
import type { EventRow } from "../../src/ledger/store-port.js";

const NONE = new Uint8Array();
const ROW: EventRow = {
  ...{
    sequence: 3n,
    position: 2n ** 60n,
    revision: 7n,
    kind: "RUN_BEGUN",
    timeMs: 1_700_000_000_123,
  },
  ...{ payload: NONE, salt: NONE, commitment: NONE, privateCommitment: undefined, chain: NONE },
};
const PAYLOAD = create(EventPayloadSchema, {
  actor: { subject: "somebody" },
  record: { record: { case: "run", value: create(RunSchema, { runId: "run_1" }) } },
});
/** A field of a later version, with one of its own within the record. */
const LATER_FIELD = new BinaryWriter().tag(900, WireType.LengthDelimited).string("later").finish();

/** What is told of the row, by way of the event itself. */
function encodedEvent(row: EventRow, payload: Uint8Array): Uint8Array {
  return toBinary(EventSchema, eventOf("session", row, fromBinary(EventPayloadSchema, payload)));
}

function eventBytes(row: EventRow, payload: Uint8Array): Uint8Array {
  const writer = new BinaryWriter();
  writeEvent(writer, "session", row, payload);
  return writer.finish();
}

function decoded(bytes: Uint8Array) {
  return fromBinary(EventSchema, bytes);
}

test.each([
  ["of a whole row", ROW, toBinary(EventPayloadSchema, PAYLOAD)],
  ["without a revision", { ...ROW, revision: undefined }, toBinary(EventPayloadSchema, PAYLOAD)],
  ["with the first revision there is", { ...ROW, revision: 0n }, NONE],
  ["from before the epoch", { ...ROW, timeMs: -1 }, NONE],
  ["with an empty payload", ROW, NONE],
])("an event %s has the bytes that its message has", (_, row, payload) => {
  const bytes = eventBytes(row, payload);
  expect(decoded(bytes)).toEqual(decoded(encodedEvent(row, payload)));
});

test("fields of a record that this version does not know are sent as they are stored", () => {
  const record = new BinaryWriter()
    .tag(EventPayloadSchema.field.record.number, WireType.LengthDelimited)
    .bytes(LATER_FIELD)
    .finish();
  const { record: sent } = decoded(eventBytes(ROW, record));
  expect(sent?.$unknown).toMatchObject([{ no: 900 }]);
});

test("a field that a payload holds in two parts is one in the event too", () => {
  const parts = [PAYLOAD, PAYLOAD].map((payload) => toBinary(EventPayloadSchema, payload));
  const payload = Buffer.concat([...parts, LATER_FIELD]);
  expect(decoded(eventBytes(ROW, payload))).toEqual(decoded(encodedEvent(ROW, payload)));
});
