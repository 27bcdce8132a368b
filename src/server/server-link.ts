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

const PING_INTERVAL_MS = 20_000;
const FIRST_ANSWER_TIMEOUT_MS = 10_000;

/** Nobody that speaks the protocol answers at an address. */
export class ServerUnreachableError extends Error {
  override readonly name = "ServerUnreachableError";
}

/** A connection of a command to a server. It connects again by itself. */
export interface ServerLink {
  /** Bytes that one request may have. 0 if the server does not say. */
  readonly messageBytes: number;
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
  // A long answer is no dead connection: pings tell, so no call needs a deadline.
  const sessionManager = new Http2SessionManager(baseUrl, { pingIntervalMs: PING_INTERVAL_MS });
  const options = { baseUrl, sessionManager };
  const wires: readonly (() => Transport)[] = [
    () => createGrpcTransport(options),
    () => createConnectTransport({ ...options, httpVersion: "2", useBinaryFormat: true }),
  ];
  let fault: ConnectError | undefined;
  for (const wire of wires) {
    const transport = wire();
    const messageBytes = await messageBytesOf(transport);
    if (typeof messageBytes === "number") {
      return linkOver(transport, sessionManager, messageBytes);
    }
    fault ??= messageBytes;
    // Another protocol on the same port is of use only if there is a port.
    if (messageBytes.code === Code.Unavailable) break;
  }
  sessionManager.abort();
  throw new ServerUnreachableError(`${baseUrl}: no server answers (${fault?.rawMessage ?? ""})`, {
    cause: fault,
  });
}

function linkOver(
  transport: Transport,
  sessionManager: Http2SessionManager,
  messageBytes: number,
): ServerLink {
  return {
    messageBytes,
    sessions: createClient(SessionService, transport),
    history: createClient(HistoryService, transport),
    approvals: createClient(ApprovalService, transport),
    close: () => {
      sessionManager.abort();
    },
  };
}

/** The largest request that the server takes, or why it does not say. */
async function messageBytesOf(transport: Transport): Promise<number | ConnectError> {
  try {
    const timeoutMs = FIRST_ANSWER_TIMEOUT_MS;
    const info = await createClient(InfoService, transport).getServerInfo({}, { timeoutMs });
    return Number(info.limits?.messageBytes ?? 0n);
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
