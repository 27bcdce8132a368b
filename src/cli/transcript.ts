import { toJsonString } from "@bufbuild/protobuf";
import {
  TranscriptEntrySchema,
  type TranscriptEntry,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { transcriptText } from "../projection/transcript-text.js";
import { EXIT_CODE, type ExitCode } from "../server/exit-code.js";
import { serverFaultOf, type ServerLink } from "../server/server-link.js";
import { sessionAndFlags, UsageError, type CommandUsage, type FlagValues } from "./command-line.js";
import { linked, SERVER_FLAG, serverUrl } from "./server-flag.js";

const COLUMNS = 80;
const COLUMNS_MIN = 40;
const COLUMNS_MAX = 120;

const USAGE: CommandUsage = {
  usage: "transcript SESSION [flags]",
  text:
    "Prints the account of a session: what was said, what was called, what hooks and people said about each\n" +
    "call, and how it ended. Sessions that work for a call are named; each has a transcript of its own.",
  flags: {
    to: SERVER_FLAG,
    json: { help: "print one entry a line, each as a JSON document (toolmark.v1.TranscriptEntry)" },
  },
};

/** `toolmark transcript`. Throws UsageError. */
export async function transcriptCommand(args: readonly string[]): Promise<ExitCode> {
  const given = sessionAndFlags(args, USAGE);
  if (given === undefined) return EXIT_CODE.ok;
  const { sessionId, flags } = given;
  const link = await linked(serverUrl(flags));
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
