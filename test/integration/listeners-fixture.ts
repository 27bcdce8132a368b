import { setTimeout as delay } from "node:timers/promises";
import { fromBinary, type DescMethod } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { Client, credentials, Metadata, type ServiceError } from "@grpc/grpc-js";
import { ErrorInfoSchema, type ErrorInfo } from "../../gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../../gen/google/rpc/status_pb.js";
import { EvidenceService } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { InfoService } from "../../gen/toolmark/v1/info_service_pb.js";
import { bindService, type Implementation } from "../../src/rpc/call.js";
import { infoHandlers } from "../../src/rpc/handlers/info.js";
import { readConfig, type Config } from "../../src/server/config.js";
import { createLog } from "../../src/server/log.js";
import { startServer, type RunningServer, type ServerOptions } from "../../src/server/start.js";

/** Handlers of a test, on services that exist. */
export interface TestHandlers {
  readonly history?: Implementation<typeof HistoryService>;
  readonly evidence?: Implementation<typeof EvidenceService>;
}

export interface TestServer extends RunningServer {
  /** What was logged so far, debug lines too. */
  logLines(): Record<string, unknown>[];
  invariantsBroken(): number;
}

/** The configuration of a test's server: free ports, and whatever flags it gives. */
export function testConfig(...flags: string[]): Config {
  const addresses = ["--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"];
  const outcome = readConfig([...addresses, "--drain-timeout-ms", "2000", ...flags], {});
  if (outcome.kind !== "config") throw new Error(outcome.text);
  return outcome.config;
}

/** Starts a real server in this process; the caller drains it. */
export async function startTestServer(
  handlers: TestHandlers = {},
  options: Partial<ServerOptions> = {},
): Promise<TestServer> {
  const config = options.config ?? testConfig();
  const lines: string[] = [];
  const log = createLog("debug", { write: (line) => lines.push(line) });
  let broken = 0;
  const { limits } = config;
  const server = await startServer({
    config,
    log,
    binding: [
      bindService(InfoService, infoHandlers({ version: "1.2.3", limits, methods: () => [] })),
      bindService(HistoryService, handlers.history ?? {}),
      bindService(EvidenceService, handlers.evidence ?? {}),
    ],
    onInvariantBroken: () => (broken += 1),
    ...options,
  });
  return {
    ...server,
    logLines: () => lines.map((line) => JSON.parse(line) as Record<string, unknown>),
    invariantsBroken: () => broken,
  };
}

/** Every protocol in every dress that clients use, by name. */
export const TRANSPORTS: readonly (readonly [string, (server: RunningServer) => Transport])[] = [
  ["gRPC", ({ grpcAddress }) => createGrpcTransport({ baseUrl: `http://${grpcAddress}` })],
  ...(["1.1", "2"] as const).flatMap((httpVersion) =>
    [true, false].flatMap((useBinaryFormat) => {
      const dress = `${useBinaryFormat ? "binary" : "JSON"} over HTTP/${httpVersion}`;
      const optionsOf = ({ httpAddress }: RunningServer) => {
        return { baseUrl: `http://${httpAddress}`, httpVersion, useBinaryFormat };
      };
      return [
        [
          `Connect ${dress}`,
          (server: RunningServer) => createConnectTransport(optionsOf(server)),
        ] as const,
        [
          `gRPC-Web ${dress}`,
          (server: RunningServer) => createGrpcWebTransport(optionsOf(server)),
        ] as const,
      ];
    }),
  ),
];

/** The one of each listener that exercises streams best. */
export const BOTH_LISTENERS = TRANSPORTS.filter(
  ([name]) => name === "gRPC" || name === "Connect binary over HTTP/2",
);

/** What a failed call tells its caller. */
export interface Failure {
  readonly code: string;
  readonly message: string;
  readonly errorInfo: ErrorInfo | undefined;
}

/** Waits for a call to fail. */
export async function failureOf(call: Promise<unknown>): Promise<Failure> {
  const fault: unknown = await call.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(fault instanceof ConnectError)) throw new Error("the call did not fail", { cause: fault });
  const [errorInfo] = fault.findDetails(ErrorInfoSchema);
  return { code: Code[fault.code], message: fault.rawMessage, errorInfo };
}

/** All messages of a stream. */
export async function allOf<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

/** A client of grpc-js that sends bytes as they are. */
export class RawGrpcClient {
  readonly #client: Client;

  constructor({ grpcAddress }: RunningServer) {
    this.#client = new Client(grpcAddress, credentials.createInsecure(), {
      "grpc.max_send_message_length": -1,
      "grpc.use_local_subchannel_pool": 1,
    });
  }

  /** The reply's bytes, or how the call failed. */
  unary(path: string, request: Uint8Array, deadlineMs = Infinity): Promise<Buffer | Failure> {
    return new Promise((resolve) => {
      this.#client.makeUnaryRequest(
        path,
        (bytes: Uint8Array) => Buffer.from(bytes),
        (bytes: Buffer) => bytes,
        request,
        new Metadata(),
        { deadline: deadlineMs },
        (fault, reply) => {
          resolve(fault === null ? (reply ?? Buffer.alloc(0)) : grpcFailure(fault));
        },
      );
    });
  }

  close(): void {
    this.#client.close();
  }
}

const GRPC_CODES = Code as unknown as Record<number, string>;

function grpcFailure(fault: ServiceError): Failure {
  const [details] = fault.metadata.get("grpc-status-details-bin");
  const status = Buffer.isBuffer(details) ? fromBinary(StatusSchema, details) : undefined;
  const packed = status?.details[0];
  return {
    code: GRPC_CODES[fault.code] ?? String(fault.code),
    message: fault.details,
    errorInfo: packed === undefined ? undefined : anyUnpack(packed, ErrorInfoSchema),
  };
}

/** The path of a method on every HTTP-based protocol. */
export function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

/** Waits until something holds, looking again at every turn of the event loop. */
export async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await delay(1);
}

/** A promise that a test settles. */
export function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}
