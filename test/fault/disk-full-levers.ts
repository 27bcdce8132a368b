import { mkdir, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { runProcess } from "../support/run-process.js";
import type { FaultyServer } from "./strace-server.js";

/** A way to leave a server without room, and to give it room again. */
export interface RoomLever {
  readonly name: "small disk" | "file size limit";
  /** Prepares a folder for the store. */
  prepare(folder: string): Promise<void>;
  /** Takes the room from a running server that still has some. */
  tighten(folder: string, server: FaultyServer): Promise<void>;
  /** Gives it room again. */
  loosen(folder: string, server: FaultyServer): Promise<void>;
  /** Undoes `prepare`. */
  remove(folder: string): Promise<void>;
}

const MIB = 1024 * 1024;
const KIB = 1024;
const BALLAST = "ballast";
const ROOM_LEFT_BYTES = 128 * KIB;

async function run(program: string, ...args: string[]): Promise<void> {
  const { code, stderr } = await runProcess(program, args);
  if (code !== 0) throw new Error(`${program}: ${stderr}`);
}

/** A file system of so many MiB, a quarter of which is taken until room is given. */
export function smallDisk(sizeMib: number): RoomLever {
  return {
    name: "small disk",
    prepare: async (folder) => {
      await mkdir(folder);
      await run("mount", "-t", "tmpfs", "-o", `size=${sizeMib}m,mode=0700`, "tmpfs", folder);
      await writeFile(join(folder, BALLAST), Buffer.alloc((sizeMib * MIB) / 4));
    },
    tighten: () => Promise.resolve(),
    loosen: (folder) => rm(join(folder, BALLAST)),
    remove: (folder) => run("umount", "--lazy", folder),
  };
}

/** A limit just above the size of the largest file of the store. */
export function fileSizeLimit(database: string): RoomLever {
  const limit = (server: FaultyServer, size: string): Promise<void> =>
    run("prlimit", "--pid", String(server.pid), `--fsize=${size}:`);
  return {
    name: "file size limit",
    prepare: async (folder) => {
      await mkdir(folder);
    },
    tighten: async (folder, server) => {
      const files = [database, `${database}-wal`].map((name) => stat(join(folder, name)));
      const sizes = (await Promise.all(files)).map(({ size }) => size);
      await limit(server, String(Math.max(...sizes) + ROOM_LEFT_BYTES));
    },
    loosen: (_folder, server) => limit(server, "unlimited"),
    remove: () => Promise.resolve(),
  };
}
