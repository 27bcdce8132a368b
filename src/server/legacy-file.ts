import { constants } from "node:fs";
import { open, type FileHandle } from "node:fs/promises";
import { isSystemError } from "./system-error.js";

/** Why a file of the older system is not read. */
export type FileFault = FileTooLarge | FileUnreadable;

export interface FileTooLarge {
  readonly file: string;
  readonly sizeBytes: number;
  readonly limitBytes: number;
}

export interface FileUnreadable {
  readonly file: string;
  /** In words, for people. */
  readonly unreadable: string;
}

export function isFileFault(value: object): value is FileFault {
  return "limitBytes" in value || "unreadable" in value;
}

// Without waiting: a pipe that took the place of the file would be opened only when somebody writes to it.
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** The bytes of a regular file, as many as it has when it is opened. A symbolic link is not followed. */
export async function readLegacyFile(
  file: string,
  limitBytes: number,
): Promise<Uint8Array | FileFault> {
  try {
    const handle = await open(file, FLAGS);
    try {
      const stat = await handle.stat();
      if (!stat.isFile()) return { file, unreadable: "it is no regular file" };
      if (stat.size > limitBytes) return { file, sizeBytes: stat.size, limitBytes };
      return await readBytes(handle, stat.size);
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (!isSystemError(error)) throw error;
    if (error.code === "ELOOP") return { file, unreadable: "it is a symbolic link" };
    return { file, unreadable: error.message };
  }
}

/** The older system may go on writing: what comes after these bytes is not of this reading. */
async function readBytes(handle: FileHandle, sizeBytes: number): Promise<Uint8Array> {
  const bytes = new Uint8Array(sizeBytes);
  let offset = 0;
  while (offset < sizeBytes) {
    const { bytesRead } = await handle.read(bytes, offset, sizeBytes - offset, offset);
    if (bytesRead === 0) break;
    offset += bytesRead;
  }
  return bytes.subarray(0, offset);
}
