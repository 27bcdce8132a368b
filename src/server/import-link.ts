import { Code, ConnectError, createClient, type Client, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  Http2SessionManager,
} from "@connectrpc/connect-node";
import { InfoService } from "../../gen/toolmark/v1/info_service_pb.js";
import { SessionService } from "../../gen/toolmark/v1/session_service_pb.js";

const MIB = 1024 * 1024;
/** What a request has beside the bytes of its parts, at most. */
const BESIDE_PARTS_BYTES = 16 * 1024;
const PART_BYTES_MIN = 4 * 1024;
const PING_INTERVAL_MS = 20_000;
const FIRST_ANSWER_TIMEOUT_MS = 10_000;

/** A connection to the server that sessions are brought to. */
export interface ImportLink {
  readonly sessions: Client<typeof SessionService>;
  /** Bytes of sources that one request may carry. */
  readonly partBytes: number;
  close(): void;
}

/** Nobody that speaks the protocol answers at an address. */
export class ServerUnreachableError extends Error {
  override readonly name = "ServerUnreachableError";
}

/**
 * Connects to a server by its URL: that of its gRPC port or that of its HTTP port, which is found out. Throws
 * ServerUnreachableError.
 */
export async function openImportLink(baseUrl: string): Promise<ImportLink> {
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
      const sessions = createClient(SessionService, transport);
      const close = (): void => {
        sessionManager.abort();
      };
      return { sessions, partBytes: partBytesFor(messageBytes), close };
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

/** The largest request that the server takes, or why it does not say. */
async function messageBytesOf(transport: Transport): Promise<number | ConnectError> {
  try {
    const { limits } = await createClient(InfoService, transport).getServerInfo(
      {},
      { timeoutMs: FIRST_ANSWER_TIMEOUT_MS },
    );
    return Number(limits?.messageBytes ?? 0n);
  } catch (error) {
    if (error instanceof ConnectError) return error;
    throw error;
  }
}

function partBytesFor(messageBytes: number): number {
  const room = messageBytes === 0 ? MIB : messageBytes - BESIDE_PARTS_BYTES;
  return Math.max(PART_BYTES_MIN, Math.min(MIB, room));
}
