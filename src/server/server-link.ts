import { Code, ConnectError, createClient, type Client, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  Http2SessionManager,
} from "@connectrpc/connect-node";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { ApprovalService } from "../../gen/toolmark/v1/approval_service_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { InfoService } from "../../gen/toolmark/v1/info_service_pb.js";
import { SessionService } from "../../gen/toolmark/v1/session_service_pb.js";
import { ServerUnreachableError } from "./import-link.js";

const PING_INTERVAL_MS = 20_000;
const FIRST_ANSWER_TIMEOUT_MS = 10_000;

/** A connection to a server, over which a session is read and its asks are answered. It connects again by itself. */
export interface ServerLink {
  readonly sessions: Client<typeof SessionService>;
  readonly history: Client<typeof HistoryService>;
  readonly approvals: Client<typeof ApprovalService>;
  close(): void;
}

/**
 * Connects to a server by its URL: that of its gRPC port or that of its HTTP port, which is found out. Throws
 * ServerUnreachableError.
 */
export async function openServerLink(baseUrl: string): Promise<ServerLink> {
  const sessionManager = new Http2SessionManager(baseUrl, { pingIntervalMs: PING_INTERVAL_MS });
  const options = { baseUrl, sessionManager };
  const wires: readonly (() => Transport)[] = [
    () => createGrpcTransport(options),
    () => createConnectTransport({ ...options, httpVersion: "2", useBinaryFormat: true }),
  ];
  let fault: ConnectError | undefined;
  for (const wire of wires) {
    const transport = wire();
    const silence = await silenceOf(transport);
    if (silence === undefined) return linkOver(transport, sessionManager);
    fault ??= silence;
    // Another protocol on the same port is of use only if there is a port.
    if (silence.code === Code.Unavailable) break;
  }
  sessionManager.abort();
  throw new ServerUnreachableError(`${baseUrl}: no server answers (${fault?.rawMessage ?? ""})`, {
    cause: fault,
  });
}

function linkOver(transport: Transport, sessionManager: Http2SessionManager): ServerLink {
  return {
    sessions: createClient(SessionService, transport),
    history: createClient(HistoryService, transport),
    approvals: createClient(ApprovalService, transport),
    close: () => {
      sessionManager.abort();
    },
  };
}

/** Why the server does not answer over a transport. Absent if it does. */
async function silenceOf(transport: Transport): Promise<ConnectError | undefined> {
  try {
    const timeoutMs = FIRST_ANSWER_TIMEOUT_MS;
    await createClient(InfoService, transport).getServerInfo({}, { timeoutMs });
    return undefined;
  } catch (error) {
    if (error instanceof ConnectError) return error;
    throw error;
  }
}

/** What a server refused, or why it could not be asked. */
export interface ServerFault {
  /** Reason of the catalogue. Empty if the fault has none. */
  readonly reason: string;
  readonly message: string;
  /** Whether the same request may be sent again. */
  readonly isPassing: boolean;
}

/** The fault that a call threw. Throws again what is none. */
export function serverFaultOf(thrown: unknown): ServerFault {
  if (!(thrown instanceof ConnectError)) throw thrown;
  const reason = thrown.findDetails(ErrorInfoSchema)[0]?.reason ?? "";
  // A connection that breaks has any code, but the service's own refusals have a reason.
  const isPassing = reason === "" ? !FINAL.has(thrown.code) : thrown.code === Code.Unavailable;
  return { reason, message: thrown.rawMessage, isPassing };
}

const FINAL: ReadonlySet<Code> = new Set([
  Code.InvalidArgument,
  Code.NotFound,
  Code.PermissionDenied,
  Code.Unauthenticated,
  Code.FailedPrecondition,
  Code.ResourceExhausted,
  Code.Unimplemented,
  Code.DataLoss,
]);
