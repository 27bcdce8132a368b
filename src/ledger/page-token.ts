import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { PageTokenSchema } from "../../gen/toolmark/storage/v1/storage_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { equalBytes } from "../domain/bytes.js";
import { refuse, type Refusal } from "../domain/refusal.js";
import { digestOf } from "../domain/sha256.js";
import type { Store } from "./store-port.js";

const QUERY_DIGEST_BYTES = 8;
/** Stores count in signed 64-bit numbers. */
const PLACE_MAX = 2n ** 63n - 1n;

/** The log that a list is of. A token of a log that was replaced leads nowhere. */
type ListedLog = Pick<Store, "storeId" | "generation">;

function queryDigest({ storeId, generation }: ListedLog, query: readonly string[]): Uint8Array {
  return digestOf([storeId, generation, ...query]).subarray(0, QUERY_DIGEST_BYTES);
}

/** A token for the page after a place, of a query named by everything that it was asked with. */
export function pageTokenOf(log: ListedLog, query: readonly string[], after: bigint): string {
  const token = create(PageTokenSchema, { queryDigest: queryDigest(log, query), after });
  return Buffer.from(toBinary(PageTokenSchema, token)).toString("base64url");
}

/** The place after which the page begins: 0 without a token. */
export function placeOf(
  log: ListedLog,
  query: readonly string[],
  pageToken: string,
): bigint | Refusal {
  if (pageToken === "") return 0n;
  const after = decode(pageToken, queryDigest(log, query));
  const cause = "the page token is damaged, of another query, or of a log that was replaced";
  return after ?? refuse(ErrorReason.PAGE_TOKEN_INVALID, cause);
}

function decode(pageToken: string, digest: Uint8Array): bigint | undefined {
  const bytes = Buffer.from(pageToken, "base64url");
  if (bytes.toString("base64url") !== pageToken) return undefined;
  try {
    const token = fromBinary(PageTokenSchema, bytes);
    const isOfQuery = equalBytes(token.queryDigest, digest);
    return isOfQuery && token.after <= PLACE_MAX ? token.after : undefined;
  } catch (error) {
    if (error instanceof Error) return undefined;
    throw error;
  }
}
