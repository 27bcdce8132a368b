import { toJsonString } from "@bufbuild/protobuf";
import {
  TranscriptEntrySchema,
  type TranscriptEntry,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { transcriptText } from "../projection/transcript-text.js";
import { EXIT_CODE, type ExitCode } from "../server/exit-code.js";
import { ServerUnreachableError } from "../server/import-link.js";
import { openServerLink, serverFaultOf, type ServerLink } from "../server/server-link.js";
import { readFlags, UsageError, type CommandUsage, type FlagValues } from "./command-line.js";

const DEFAULT_URL = "http://127.0.0.1:7070";
const COLUMNS = 80;
const COLUMNS_MIN = 40;
const COLUMNS_MAX = 120;

const USAGE: CommandUsage = {
  usage: "transcript SESSION [flags]",
  text:
    "Prints the account of a session: what was said, what was called, what hooks and people said about each\n" +
    "call, and how it ended. Sessions that work for a call are named; each has a transcript of its own.",
  flags: {
    to: {
      value: "url",
      help: `the server, by its gRPC or its HTTP port (default: ${DEFAULT_URL})`,
    },
    json: { help: "print one entry a line, each as a JSON document (toolmark.v1.TranscriptEntry)" },
  },
};

/** `toolmark transcript`. Throws UsageError. */
export async function transcriptCommand(args: readonly string[]): Promise<ExitCode> {
  const { sessionIds, rest } = sessionAmong(args);
  const flags = readFlags(rest, USAGE);
  if (flags === undefined) return EXIT_CODE.ok;
  const [sessionId, ...more] = sessionIds;
  if (sessionId === undefined) throw new UsageError("the session is missing");
  if (more.length > 0) throw new UsageError("one session at a time");
  const link = await linked(urlOf(flags));
  try {
    return await printed(link, sessionId, lineOf(flags));
  } finally {
    link.close();
  }
}

type LineOf = (entry: TranscriptEntry) => string;

function lineOf({ json }: FlagValues): LineOf {
  if (json === true) return (entry) => `${toJsonString(TranscriptEntrySchema, entry)}\n`;
  const columns = process.stdout.isTTY ? process.stdout.columns : COLUMNS;
  const width = Math.min(Math.max(columns, COLUMNS_MIN), COLUMNS_MAX);
  return (entry) => `${transcriptText(entry, width)}\n\n`;
}

/** Prints each page as it comes. */
async function printed(link: ServerLink, sessionId: string, line: LineOf): Promise<ExitCode> {
  const output = new Output();
  let pageToken = "";
  do {
    const page = await pageOf(link, sessionId, pageToken);
    if (typeof page === "number") return page;
    const isHeard = await output.write(page.entries.map(line).join(""));
    if (!isHeard) return EXIT_CODE.ok;
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return EXIT_CODE.ok;
}

interface ReadPage {
  readonly entries: readonly TranscriptEntry[];
  readonly nextPageToken: string;
}

/** A page, or how the command ends because of damage. Throws UsageError for whatever else the server refuses. */
async function pageOf(
  { history }: ServerLink,
  sessionId: string,
  pageToken: string,
): Promise<ReadPage | ExitCode> {
  try {
    return await history.getTranscript({ sessionId, pageToken });
  } catch (thrown) {
    const { reason, message } = serverFaultOf(thrown);
    const text = `${sessionId}: ${reason === "" ? "" : `${reason}: `}${message}`;
    if (reason !== "DATA_DAMAGED") throw new UsageError(text);
    process.stderr.write(`${text}\n`);
    return EXIT_CODE.damaged;
  }
}

/** Standard output, whose reader may go away. */
class Output {
  #isHeard = true;

  constructor() {
    process.stdout.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "EPIPE") throw error;
      this.#isHeard = false;
    });
  }

  /** Whether anybody still reads. */
  async write(text: string): Promise<boolean> {
    if (!this.#isHeard) return false;
    await new Promise<void>((resolve) => {
      process.stdout.write(text, () => {
        resolve();
      });
    });
    return this.#isHeard;
  }
}

function urlOf({ to }: FlagValues): string {
  const text = typeof to === "string" ? to : DEFAULT_URL;
  const url = text.includes("://") ? text : `http://${text}`;
  if (!/^https?:\/\/[^/]+\/?$/.test(url) || !URL.canParse(url)) {
    throw new UsageError(`--to: "${text}" is not http://host:port`);
  }
  return new URL(url).origin;
}

async function linked(url: string): Promise<ServerLink> {
  return openServerLink(url).catch((error: unknown) => {
    if (error instanceof ServerUnreachableError) throw new UsageError(error.message);
    throw error;
  });
}

/** What is no flag and no flag's value. */
function sessionAmong(args: readonly string[]): { sessionIds: string[]; rest: string[] } {
  const sessionIds: string[] = [];
  const rest: string[] = [];
  for (let at = 0; at < args.length; at += 1) {
    const arg = args[at] ?? "";
    if (arg === "--") return { sessionIds: [...sessionIds, ...args.slice(at + 1)], rest };
    if (!arg.startsWith("-")) {
      sessionIds.push(arg);
      continue;
    }
    rest.push(arg);
    const next = args[at + 1];
    if (USAGE.flags[arg.slice(2)]?.value === undefined || next === undefined) continue;
    rest.push(next);
    at += 1;
  }
  return { sessionIds, rest };
}
