import { equalBytes } from "../../domain/bytes.js";
import { digestOf } from "../../domain/sha256.js";
import type { MetaColumns } from "./rows.js";
import { StoreOpenError } from "./store-open-error.js";

/** What a file says of itself. */
export interface StoreMeta {
  readonly storeId: string;
  /** Log generation, raised by each restore. */
  readonly generation: bigint;
}

/** Guards the row against damage: a lower generation would let revisions come again. */
export function metaChecksum({ storeId, generation }: StoreMeta): Uint8Array {
  return digestOf(["meta", generation, storeId]);
}

/** The row as it was written. Throws StoreOpenError if it is not. */
export function toMeta({ store_id: storeId, generation, checksum }: MetaColumns): StoreMeta {
  const meta = { storeId, generation };
  if (equalBytes(metaChecksum(meta), checksum)) return meta;
  throw new StoreOpenError("unreadable", "the row of the store's id and generation is damaged");
}
