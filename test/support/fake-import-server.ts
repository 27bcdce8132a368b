import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer, type ServerHttp2Session } from "node:http2";
import type { AddressInfo } from "node:net";
import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { InfoService } from "../../gen/toolmark/v1/info_service_pb.js";
import type { LegacySourceFormat } from "../../gen/toolmark/v1/legacy_pb.js";
import {
  SessionService,
  type ImportSessionRequest,
  type ImportSessionResponse,
} from "../../gen/toolmark/v1/session_service_pb.js";

/** What takes imports as the contract says, and keeps them in memory. */
export interface FakeImportServer {
  readonly url: string;
  /** Every request that was heard, in order. */
  readonly requests: readonly ImportSessionRequest[];
  /** Imported sessions: the bytes of their sources, by format. */
  readonly sessions: ReadonlyMap<string, ReadonlyMap<LegacySourceFormat, Buffer>>;
  /** The most requests that were being answered at one time. */
  readonly busiest: number;
  /** Breaks every connection. */
  breakConnections(): void;
  close(): Promise<void>;
}

export interface FakeImportOptions {
  /** Done before a request is answered, and after its parts are kept. What it throws is the answer. */
  readonly onRequest?: (
    request: ImportSessionRequest,
    server: FakeImportServer,
  ) => Promise<void> | void;
  /** Sessions of which parts are taken and forgotten. */
  readonly forgets?: (sessionId: string) => boolean;
  /** Default: gRPC. */
  readonly wire?: "grpc" | "connect";
  readonly messageBytes?: number;
  readonly port?: number;
}

/** A refusal as the service makes them. */
export function refusedAs(
  code: Code,
  reason: string,
  metadata: Readonly<Record<string, string>> = {},
): ConnectError {
  const info = { reason, domain: "toolmark", metadata };
  return new ConnectError(`because of ${reason}`, code, undefined, [
    { desc: ErrorInfoSchema, value: create(ErrorInfoSchema, info) },
  ]);
}

export async function startFakeImportServer(
  options: FakeImportOptions = {},
): Promise<FakeImportServer> {
  const { wire = "grpc", messageBytes = 4 * 1024 * 1024, port = 0 } = options;
  const requests: ImportSessionRequest[] = [];
  const sessions = new Map<string, Map<LegacySourceFormat, Buffer>>();
  const parts = new Map<string, Map<LegacySourceFormat, Buffer>>();
  const connections = new Set<ServerHttp2Session>();
  const load = { now: 0, most: 0 };

  const answer = async (request: ImportSessionRequest): Promise<ImportSessionResponse> => {
    requests.push(request);
    const kept = parts.get(request.requestId) ?? new Map<LegacySourceFormat, Buffer>();
    parts.set(request.requestId, kept);
    const taken = options.forgets?.(request.sessionId) === true ? [] : request.parts;
    for (const part of taken) keep(kept, part.format, part.offsetBytes, part.data);
    await options.onRequest?.(request, server);
    return replyTo(request, kept, sessions);
  };
  const http = createServer(
    connectNodeAdapter({
      ...{ grpc: wire === "grpc", grpcWeb: false, connect: wire === "connect" },
      routes: (router) => {
        router.rpc(InfoService.method.getServerInfo, () => {
          return { limits: { messageBytes: BigInt(messageBytes) } };
        });
        router.rpc(SessionService.method.importSession, async (request) => {
          load.now += 1;
          load.most = Math.max(load.most, load.now);
          try {
            return await answer(request);
          } finally {
            load.now -= 1;
          }
        });
      },
    }),
  );
  http.on("session", (session) => {
    connections.add(session);
    session.once("close", () => connections.delete(session));
  });
  http.listen(port, "127.0.0.1");
  await once(http, "listening");
  const breakConnections = (): void => {
    for (const connection of connections) connection.destroy();
  };
  const server: FakeImportServer = {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    requests,
    sessions,
    get busiest() {
      return load.most;
    },
    breakConnections,
    close: async () => {
      breakConnections();
      const closed = once(http, "close");
      http.close();
      await closed;
    },
  };
  return server;
}

function keep(
  kept: Map<LegacySourceFormat, Buffer>,
  format: LegacySourceFormat,
  offsetBytes: bigint,
  data: Uint8Array,
): void {
  const before = kept.get(format) ?? Buffer.alloc(0);
  const offset = Number(offsetBytes);
  if (offset > before.length) throw refusedAs(Code.InvalidArgument, "FIELD_INVALID");
  kept.set(format, Buffer.concat([before, data.subarray(before.length - offset)]));
}

function replyTo(
  { requestId, sessionId, sources }: ImportSessionRequest,
  kept: ReadonlyMap<LegacySourceFormat, Buffer>,
  sessions: Map<string, Map<LegacySourceFormat, Buffer>>,
): ImportSessionResponse {
  const progress = sources.map(({ format }) => {
    return { format, receivedBytes: BigInt(kept.get(format)?.length ?? 0) };
  });
  const isWhole = sources.every(({ format, sizeBytes }) => {
    return kept.has(format) && BigInt(kept.get(format)?.length ?? 0) === sizeBytes;
  });
  const { output } = SessionService.method.importSession;
  if (!isWhole) return create(output, { progress });
  for (const { format, sha256 } of sources) {
    const digest = createHash("sha256").update(kept.get(format)!).digest();
    if (!digest.equals(sha256)) throw refusedAs(Code.InvalidArgument, "SOURCE_MISMATCH");
  }
  const isNew = !sessions.has(sessionId);
  sessions.set(sessionId, new Map(kept));
  return create(output, {
    progress,
    session: { sessionId, title: requestId },
    summary: { ...{ toolCalls: 1000, joinedResults: 900, openCalls: 2 }, messages: 3, openAsks: 1 },
    isNew,
  });
}
