import { existsSync, readdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const LIBRARIES = "/usr/lib";
const LIBRARY = "faketime/libfaketime.so.1";
const DAY_MS = 86_400_000;

/** Path of libfaketime; empty where it is not installed. */
function faketimeLibrary(): string {
  const folders = ["", ...(existsSync(LIBRARIES) ? readdirSync(LIBRARIES) : [])];
  return (
    folders.map((folder) => join(LIBRARIES, folder, LIBRARY)).find((path) => existsSync(path)) ?? ""
  );
}

/**
 * Whether clocks can be set here. Where they cannot, that is an error in CI and in a run of the fault suite, and a
 * printed line elsewhere.
 */
export function canSetClocks(
  environment: NodeJS.ProcessEnv = process.env,
  library = faketimeLibrary(),
): boolean {
  if (library !== "") return true;
  const missing = "libfaketime is not installed (Debian: faketime): the clock of no server was set";
  if ((environment["CI"] ?? "") !== "" || (environment["FAULT_RESULTS"] ?? "") !== "") {
    throw new Error(missing);
  }
  process.stdout.write(`${missing}\n`);
  return false;
}

/** The wall clock of processes that start with its environment, apart from that of the machine. */
export class FakeClock {
  readonly environment: Readonly<Record<string, string>>;
  readonly #path: string;
  #aheadMs = 0;

  constructor(folder: string, days: number) {
    this.#path = join(folder, "clock");
    this.environment = {
      LD_PRELOAD: faketimeLibrary(),
      FAKETIME_TIMESTAMP_FILE: this.#path,
      FAKETIME_NO_CACHE: "1",
      FAKETIME_DONT_FAKE_MONOTONIC: "1",
    };
    this.set(days);
  }

  /** Sets the clock so many days ahead of the machine's, or behind it. */
  set(days: number): void {
    const next = `${this.#path}.next`;
    writeFileSync(next, `${days < 0 ? "" : "+"}${days}d`);
    renameSync(next, this.#path);
    this.#aheadMs = days * DAY_MS;
  }

  readonly nowMs = (): number => Date.now() + this.#aheadMs;
}
