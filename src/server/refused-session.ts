import { join } from "node:path";
import { Code, ConnectError } from "@connectrpc/connect";
import type { Malformed } from "../legacy/malformed.js";
import { fileOf, type LegacyFamily } from "./legacy-dir.js";
import type { FileFault } from "./legacy-file.js";
import { errorInfoOf, isConnectionFault, type NothingKeptError } from "./send-session.js";

/** Why a session was not imported. */
export interface RefusedSession {
  readonly file: string;
  /** Absent if it is not known. */
  readonly sessionId?: string;
  /** A name of ErrorReason, or one of this program: FILE_…, SESSION_ID_… and NOTHING_KEPT. */
  readonly reason: string;
  readonly message: string;
  /** Where the fault is in the file, if it is at one place. */
  readonly path?: string;
  /** Bytes before it. */
  readonly offsetBytes?: number;
}

const BYTES = /^\d{1,15}$/;
const SERVER_CODES = new Set([Code.Unimplemented, Code.Unauthenticated, Code.PermissionDenied]);
const SERVER_REASONS = new Set(["DRAINING", "STORE_FULL"]);

export function refusedFile(fault: FileFault): RefusedSession {
  const { file } = fault;
  if ("unreadable" in fault) {
    return { file, reason: "FILE_UNREADABLE", message: fault.unreadable };
  }
  const message = `${fault.sizeBytes} bytes are more than ${fault.limitBytes}`;
  return { file, reason: "FILE_TOO_LARGE", message };
}

export function refusedSource(
  file: string,
  { malformed, path, offsetBytes }: Malformed,
  sessionId?: string,
): RefusedSession {
  const where = { path, offsetBytes };
  const named = sessionId === undefined ? {} : { sessionId };
  return { file, ...named, reason: "SOURCE_MALFORMED", message: malformed, ...where };
}

/** What the server said, or what became of saying it. */
export function refusedByServer(
  family: LegacyFamily,
  sessionId: string,
  error: ConnectError | NothingKeptError,
): RefusedSession {
  const file = fileOf(family);
  if (!(error instanceof ConnectError)) {
    return { file, sessionId, reason: "NOTHING_KEPT", message: error.message };
  }
  const info = errorInfoOf(error);
  const message = error.rawMessage;
  if (info === undefined) return { file, sessionId, reason: codeName(error.code), message };
  const { path, offset, format = "" } = info.metadata;
  // The message begins with the path, which is told on its own.
  const isRepeated = path !== undefined && message.startsWith(`${path} `);
  return {
    file: /log/i.test(format) ? join(family.folder, family.log ?? "") : file,
    ...{ sessionId, reason: info.reason },
    message: isRepeated ? message.slice(path.length + 1) : message,
    ...(path === undefined ? {} : { path }),
    ...(offset !== undefined && BYTES.test(offset) ? { offsetBytes: Number(offset) } : {}),
  };
}

/** Whether the server, and not the session, is why it was refused: every other one would be as well. */
export function isAboutServer(error: ConnectError): boolean {
  const reason = errorInfoOf(error)?.reason ?? "";
  return isConnectionFault(error) || SERVER_CODES.has(error.code) || SERVER_REASONS.has(reason);
}

/** As gRPC writes it: FAILED_PRECONDITION. */
function codeName(code: Code): string {
  return Code[code].replace(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase();
}
