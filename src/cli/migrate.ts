import { EXIT_CODE, type ExitCode } from "../server/exit-code.js";
import { migrateStore } from "../server/migrate-store.js";
import {
  JSON_FLAG,
  readFlags,
  say,
  sayJson,
  STORE_FLAG,
  storePath,
  UsageError,
  type CommandUsage,
  type FlagValues,
} from "./command-line.js";

const USAGE: CommandUsage = {
  usage: "migrate [flags]",
  text:
    "Takes the schema of a store to another version, while no server has it. A server does so by itself when it\n" +
    "starts; this is for doing it before, and for going back to what an older program reads. Back up first.",
  flags: {
    to: { value: "version", help: "the version to go to (default: the newest)" },
    "allow-data-loss": { help: "go back even where rows are dropped" },
    store: STORE_FLAG,
    json: JSON_FLAG,
  },
};
const VERSION = /^\d{1,4}$/;

/** `toolmark migrate`. Throws UsageError, and what `migrateStore` throws. */
export async function migrateCommand(args: readonly string[]): Promise<ExitCode> {
  const flags = readFlags(args, USAGE);
  if (flags === undefined) return EXIT_CODE.ok;
  const report = await migrateStore({
    path: storePath(flags),
    to: versionOf(flags),
    allowDataLoss: flags["allow-data-loss"] === true,
  });
  if (flags["json"] === true) return sayJson(report);
  const { path, from, to } = report;
  return say(
    from === to
      ? `${path} has schema version ${to} already`
      : `Migrated ${path} from schema version ${from} to ${to}`,
  );
}

function versionOf({ to }: FlagValues): number | undefined {
  if (typeof to !== "string") return undefined;
  if (VERSION.test(to)) return Number(to);
  throw new UsageError(`--to: "${to}" is not a version`);
}
