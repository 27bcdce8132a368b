import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { PageTokenSchema } from "../../gen/toolmark/storage/v1/storage_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { equalBytes } from "../domain/bytes.js";
import { refuse, type Refusal } from "../domain/refusal.js";
import { digestOf } from "../domain/sha256.js";
import type { Store } from "./store-port.js";

const QUERY_DIGEST_BYTES = 8;
/** Stores count in signed 64-bit numbers, tokens in unsigned ones. */
const STORED_BITS = 64;

/** The log that a list is of. A token of a log that was replaced leads nowhere. */
type ListedLog = Pick<Store, "storeId" | "generation">;

function queryDigest({ storeId, generation }: ListedLog, query: readonly string[]): Uint8Array {
  return digestOf([storeId, generation, ...query]).subarray(0, QUERY_DIGEST_BYTES);
}

/** The place before every record of a session. Those that a fork copied have negative places. */
export const FIRST_RECORD = -(2n ** 63n);

/** A place in a list of several sessions, in the order of their creation. */
export interface TreePlace {
  /** `createPosition` of a session, 0 for the first. */
  readonly after: bigint;
  /** The record of that session after which the list goes on; the ones created before it are done. */
  readonly within: bigint;
}

/** A token for the page after a place, of a query named by everything that it was asked with. */
export function pageTokenOf(log: ListedLog, query: readonly string[], after: bigint): string {
  return treePageTokenOf(log, query, { after, within: 0n });
}

/** As `pageTokenOf`, for a list of several sessions. */
export function treePageTokenOf(
  log: ListedLog,
  query: readonly string[],
  { after, within }: TreePlace,
): string {
  const token = create(PageTokenSchema, {
    queryDigest: queryDigest(log, query),
    after: BigInt.asUintN(STORED_BITS, after),
    within: BigInt.asUintN(STORED_BITS, within),
  });
  return Buffer.from(toBinary(PageTokenSchema, token)).toString("base64url");
}

/** The place after which the page begins: 0 without a token. */
export function placeOf(
  log: ListedLog,
  query: readonly string[],
  pageToken: string,
): bigint | Refusal {
  if (pageToken === "") return 0n;
  const after = decode(log, query, pageToken)?.after;
  return after !== undefined && after >= 0n ? after : refuseToken();
}

/** As `placeOf`, for the records of one session: before the first without a token. */
export function recordPlaceOf(
  log: ListedLog,
  query: readonly string[],
  pageToken: string,
): bigint | Refusal {
  if (pageToken === "") return FIRST_RECORD;
  return decode(log, query, pageToken)?.after ?? refuseToken();
}

/** As `placeOf`, for a list of several sessions. */
export function treePlaceOf(
  log: ListedLog,
  query: readonly string[],
  pageToken: string,
): TreePlace | Refusal {
  if (pageToken === "") return { after: 0n, within: FIRST_RECORD };
  const place = decode(log, query, pageToken);
  return place !== undefined && place.after >= 0n ? place : refuseToken();
}

function refuseToken(): Refusal {
  const cause = "the page token is damaged, of another query, or of a log that was replaced";
  return refuse(ErrorReason.PAGE_TOKEN_INVALID, cause);
}

function decode(
  log: ListedLog,
  query: readonly string[],
  pageToken: string,
): TreePlace | undefined {
  const bytes = Buffer.from(pageToken, "base64url");
  if (bytes.toString("base64url") !== pageToken) return undefined;
  try {
    const token = fromBinary(PageTokenSchema, bytes);
    if (!equalBytes(token.queryDigest, queryDigest(log, query))) return undefined;
    return {
      after: BigInt.asIntN(STORED_BITS, token.after),
      within: BigInt.asIntN(STORED_BITS, token.within),
    };
  } catch (error) {
    if (error instanceof Error) return undefined;
    throw error;
  }
}
