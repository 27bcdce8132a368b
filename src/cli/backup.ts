import { backupStore, type BackupReport } from "../server/backup-store.js";
import type { ExitCode } from "../server/exit-code.js";
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
import { EXIT_CODE } from "../server/exit-code.js";

const USAGE: CommandUsage = {
  usage: "backup --to FILE [flags]",
  text:
    "Copies the store into one new file, while a server may go on serving it. The file has everything that was\n" +
    "acknowledged before the backup began. The store's secret is not in it.",
  flags: {
    to: { value: "file", help: "the file to make; one that is there is not overwritten" },
    store: STORE_FLAG,
    "no-verify": { help: "do not check the copy" },
    json: JSON_FLAG,
  },
};

/** `toolmark backup`. Throws UsageError, and what `backupStore` throws. */
export async function backupCommand(args: readonly string[]): Promise<ExitCode> {
  const flags = readFlags(args, USAGE);
  if (flags === undefined) return EXIT_CODE.ok;
  const report = await backupStore({
    path: storePath(flags),
    to: requiredText(flags, "to"),
    verify: flags["no-verify"] !== true,
    onStep: (step) => {
      sayProgress(`${step} ...`);
    },
  });
  sayProgress("");
  return flags["json"] === true ? sayJson(report) : say(textOf(report));
}

function textOf(report: BackupReport): string {
  const { path, sessions, events, position, generation, sizeBytes, sha256 } = report;
  return [
    `Backed up to ${path}${CHECKED[report.checked]}`,
    `  sessions    ${sessions}`,
    `  events      ${events}`,
    `  position    ${position}`,
    `  generation  ${generation}`,
    `  size        ${sizeBytes} bytes`,
    `  sha256      ${sha256}`,
    `  took        ${(report.durationMs / 1000).toFixed(1)} s`,
  ].join("\n");
}

const CHECKED = {
  everything: "",
  pages: "; rows cannot be checked in a schema that is older than this program's",
  nothing: ", without a check",
} as const satisfies Record<BackupReport["checked"], string>;
