import { parseArgs } from "node:util";
import { EXIT_CODE, type ExitCode } from "../server/exit-code.js";
import { STORE_SETTING, type StoreLocation } from "../server/setting.js";

/** A flag of a command: with a value, of which `value` says the form, or without. */
export interface Flag {
  readonly value?: string;
  readonly help: string;
}

/** What a command is told of itself, for its help. */
export interface CommandUsage {
  /** Behind `toolmark`. */
  readonly usage: string;
  readonly text: string;
  readonly flags: Readonly<Record<string, Flag>>;
}

export type FlagValues = Readonly<Record<string, string | boolean | undefined>>;

/** What a command cannot be asked for. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

export const STORE_FLAG: Flag = {
  value: "sqlite:path",
  help: `the store (TOOLMARK_STORE; default: ${STORE_SETTING.defaultText})`,
};
export const JSON_FLAG: Flag = { help: "print one JSON document" };

/** What is no flag of the command and no flag's value, and the flags. What stands behind `--` is no flag either. */
export function operandsAmong(
  args: readonly string[],
  { flags }: CommandUsage,
): { operands: string[]; rest: string[] } {
  const operands: string[] = [];
  const rest: string[] = [];
  for (let at = 0; at < args.length; at += 1) {
    const arg = args[at] ?? "";
    if (arg === "--") return { operands: [...operands, ...args.slice(at + 1)], rest };
    if (!arg.startsWith("-")) {
      operands.push(arg);
      continue;
    }
    rest.push(arg);
    const next = args[at + 1];
    if (flags[arg.slice(2)]?.value === undefined || next === undefined) continue;
    rest.push(next);
    at += 1;
  }
  return { operands, rest };
}

/** The one session that a command is about, and the flags. Absent if its help was asked for. Throws UsageError. */
export function sessionAndFlags(
  args: readonly string[],
  usage: CommandUsage,
): { sessionId: string; flags: FlagValues } | undefined {
  const { operands, rest } = operandsAmong(args, usage);
  const flags = readFlags(rest, usage);
  if (flags === undefined) return undefined;
  const [sessionId, ...more] = operands.filter((operand) => operand !== "");
  if (sessionId === undefined) throw new UsageError("the session is missing");
  if (more.length > 0) throw new UsageError("one session at a time");
  return { sessionId, flags };
}

/** The flags given; absent if the help was asked for, and printed. Throws UsageError. */
export function readFlags(args: readonly string[], usage: CommandUsage): FlagValues | undefined {
  const options: FlagOptions = { help: { type: "boolean" } };
  for (const [name, { value }] of Object.entries(usage.flags)) {
    options[name] = { type: value === undefined ? "boolean" : "string" };
  }
  const values = parsed(args, options);
  if (values["help"] !== true) return values;
  say(helpOf(usage));
  return undefined;
}

type FlagOptions = Record<string, { readonly type: "boolean" | "string" }>;

function parsed(args: readonly string[], options: FlagOptions): FlagValues {
  try {
    return parseArgs({ args: [...args], options }).values;
  } catch (error) {
    if (error instanceof TypeError && "code" in error) throw new UsageError(error.message);
    throw error;
  }
}

/** The file of the store that a flag, a variable or the default names. Throws UsageError. */
export function storePath(flags: FlagValues): string {
  const { store: flag } = flags;
  const text = typeof flag === "string" ? flag : process.env["TOOLMARK_STORE"];
  const location = locationOf(text ?? STORE_SETTING.defaultText);
  const source = typeof flag === "string" ? "--store" : "TOOLMARK_STORE";
  if (location?.kind === "sqlite") return location.path;
  throw new UsageError(`${source}: "${text ?? ""}" is not ${STORE_FLAG.value ?? ""}`);
}

function locationOf(text: string): StoreLocation | undefined {
  return STORE_SETTING.parse(text)?.value;
}

/** The value of a flag that has to be given. Throws UsageError. */
export function requiredText(flags: FlagValues, name: string): string {
  const value = flags[name];
  if (typeof value === "string" && value !== "") return value;
  throw new UsageError(`--${name} is missing`);
}

function helpOf({ usage, text, flags }: CommandUsage): string {
  const rows = Object.entries({ ...flags, help: { help: "print this" } satisfies Flag }).map(
    ([name, { value, help }]: [string, Flag]): [string, string] => {
      return [`--${name}${value === undefined ? "" : ` <${value}>`}`, help];
    },
  );
  const width = Math.max(...rows.map(([flag]) => flag.length));
  const lines = rows.map(([flag, help]) => `  ${flag.padEnd(width)}  ${help}`);
  return [`Usage: toolmark ${usage}`, text, lines.join("\n")].join("\n\n");
}

/** One line, or more, for whoever called the command. */
export function say(text: string): ExitCode {
  process.stdout.write(`${text}\n`);
  return EXIT_CODE.ok;
}

/** Numbers that JSON has no room for are given as text. */
export function sayJson(document: object): ExitCode {
  const text = JSON.stringify(document, (_key, value: unknown) =>
    typeof value === "bigint" ? value.toString() : value,
  );
  return say(text);
}

/** Says on a terminal what is being done, over what was said before. Nothing elsewhere. */
export function sayProgress(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\u001b[K${text}`);
}
