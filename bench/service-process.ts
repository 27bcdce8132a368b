import { join, resolve } from "node:path";
import { type ServerProcess, startServer } from "./child-process.js";

const DIST = resolve(import.meta.dirname, "..");

/** Where a service keeps its store, below a folder of its own. */
export function storePath(folder: string): string {
  return join(folder, "toolmark.db");
}

/** Starts the built service on the store of a folder, on free ports. */
export function startService(folder: string, profile?: string): Promise<ServerProcess> {
  const profiling =
    profile === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${resolve(profile)}`];
  return startServer(
    "service",
    [
      ...profiling,
      join(DIST, "bin/server.js"),
      ...["--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"],
      ...["--store", `sqlite:${storePath(folder)}`],
    ],
    folder,
  );
}
