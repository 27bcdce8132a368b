import { link, open, realpath, rm, type FileHandle } from "node:fs/promises";
import { constants, type Stats } from "node:fs";
import { dirname } from "node:path";
import { StoreOpenError } from "../store/sqlite/store-open-error.js";
import { randomBytes } from "./system.js";

const SECRET_BYTES = 32;
const FORMAT_VERSION = 1;
const FILE_MODE = 0o600;
const MODE_OF_OTHERS = 0o077;
const FILE_BYTES_MAX = 4096;

/** What answer tokens are derived from. Never logged, and in no message. */
export interface StoreSecret {
  /** 32 bytes. */
  readonly secret: Uint8Array;
  /** Whether there was none: tokens that were given before, if any, are void. */
  readonly created: boolean;
}

/**
 * The secret of a store, in a file beside its database: `<database path>.secret`, mode 0600, one line of JSON. Makes it
 * if there is none; an existing one is only read. The database exists, and is this process's. Throws StoreOpenError:
 * "unreadable" for what is no secret, "newer_schema" for a newer format, "weak_setting" for a file that others may read
 * or write, "unavailable" for what the file system refuses.
 */
export async function loadStoreSecret(databasePath: string): Promise<StoreSecret> {
  try {
    // As with the lock: links to one database lead to one secret.
    const path = `${await realpath(databasePath)}.secret`;
    const found = await findSecret(path);
    return found === undefined ? await makeSecret(path) : { secret: found, created: false };
  } catch (error) {
    if (error instanceof StoreOpenError || !(error instanceof Error)) throw error;
    const path = `${databasePath}.secret`;
    throw new StoreOpenError(
      "unavailable",
      `cannot open or make ${path}: ${error.message}`,
      { path, cause: error.message },
      { cause: error },
    );
  }
}

async function findSecret(path: string): Promise<Uint8Array | undefined> {
  const file = await openExisting(path);
  if (file === undefined) return undefined;
  try {
    const stats = await file.stat();
    refuseExposed(path, stats);
    if (!stats.isFile() || stats.size > FILE_BYTES_MAX) throw notASecret(path);
    return secretOf(path, await file.readFile("utf8"));
  } finally {
    await file.close();
  }
}

async function openExisting(path: string): Promise<FileHandle | undefined> {
  try {
    // A pipe in the place of a file must not keep the start waiting.
    return await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
}

/** Written aside and linked: under its name there is never half a secret, and never a second one. */
async function makeSecret(path: string): Promise<StoreSecret> {
  const secret = randomBytes(SECRET_BYTES);
  const aside = `${path}.${Buffer.from(randomBytes(8)).toString("hex")}.tmp`;
  try {
    await writeDurably(aside, textOf(secret));
    await link(aside, path);
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
    const found = await findSecret(path);
    if (found === undefined) throw error;
    return { secret: found, created: false };
  } finally {
    await rm(aside, { force: true });
  }
  await syncFolder(dirname(path));
  return { secret, created: true };
}

async function writeDurably(path: string, text: string): Promise<void> {
  const file = await open(path, "wx", FILE_MODE);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Makes a new name in the folder survive power loss. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

function textOf(secret: Uint8Array): string {
  const encoded = Buffer.from(secret).toString("base64url");
  return `${JSON.stringify({ version: FORMAT_VERSION, secret: encoded })}\n`;
}

function secretOf(path: string, text: string): Uint8Array {
  const content = parseJson(text);
  if (typeof content !== "object" || content === null) throw notASecret(path);
  const { version, secret }: { version?: unknown; secret?: unknown } = content;
  if (typeof version === "number" && version > FORMAT_VERSION) throw newerFormat(path, version);
  if (version !== FORMAT_VERSION || typeof secret !== "string") throw notASecret(path);
  const bytes = Buffer.from(secret, "base64url");
  const isWhole = bytes.length === SECRET_BYTES && bytes.toString("base64url") === secret;
  if (!isWhole) throw notASecret(path);
  return bytes;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    // Its message quotes the text, so it is not passed on.
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function refuseExposed(path: string, { mode }: Stats): void {
  if ((mode & MODE_OF_OTHERS) === 0) return;
  const found = (mode & 0o777).toString(8).padStart(4, "0");
  throw new StoreOpenError(
    "weak_setting",
    `${path} has mode ${found}, so others than its owner may use it: set mode 0600. If somebody may have read it, ` +
      "remove it: a new one is made, and answer tokens given before are void",
    { path, expected: "0600", found },
  );
}

function notASecret(path: string): StoreOpenError {
  return new StoreOpenError(
    "unreadable",
    `${path} holds no secret of a store: put the right file back, or remove it: a new one is made, and answer tokens ` +
      "given before are void",
    { path },
  );
}

function newerFormat(path: string, version: number): StoreOpenError {
  const found = String(version);
  return new StoreOpenError(
    "newer_schema",
    `${path} has format version ${found}, newer than ${String(FORMAT_VERSION)}: use the newer program`,
    { path, found },
  );
}

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}
