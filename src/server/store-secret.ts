import { link, open, realpath, rm, type FileHandle } from "node:fs/promises";
import { constants, type Stats } from "node:fs";
import { dirname } from "node:path";
import { StoreOpenError } from "../store/sqlite/store-open-error.js";
import {
  hasCode,
  nameBeside,
  realPathOf,
  replaceDurably,
  syncFolder,
  writeDurably,
} from "./durable-file.js";
import { randomBytes } from "./system.js";

const SECRET_BYTES = 32;
const FORMAT_VERSION = 1;
const MODE_OF_OTHERS = 0o077;
const FILE_BYTES_MAX = 4096;
/** Revisions of a generation begin at 2^32 times it and have 63 bits. */
const GENERATION_MAX = 2 ** 31 - 1;

/** What answer tokens are derived from. Never logged, and in no message. */
export interface StoreSecret {
  /** 32 bytes. */
  readonly secret: Uint8Array;
  /** Whether there was none: tokens that were given before, if any, are void. */
  readonly created: boolean;
}

/** The file as it was read. */
interface SecretFile {
  readonly secret: Uint8Array;
  readonly generation: bigint;
  /** Everything in it, with what this program knows nothing of. */
  readonly members: object;
}

/**
 * The secret of a store, in a file beside its database: `<database path>.secret`, mode 0600, one line of JSON. Makes it
 * if there is none. The file also keeps the store's log generation, which an older copy of the database does not know:
 * one that is below that of the database is raised to it. The database exists, and is this process's. Throws
 * StoreOpenError: "events_missing" if the file's generation is above that of the database, "unreadable" for what is no
 * secret, "newer_schema" for a newer format, "weak_setting" for a file that others may read or write, "unavailable" for
 * what the file system refuses.
 */
export function loadStoreSecret(databasePath: string, generation = 0n): Promise<StoreSecret> {
  return atSecretOf(databasePath, async () => {
    // As with the lock: links to one database lead to one secret.
    const path = `${await realpath(databasePath)}.secret`;
    const found = (await findSecret(path)) ?? (await makeSecret(path, generation));
    if ("created" in found) return found;
    if (found.generation > generation) throw replacedByHand(path, found.generation, generation);
    if (found.generation < generation) await writeGeneration(path, found, generation);
    return { secret: found.secret, created: false };
  });
}

/**
 * The log generation that the secret file of a database keeps, which may not be there itself; absent if there is no
 * such file. Throws StoreOpenError as `loadStoreSecret` does.
 */
export function storedGeneration(databasePath: string): Promise<bigint | undefined> {
  return atSecretOf(databasePath, async () => (await findBeside(databasePath))?.generation);
}

/**
 * Keeps a log generation in the secret file, durably, before a database of that generation takes its place. Makes the
 * file if there is none. The store is this process's. Throws StoreOpenError as `loadStoreSecret` does.
 */
export function keepGeneration(databasePath: string, generation: bigint): Promise<void> {
  return atSecretOf(databasePath, async () => {
    const path = `${await realPathOf(databasePath)}.secret`;
    const found = (await findSecret(path)) ?? (await makeSecret(path, generation));
    if ("created" in found || found.generation >= generation) return;
    await writeGeneration(path, found, generation);
  });
}

async function atSecretOf<T>(databasePath: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
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

async function findBeside(databasePath: string): Promise<SecretFile | undefined> {
  try {
    return await findSecret(`${await realPathOf(databasePath)}.secret`);
  } catch (error) {
    // Not even the folder is there.
    if (hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
}

async function findSecret(path: string): Promise<SecretFile | undefined> {
  const file = await openExisting(path);
  if (file === undefined) return undefined;
  try {
    const stats = await file.stat();
    refuseExposed(path, stats);
    if (!stats.isFile() || stats.size > FILE_BYTES_MAX) throw notASecret(path);
    return contentOf(path, await file.readFile("utf8"));
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
async function makeSecret(path: string, generation: bigint): Promise<StoreSecret | SecretFile> {
  const secret = randomBytes(SECRET_BYTES);
  const aside = nameBeside(path);
  try {
    await writeDurably(aside, textOf(membersOf(secret), generation));
    await link(aside, path);
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
    const found = await findSecret(path);
    if (found === undefined) throw error;
    return found;
  } finally {
    await rm(aside, { force: true });
  }
  await syncFolder(dirname(path));
  return { secret, created: true };
}

function writeGeneration(path: string, found: SecretFile, generation: bigint): Promise<void> {
  return replaceDurably(path, textOf(found.members, generation));
}

function membersOf(secret: Uint8Array): object {
  return { version: FORMAT_VERSION, secret: Buffer.from(secret).toString("base64url") };
}

/** The first generation is not told of: most stores are never restored. */
function textOf(members: object, generation: bigint): string {
  const kept = generation === 0n ? {} : { generation: Number(generation) };
  return `${JSON.stringify({ ...members, ...kept })}\n`;
}

function contentOf(path: string, text: string): SecretFile {
  const members = parseJson(text);
  if (typeof members !== "object" || members === null) throw notASecret(path);
  const content: { version?: unknown; secret?: unknown; generation?: unknown } = members;
  const { version, secret, generation = 0 } = content;
  if (typeof version === "number" && version > FORMAT_VERSION) throw newerFormat(path, version);
  if (version !== FORMAT_VERSION || typeof secret !== "string") throw notASecret(path);
  const bytes = Buffer.from(secret, "base64url");
  const isWhole = bytes.length === SECRET_BYTES && bytes.toString("base64url") === secret;
  if (!isWhole || !isGeneration(generation)) throw notASecret(path);
  return { secret: bytes, generation: BigInt(generation), members };
}

function isGeneration(value: unknown): value is number {
  return Number.isInteger(value) && Number(value) >= 0 && Number(value) <= GENERATION_MAX;
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

function replacedByHand(path: string, kept: bigint, found: bigint): StoreOpenError {
  const generations = `${path} keeps log generation ${kept}, the database has ${found}`;
  return new StoreOpenError(
    "events_missing",
    `${generations}: an older copy was put in its place by hand, or a restore was cut off. Run toolmark restore ` +
      "with the copy to go on with, which may be this database itself: it begins a new generation, so that no " +
      "revision comes again",
    { path, expected: String(kept), found: String(found) },
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
