import { openServerLink, ServerUnreachableError, type ServerLink } from "../server/server-link.js";
import { UsageError, type Flag, type FlagValues } from "./command-line.js";

const DEFAULT_URL = "http://127.0.0.1:7070";

/** Which server a command is about. */
export const SERVER_FLAG: Flag = {
  value: "url",
  help: `the server, by its gRPC or its HTTP port (default: ${DEFAULT_URL})`,
};

/** The server that `--to` or the default names. Throws UsageError. */
export function serverUrl({ to }: FlagValues): string {
  const text = typeof to === "string" ? to : DEFAULT_URL;
  const url = text.includes("://") ? text : `http://${text}`;
  if (!/^https?:\/\/[^/]+\/?$/.test(url) || !URL.canParse(url)) {
    throw new UsageError(`--to: "${text}" is not http://host:port`);
  }
  return new URL(url).origin;
}

/** Connects to a server. Throws UsageError if none answers. */
export async function linked(url: string): Promise<ServerLink> {
  return openServerLink(url).catch((error: unknown) => {
    if (error instanceof ServerUnreachableError) throw new UsageError(error.message);
    throw error;
  });
}
