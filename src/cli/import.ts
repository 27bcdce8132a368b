import { EXIT_CODE, type ExitCode } from "../server/exit-code.js";
import { importSessions, type ImportReport } from "../server/import-sessions.js";
import { LegacyDirectoryError, type LegacyDirectory } from "../server/legacy-dir.js";
import { openLegacyPaths } from "../server/legacy-paths.js";
import type { ServerLink } from "../server/server-link.js";
import { holdingSignals } from "../server/signal-cleanup.js";
import {
  JSON_FLAG,
  operandsAmong,
  readFlags,
  say,
  sayJson,
  sayProgress,
  UsageError,
  type CommandUsage,
  type FlagValues,
} from "./command-line.js";
import { importText } from "./import-text.js";
import { ProgressBar } from "./progress-bar.js";
import { linked, SERVER_FLAG, serverUrl } from "./server-flag.js";

const CONCURRENCY = 8;
const CONCURRENCY_MAX = 64;
const COUNT = /^[1-9]\d?$/;

const USAGE: CommandUsage = {
  usage: "import DIR_OR_FILES... [flags]",
  text:
    "Brings the sessions of an older system to a server: those in a folder of its file store, also in the\n" +
    "folder sid-v1 inside it, or those of the files named. A session is <name>.session.json or <name>.json,\n" +
    "<name>.events.jsonl or <name>.jsonl, or both. What one session is refused for keeps no other back. Run\n" +
    "again, the command goes on where it stopped: what the server has from equal files stays as it is. The\n" +
    "files are never written to.",
  flags: {
    to: SERVER_FLAG,
    owner: { value: "name", help: "who owns the sessions (default: nobody)" },
    concurrency: {
      value: "count",
      help: `sessions at a time, 1 to ${CONCURRENCY_MAX} (default: ${CONCURRENCY})`,
    },
    session: {
      value: "id",
      help: "id of the session, for one log without a snapshot (default: what its name tells)",
    },
    "dry-run": { help: "read the files and say what is wrong with them; send nothing" },
    json: JSON_FLAG,
  },
};

/** `toolmark import`. Throws UsageError, and errors of the file system. */
export async function importCommand(args: readonly string[]): Promise<ExitCode> {
  const { operands: paths, rest } = operandsAmong(args, USAGE);
  const flags = readFlags(rest, USAGE);
  if (flags === undefined) return EXIT_CODE.ok;
  if (paths.length === 0) throw new UsageError("a folder or files are missing");
  const plan = planOf(flags);
  const directories = await opened(paths);
  requireLogAlone(directories, plan.sessionId);
  const link = plan.url === undefined ? undefined : await linked(plan.url);
  try {
    return await runToSignal(async (signal) => {
      return told(await imported(plan, { directories, link, signal }), flags);
    });
  } finally {
    link?.close();
  }
}

interface Plan {
  /** Absent: nothing is sent. */
  readonly url: string | undefined;
  readonly owner: string;
  readonly concurrency: number;
  readonly sessionId: string | undefined;
}

interface Means {
  readonly directories: readonly LegacyDirectory[];
  readonly link: ServerLink | undefined;
  readonly signal: AbortSignal;
}

async function imported(
  { owner, concurrency, sessionId }: Plan,
  means: Means,
): Promise<ImportReport> {
  const bar = new ProgressBar();
  const onProgress = ({ done, total }: { done: number; total: number }): void => {
    bar.show(done, total);
  };
  const report = await importSessions({ ...means, owner, concurrency, sessionId, onProgress });
  sayProgress("");
  return report;
}

function told(report: ImportReport, flags: FlagValues): ExitCode {
  if (flags["json"] === true) sayJson(report);
  else say(importText(report));
  const isWhole = report.refused.length === 0 && report.unfinished === 0;
  return isWhole ? EXIT_CODE.ok : EXIT_CODE.importIncomplete;
}

/** Does the work until a signal stops it, by which the process then ends. */
function runToSignal<Answer>(work: (signal: AbortSignal) => Promise<Answer>): Promise<Answer> {
  return holdingSignals(async () => {
    const stopping = new AbortController();
    const stop = (): void => {
      stopping.abort();
    };
    process.on("SIGINT", stop).on("SIGTERM", stop);
    try {
      return await work(stopping.signal);
    } finally {
      process.off("SIGINT", stop).off("SIGTERM", stop);
    }
  });
}

function planOf(flags: FlagValues): Plan {
  const { owner, session } = flags;
  return {
    url: flags["dry-run"] === true ? undefined : serverUrl(flags),
    owner: typeof owner === "string" ? owner : "",
    concurrency: concurrencyOf(flags),
    sessionId: typeof session === "string" ? session : undefined,
  };
}

function concurrencyOf({ concurrency: text }: FlagValues): number {
  if (typeof text !== "string") return CONCURRENCY;
  if (COUNT.test(text) && Number(text) <= CONCURRENCY_MAX) return Number(text);
  throw new UsageError(`--concurrency: "${text}" is not a number from 1 to ${CONCURRENCY_MAX}`);
}

async function opened(paths: readonly string[]): Promise<LegacyDirectory[]> {
  const directories = await openLegacyPaths(paths).catch((error: unknown) => {
    if (error instanceof LegacyDirectoryError) throw new UsageError(error.message);
    throw error;
  });
  // A name that is misspelt must not pass for a store without sessions.
  if (directories.every(({ families }) => families.length === 0)) {
    throw new UsageError(`there are no sessions in ${paths.join(", ")}`);
  }
  return directories;
}

function requireLogAlone(
  directories: readonly LegacyDirectory[],
  sessionId: string | undefined,
): void {
  if (sessionId === undefined) return;
  const families = directories.flatMap((directory) => directory.families);
  if (families.length === 1 && families[0]?.snapshot === undefined) return;
  throw new UsageError("--session is for one log without a snapshot");
}
