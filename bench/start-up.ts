import { join } from "node:path";
import { prepareLargeStore } from "./large-store.js";
import { measureLoads } from "./load-times.js";
import type { Options } from "./options.js";
import { measureReady } from "./ready-times.js";
import { grouped, print, type Bar } from "./report.js";
import { storePath } from "./service-process.js";
import { measureVerify } from "./verify-rate.js";

/**
 * What must not grow with the log: the time until the service is ready, and until a session takes a command. And how
 * fast the log is verified.
 */
export async function measureStartUp(options: Options, folder: string): Promise<readonly Bar[]> {
  const { events, sessions, rounds, starts, keep } = options;
  print(`\nstart-up: a store of ${grouped(events)} events in ${grouped(sessions)} sessions`);
  const largeFolder = keep ?? join(folder, "large");
  const large = await prepareLargeStore(largeFolder, { events, sessions });
  const loading = await measureLoads(rounds, storePath(largeFolder), large);
  const verifying = await measureVerify(rounds, storePath(largeFolder));
  const ready = await measureReady(starts, largeFolder, folder);
  return [...ready, ...loading, ...verifying];
}
