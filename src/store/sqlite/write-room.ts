import { closeSync, openSync, rmSync, statSync, writeSync } from "node:fs";
import { constants } from "node:os";

const PRIVATE_FILE_MODE = 0o600;
/** A page and the header before it, as the log holds them. */
const FRAME_BYTES = 4096 + 24;
const { EFBIG, ENOSPC, EDQUOT } = constants.errno;

/**
 * Whether the write-ahead log could grow: whether a file beside it can be written where the log's next page would go.
 * SQLite tells a full disk from a failed write, but not a limit of file sizes or a quota. False only if one of these is
 * what stands in the way; what else fails here is no lack of room.
 */
export function hasRoom(databasePath: string): boolean {
  const path = `${databasePath}.room`;
  try {
    const log = statSync(`${databasePath}-wal`, { throwIfNoEntry: false });
    return canWriteAt(path, log?.size ?? 0);
  } catch (error) {
    return !isLackOfRoom(error);
  } finally {
    rmSync(path, { force: true });
  }
}

function canWriteAt(path: string, offset: number): boolean {
  // What lies before the offset takes no room.
  const file = openSync(path, "w", PRIVATE_FILE_MODE);
  try {
    return writeSync(file, new Uint8Array(FRAME_BYTES), 0, FRAME_BYTES, offset) === FRAME_BYTES;
  } finally {
    closeSync(file);
  }
}

function isLackOfRoom(error: unknown): boolean {
  if (!(error instanceof Error) || !("errno" in error)) return false;
  // Not by name: a quota's error has none in Node.
  const number = Math.abs(Number(error.errno));
  return number === EFBIG || number === ENOSPC || number === EDQUOT;
}
