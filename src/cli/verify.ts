import { readFileSync } from "node:fs";
import { EXIT_CODE, type ExitCode } from "../server/exit-code.js";
import { findingText, type MissedCheckpoint } from "../server/verify-finding.js";
import { verifyStore, type VerifyReport } from "../server/verify-store.js";
import type { KeptCheckpoint } from "../server/verify-task.js";
import { threadsFor, verifyInThreads } from "../server/verify-threads.js";
import {
  JSON_FLAG,
  readFlags,
  say,
  sayJson,
  sayProgress,
  STORE_FLAG,
  storePath,
  UsageError,
  type CommandUsage,
  type FlagValues,
} from "./command-line.js";

const CHECKPOINT_FLAG = "--checkpoint";
const CHAIN_BYTES = 32;
const COUNT = /^[1-9]\d{0,18}$/;

const USAGE: CommandUsage = {
  usage: "verify [flags]",
  text:
    "Checks every row of a store that nobody serves, or of a backup, and changes nothing. Without a checkpoint it\n" +
    "finds damage; a log that somebody wrote anew is found by a checkpoint that was kept elsewhere.",
  flags: {
    store: STORE_FLAG,
    session: { value: "id", help: "check this session only" },
    tenant: { value: "name", help: "check sessions of this tenant only" },
    checkpoint: {
      value: "JSON or @file",
      help: "what GetSession gave as checkpoint; may be given more than once",
    },
    "log-only": {
      help: "check the logs alone: commitments, chains, heads and checkpoints; several times as fast",
    },
    json: JSON_FLAG,
  },
};

/** `toolmark verify`. Throws UsageError, and what `verifyStore` throws. */
export async function verifyCommand(args: readonly string[]): Promise<ExitCode> {
  const { texts, rest } = withoutCheckpoints(args);
  const flags = readFlags(rest, USAGE);
  if (flags === undefined) return EXIT_CODE.ok;
  const path = storePath(flags);
  const threads = threadsFor(path);
  const report = await verifyStore({
    path,
    sessionId: textOrNone(flags["session"]),
    tenant: textOrNone(flags["tenant"]),
    checkpoints: texts.map(readCheckpoint),
    logOnly: flags["log-only"] === true,
    ...(threads > 1 ? { verifySessions: verifyInThreads(threads) } : {}),
    onProgress: ({ sessions, events }) => {
      sayProgress(`${sessions} sessions, ${events} events ...`);
    },
  });
  sayProgress("");
  refuseNothing(report, flags);
  if (flags["json"] === true) sayJson(report);
  else say(textOf(report));
  return report.isSound ? EXIT_CODE.ok : EXIT_CODE.damaged;
}

/** A name that is misspelt must not pass for a sound store. */
function refuseNothing(
  { path, sessions, findings, missed }: VerifyReport,
  flags: FlagValues,
): void {
  if (sessions > 0 || findings.length > 0 || missed.length > 0) return;
  const names = ["session", "tenant"].filter((name) => flags[name] !== undefined);
  const asked = names.map((name) => `--${name} ${String(flags[name])}`).join(" ");
  if (asked !== "") throw new UsageError(`there is no session of ${asked} in ${path}`);
}

/** The one flag that may come more than once. */
function withoutCheckpoints(args: readonly string[]): { texts: string[]; rest: string[] } {
  const texts: string[] = [];
  const rest: string[] = [];
  for (let at = 0; at < args.length; at += 1) {
    const arg = args[at] ?? "";
    const next = args[at + 1];
    if (arg.startsWith(`${CHECKPOINT_FLAG}=`)) texts.push(arg.slice(CHECKPOINT_FLAG.length + 1));
    else if (arg === CHECKPOINT_FLAG && next !== undefined) {
      texts.push(next);
      at += 1;
    } else rest.push(arg);
  }
  return { texts, rest };
}

function textOrNone(value: string | boolean | undefined): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** A checkpoint as its JSON, in proto names or in those of the JSON mapping. */
function readCheckpoint(text: string): KeptCheckpoint {
  const fields = jsonObject(text.startsWith("@") ? readText(text.slice(1)) : text);
  const sessionId = fields["sessionId"] ?? fields["session_id"];
  const chain = fields["chain"];
  const bytes = typeof chain === "string" ? Buffer.from(chain, "base64") : undefined;
  const isComplete = typeof sessionId === "string" && bytes?.length === CHAIN_BYTES;
  if (!isComplete) throw new UsageError(`${CHECKPOINT_FLAG}: session_id or chain is missing`);
  const sequence = countOf(fields["sequence"], "sequence");
  return { sessionId, sequence, position: countOf(fields["position"], "position"), chain: bytes };
}

function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw new UsageError(`${CHECKPOINT_FLAG}: ${path} cannot be read`, { cause: error });
  }
}

function jsonObject(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null) return { ...value };
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new UsageError(`${CHECKPOINT_FLAG}: it is no JSON object`);
}

/** 64-bit numbers are text in JSON. */
function countOf(value: unknown, name: string): bigint {
  const text = typeof value === "number" || typeof value === "string" ? String(value) : "";
  if (COUNT.test(text)) return BigInt(text);
  throw new UsageError(`${CHECKPOINT_FLAG}: ${name} is no number above 0`);
}

function textOf(report: VerifyReport): string {
  const { sessions, events, bodies, bytes, durationMs, eventsPerSecond } = report;
  const took = `${(durationMs / 1000).toFixed(1)} s, ${eventsPerSecond} events/s`;
  return [
    ...report.findings.map(findingText),
    ...report.missed.map(missedText),
    `${report.isSound ? "Sound" : "Damaged"}: ${sessions} sessions, ${events} events, ` +
      `${bodies} bodies, ${bytes} bytes in ${took}`,
  ].join("\n");
}

function missedText({ tenant, sessionId, sequence, headSequence }: MissedCheckpoint): string {
  if (headSequence === undefined) {
    return `session ${sessionId}: it is not there, but was at ${sequence}`;
  }
  return (
    `session ${sessionId} of ${tenant ?? ""}: its log of ${headSequence} events does not go ` +
    `through the checkpoint at ${sequence}`
  );
}
