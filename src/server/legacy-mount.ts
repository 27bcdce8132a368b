import { join } from "node:path";
import { LegacySourceFormat } from "../../gen/toolmark/v1/legacy_pb.js";
import type { LegacyMount, MountFault, MountedSources } from "../ledger/mounted-sessions.js";
import { decodeSnapshot } from "../legacy/decode-snapshot.js";
import { sessionIdOfStem, stemsOf } from "../legacy/file-names.js";
import { isMalformed } from "../legacy/malformed.js";
import type { Log } from "../rpc/log.js";
import {
  fileOf,
  LegacyDirectory,
  type LegacyFamily,
  type LegacyFault,
  type LegacySources,
} from "./legacy-dir.js";
import { isFileFault, type FileFault } from "./legacy-file.js";

/** What of the configuration says what is mounted. */
export interface LegacyMountOptions {
  readonly path: string;
  readonly tenant: string;
  readonly maxBytes: number;
  readonly log: Log;
}

/** A folder of the older system as sessions that can be read. Throws LegacyDirectoryError. */
export async function openLegacyMount(options: LegacyMountOptions): Promise<LegacyMount> {
  const { path, tenant, maxBytes, log } = options;
  const onFault = (fault: LegacyFault): void => {
    log.warn("a file of the older system cannot be used", { ...placeOf(fault) });
  };
  const directory = await LegacyDirectory.open(path, { maxBytes, onFault });
  return new MountedDirectory(directory, tenant);
}

class MountedDirectory implements LegacyMount {
  readonly names: readonly string[];
  readonly #byName: ReadonlyMap<string, LegacyFamily>;
  readonly #byStem: ReadonlyMap<string, LegacyFamily>;
  readonly #directory: LegacyDirectory;
  readonly #found = new Set<string>();

  constructor(
    directory: LegacyDirectory,
    readonly tenant: string,
  ) {
    this.#directory = directory;
    this.#byName = new Map(directory.families.map((family) => [fileOf(family), family]));
    this.#byStem = new Map(directory.families.map((family) => [family.stem, family]));
    this.names = [...this.#byName.keys()];
  }

  mayHave(sessionId: string): boolean {
    return this.#found.has(sessionId) || stemsOf(sessionId).some((stem) => this.#byStem.has(stem));
  }

  /** A file that has the session's name and cannot be read is the session's all the same. */
  async find(sessionId: string): Promise<string | undefined> {
    const family = (await this.#directory.find(sessionId)) ?? (await this.#faulty(sessionId));
    if (family !== undefined) this.#found.add(sessionId);
    return family && fileOf(family);
  }

  async read(name: string): Promise<MountedSources | MountFault> {
    const family = this.#byName.get(name);
    if (family === undefined) return { fault: "is not there", where: { file: name } };
    const files = await this.#directory.read(family);
    if (isFileFault(files)) return faultOf(files);
    const { SNAPSHOT, EVENT_LOG } = LegacySourceFormat;
    const sessionId = idOf(family, files);
    if (typeof sessionId !== "string") return sessionId;
    const sources = [
      ...(files.snapshot === undefined ? [] : [{ format: SNAPSHOT, data: files.snapshot }]),
      ...(files.log === undefined ? [] : [{ format: EVENT_LOG, data: files.log }]),
    ];
    const paths = [family.snapshot, family.log].flatMap((file) =>
      file === undefined ? [] : [join(family.folder, file)],
    );
    return { sessionId, sources, files: paths };
  }

  async #faulty(sessionId: string): Promise<LegacyFamily | undefined> {
    for (const stem of stemsOf(sessionId)) {
      const family = this.#byStem.get(stem);
      if (family !== undefined && "fault" in (await this.read(fileOf(family)))) return family;
    }
    return undefined;
  }
}

function idOf(family: LegacyFamily, { snapshot: bytes }: LegacySources): string | MountFault {
  const file = fileOf(family);
  if (bytes === undefined) {
    const id = sessionIdOfStem(family.stem);
    return id ?? { fault: "its session cannot be told from its name", where: { file } };
  }
  const snapshot = decodeSnapshot(bytes);
  if (!isMalformed(snapshot)) return snapshot.sessionId;
  const { malformed: fault, path, offsetBytes } = snapshot;
  return { fault, where: { file, path, offset: String(offsetBytes) } };
}

function faultOf(fault: FileFault): MountFault {
  const { file } = fault;
  return "unreadable" in fault
    ? { fault: fault.unreadable, where: { file } }
    : { fault: `has more than ${fault.limitBytes} bytes`, where: { file } };
}

function placeOf(fault: LegacyFault): Record<string, string> {
  if (isFileFault(fault)) {
    const { fault: cause, where } = faultOf(fault);
    return { ...where, cause };
  }
  if ("takenBy" in fault) return { file: fault.file, cause: `its session is in ${fault.takenBy}` };
  const { malformed, path, offsetBytes } = fault.malformed;
  return { file: fault.file, cause: malformed, path, offset: String(offsetBytes) };
}
