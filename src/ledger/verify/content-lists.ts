import { fromBinary, type DescMessage } from "@bufbuild/protobuf";
import { ProviderPairingSchema } from "../../../gen/toolmark/engine/v1/command_pb.js";
import {
  ProviderTurnSchema,
  RequestOutcomeSchema,
} from "../../../gen/toolmark/storage/v1/storage_pb.js";
import { equalBytes } from "../../domain/bytes.js";
import { isCommitment } from "../../domain/chain.js";
import { isArchiveRef } from "../../domain/identity.js";
import { isJsonObject } from "../../domain/json-object.js";
import { isSha256 } from "../../domain/sha256.js";
import { isIntactBody } from "../body-reader.js";
import { requestChecksum } from "../checksums.js";
import type { BodyRow, PairingRow, RequestRow, SessionRow, SessionRows } from "../store-port.js";
import { digestText, type ExpectedBody, type ExpectedPairing } from "./expected-rows.js";
import type { RowFault, RowList } from "./listed-rows.js";
import type { SessionLog } from "./session-log.js";

/** Bodies above it have a turn of their own. */
const LARGE_BODY_BYTES = 256 * 1024;

/** The items of a response are as large as the response. */
const PAIRING_PAGE_ROWS = 16;

/** What was gone through of the bodies. */
export interface BodyCount {
  bodies: number;
  bytes: number;
}

/** Bodies: each must be the one that its reference was made of. */
export function bodyList(
  rows: SessionRows,
  session: SessionRow,
  log: SessionLog,
  count: BodyCount,
): RowList<string, string> {
  const { bodies } = log.expected;
  return {
    table: "bodies",
    start: "",
    list: (after, limit) => rows.listBodyRefs(session, after, limit),
    placeOf: (ref) => ref,
    check: async (key) => {
      const [body] = await log.readPage("bodies", key, 1, async () => [
        await rows.readBody(session, key),
      ]);
      if (body === undefined) return { key, fault: "is missing" };
      if (body.data.length > LARGE_BODY_BYTES) await log.pause();
      count.bodies += 1;
      count.bytes += body.data.length;
      const expected = bodies.get(key);
      if (expected !== undefined) expected.isListed = true;
      const fault = bodyFault(session, body, expected);
      return fault === undefined ? undefined : { key, fault };
    },
    missing: (sequence) => missingRow(bodies, sequence),
  };
}

function bodyFault(
  session: SessionRow,
  body: BodyRow,
  expected: ExpectedBody | undefined,
): string | undefined {
  const { data, sizeBytes } = body;
  // The events have proven the reference by the digest; without them the bytes must.
  const isIntact =
    expected === undefined
      ? isIntactBody(session, body)
      : isSha256(body.sha256, data) &&
        digestText(body.sha256) === expected.sha256 &&
        data.length === sizeBytes;
  if (!isIntact) return "does not match its reference, digest or size";
  if (body.isJsonObject !== (!isArchiveRef(body.bodyRef) && isJsonObject(data))) {
    return "is wrongly marked as a JSON object or none";
  }
  if (expected === undefined) return undefined;
  const isSame =
    BigInt(sizeBytes) === expected.sizeBytes && body.isJsonObject === expected.isJsonObject;
  return isSame ? undefined : "is not as the events describe it";
}

/** Provider pairings: each is covered by the private commitment of its event. */
export function pairingList(
  rows: SessionRows,
  session: SessionRow,
  { expected: { pairings }, isErased }: SessionLog,
): RowList<PairingRow, string> {
  return {
    table: "pairings",
    start: "",
    pageRows: PAIRING_PAGE_ROWS,
    list: (after, limit) => rows.listPairings(session, after, limit),
    placeOf: ({ recordId }) => recordId,
    check: (row) => {
      const key = row.recordId;
      const { sequence, salt, pairing } = row;
      if (isErased && salt === undefined && pairing === undefined) return undefined;
      const expected = pairings.get(key);
      if (expected === undefined) return { key, sequence, fault: "is of a record without one" };
      expected.isListed = true;
      const fault = pairingFault(row, expected);
      return fault === undefined ? undefined : { key, sequence: expected.firstSequence, fault };
    },
    missing: (sequence) => missingRow(pairings, sequence),
  };
}

function pairingFault(
  { sequence, salt, pairing }: PairingRow,
  expected: ExpectedPairing,
): string | undefined {
  if (sequence !== expected.firstSequence) return "names another event than its own";
  if (salt === undefined || pairing === undefined) return "has no bytes or no salt";
  if (!isCommitment(expected.commitment, salt, pairing)) {
    return "does not match the private commitment of its event";
  }
  const schema = expected.of === "turn" ? ProviderTurnSchema : ProviderPairingSchema;
  return isDecodable(schema, pairing) ? undefined : "cannot be decoded";
}

/** Remembered requests. No event tells of them, so that a missing one is not noticed. */
export function requestList(
  rows: SessionRows,
  session: SessionRow,
  log: SessionLog,
): RowList<RequestRow, string> {
  return {
    table: "requests",
    start: "",
    list: (after, limit) => rows.listRequests(session, after, limit),
    placeOf: ({ requestId }) => requestId,
    check: (row) => {
      const key = row.requestId;
      if (!equalBytes(requestChecksum(session, row), row.checksum)) {
        return { key, fault: "does not match its checksum" };
      }
      return outcomeFault(key, row.outcome, log.sequence);
    },
    missing: () => undefined,
  };
}

function outcomeFault(key: string, outcome: Uint8Array, head: bigint): RowFault | undefined {
  if (!isDecodable(RequestOutcomeSchema, outcome)) {
    return { key, fault: "has an outcome that cannot be decoded" };
  }
  const { commands } = fromBinary(RequestOutcomeSchema, outcome);
  const sequences = commands.flatMap((command) => command.sequences);
  const sequence = sequences.find((named) => named < 1n || named > head);
  return sequence === undefined
    ? undefined
    : { key, sequence, fault: "names an event that is not there" };
}

function missingRow(
  expected: ReadonlyMap<string, { readonly firstSequence: bigint; readonly isListed: boolean }>,
  until: bigint,
): RowFault | undefined {
  for (const [key, { isListed, firstSequence: sequence }] of expected) {
    if (!isListed && sequence <= until) return { key, sequence, fault: "is missing" };
  }
  return undefined;
}

function isDecodable(schema: DescMessage, bytes: Uint8Array): boolean {
  try {
    fromBinary(schema, bytes);
    return true;
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    return false;
  }
}
