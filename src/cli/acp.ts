import type * as Sdk from "@agentclientprotocol/sdk";
import { Readable, Writable } from "node:stream";
import { EXIT_CODE, type ExitCode } from "../server/exit-code.js";
import { ServerUnreachableError } from "../server/import-link.js";
import { openServerLink, serverFaultOf, type ServerLink } from "../server/server-link.js";
import { mintCorrelationId } from "../server/system.js";
import { readVersion } from "../server/version.js";
import { serveAcp } from "./acp-serve.js";
import { readFlags, UsageError, type CommandUsage, type FlagValues } from "./command-line.js";

const DEFAULT_URL = "http://127.0.0.1:7070";
const SDK = "@agentclientprotocol/sdk";

const USAGE: CommandUsage = {
  usage: "acp SESSION [flags]",
  text:
    "Shows a session to an editor that speaks the Agent Client Protocol, on standard input and output: the\n" +
    "editor runs this command as it would run an agent. It shows what is recorded and puts open asks to the\n" +
    `user. Needs the package ${SDK}. It ends when the editor closes standard input.`,
  flags: {
    to: {
      value: "url",
      help: `the server, by its gRPC or its HTTP port (default: ${DEFAULT_URL})`,
    },
  },
};

/** `toolmark acp`. Standard output carries the protocol alone. Throws UsageError. */
export async function acpCommand([first = "", ...rest]: readonly string[]): Promise<ExitCode> {
  const hasSession = first !== "" && !first.startsWith("-");
  const flags = readFlags(hasSession ? rest : [first, ...rest].filter(isGiven), USAGE);
  if (flags === undefined) return EXIT_CODE.ok;
  if (!hasSession) throw new UsageError("the session is missing");
  const url = urlOf(flags);
  const sdk = await importSdk();
  const link = await linked(url);
  try {
    await requireSession(link, first);
    const stream = sdk.ndJsonStream(webWritable(process.stdout), webReadable(process.stdin));
    const version = readVersion();
    await serveAcp({ sdk, link, sessionId: first, stream, version, mintRequestId, log });
    return EXIT_CODE.ok;
  } finally {
    link.close();
  }
}

function isGiven(arg: string): boolean {
  return arg !== "";
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
