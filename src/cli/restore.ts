import { EXIT_CODE, type ExitCode } from "../server/exit-code.js";
import { restoreStore, type RestoreReport } from "../server/restore-store.js";
import {
  JSON_FLAG,
  readFlags,
  requiredText,
  say,
  sayJson,
  sayProgress,
  STORE_FLAG,
  storePath,
  type CommandUsage,
} from "./command-line.js";

const USAGE: CommandUsage = {
  usage: "restore --from FILE [flags]",
  text:
    "Puts a backup in the place of the store's database, while no server has it. A new log generation begins:\n" +
    "revisions go on above all that were ever given, and cursors, page tokens and answer tokens from before are\n" +
    "void. FILE may be any copy of a store, or the store's own database, to go on with what is left of it.",
  flags: {
    from: { value: "file", help: "the backup" },
    store: STORE_FLAG,
    discard: { help: "do not keep the replaced database as <database>.replaced-<generation>" },
    json: JSON_FLAG,
  },
};

/** `toolmark restore`. Throws UsageError, and what `restoreStore` throws. */
export async function restoreCommand(args: readonly string[]): Promise<ExitCode> {
  const flags = readFlags(args, USAGE);
  if (flags === undefined) return EXIT_CODE.ok;
  const report = await restoreStore({
    path: storePath(flags),
    from: requiredText(flags, "from"),
    discard: flags["discard"] === true,
    onStep: (step) => {
      sayProgress(`${step} ...`);
    },
  });
  sayProgress("");
  return flags["json"] === true ? sayJson(report) : say(textOf(report));
}

function textOf(report: RestoreReport): string {
  const { path, from, restored, keptAs } = report;
  const kept = keptAs === undefined ? [] : [`The replaced database is kept as ${keptAs}`];
  return [
    `Restored ${path} from ${from}`,
    `  replaced  ${replacedText(report)}`,
    `  now       ${contentText(restored)}`,
    ...kept,
    "Cursors, page tokens and answer tokens given before are void.",
    ...(report.isGenerationProven ? [] : [UNPROVEN]),
  ].join("\n");
}

const UNPROVEN =
  "Neither the replaced database nor its secret file could say which generation it was of: if it had been restored\n" +
  "before, revisions that were given since then may come again.";

function replacedText({ replaced }: RestoreReport): string {
  if (replaced === undefined) return "nothing: there was no store";
  const { content, generation } = replaced;
  if (content !== undefined) return contentText(content);
  return `generation ${generation ?? "unknown"}, a database that cannot be read`;
}

function contentText({
  generation,
  position,
  sessions,
  events,
}: RestoreReport["restored"]): string {
  return `generation ${generation}, position ${position}, ${sessions} sessions, ${events} events`;
}
