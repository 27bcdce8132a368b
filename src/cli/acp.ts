import type * as Sdk from "@agentclientprotocol/sdk";
import { Readable, Writable } from "node:stream";
import { EXIT_CODE, type ExitCode } from "../server/exit-code.js";
import { serverFaultOf, type ServerLink } from "../server/server-link.js";
import { mintCorrelationId } from "../server/system.js";
import { readVersion } from "../server/version.js";
import { serveAcp } from "./acp-serve.js";
import { sessionAndFlags, UsageError, type CommandUsage } from "./command-line.js";
import { linked, SERVER_FLAG, serverUrl } from "./server-flag.js";

const SDK = "@agentclientprotocol/sdk";

const USAGE: CommandUsage = {
  usage: "acp SESSION [flags]",
  text:
    "Shows a session to an editor that speaks the Agent Client Protocol, on standard input and output: the\n" +
    "editor runs this command as it would run an agent. It shows what is recorded and puts open asks to the\n" +
    `user. Needs the package ${SDK}. It ends when the editor closes standard input.`,
  flags: {
    to: SERVER_FLAG,
  },
};

/** `toolmark acp`. Standard output carries the protocol alone. Throws UsageError. */
export async function acpCommand(args: readonly string[]): Promise<ExitCode> {
  const given = sessionAndFlags(args, USAGE);
  if (given === undefined) return EXIT_CODE.ok;
  const { sessionId, flags } = given;
  const url = serverUrl(flags);
  const sdk = await importSdk();
  const link = await linked(url);
  try {
    await requireSession(link, sessionId);
    const stream = sdk.ndJsonStream(webWritable(process.stdout), webReadable(process.stdin));
    const version = readVersion();
    await serveAcp({ sdk, link, sessionId, stream, version, mintRequestId, log });
    return EXIT_CODE.ok;
  } finally {
    link.close();
  }
}

function mintRequestId(): string {
  return `acp ${mintCorrelationId()}`;
}

function log(text: string): void {
  process.stderr.write(`${text}\n`);
}

/** The package is an optional peer: every other command does without it. */
async function importSdk(): Promise<typeof Sdk> {
  try {
    return await import("@agentclientprotocol/sdk");
  } catch (error) {
    if (!(error instanceof Error) || !("code" in error)) throw error;
    if (error.code !== "ERR_MODULE_NOT_FOUND") throw error;
    throw new UsageError(`the package ${SDK} is not installed: npm install ${SDK}`);
  }
}

async function requireSession({ sessions }: ServerLink, sessionId: string): Promise<void> {
  try {
    await sessions.getSession({ sessionId });
  } catch (thrown) {
    const { reason, message } = serverFaultOf(thrown);
    throw new UsageError(`${sessionId}: ${reason === "" ? "" : `${reason}: `}${message}`);
  }
}

function webWritable(stream: NodeJS.WriteStream): WritableStream<Uint8Array> {
  return Writable.toWeb(stream) as WritableStream<Uint8Array>;
}

function webReadable(stream: NodeJS.ReadStream): ReadableStream<Uint8Array> {
  return Readable.toWeb(stream) as ReadableStream<Uint8Array>;
}
