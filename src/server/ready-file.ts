import { rename, rm, writeFile } from "node:fs/promises";

export interface ReadyAddresses {
  readonly grpcAddress: string;
  readonly httpAddress: string;
}

/** Written aside and renamed, so that whoever waits for the file never reads half of it. */
export async function writeReadyFile(path: string, addresses: ReadyAddresses): Promise<void> {
  const { grpcAddress, httpAddress } = addresses;
  const aside = `${path}.${String(process.pid)}.tmp`;
  await writeFile(aside, `${JSON.stringify({ grpcAddress, httpAddress })}\n`);
  await rename(aside, path);
}

/** A file of an earlier run must not pass for this one's. */
export async function removeReadyFile(path: string): Promise<void> {
  await rm(path, { force: true });
}
