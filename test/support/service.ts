import { Writable } from "node:stream";
import type { DescService } from "@bufbuild/protobuf";
import { createClient, type Client, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
  Http2SessionManager,
} from "@connectrpc/connect-node";
import { CallService } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { EvidenceService } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { ReplayService } from "../../gen/toolmark/engine/v1/replay_service_pb.js";
import { RunService } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { ApprovalService } from "../../gen/toolmark/v1/approval_service_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { InfoService } from "../../gen/toolmark/v1/info_service_pb.js";
import { SessionService } from "../../gen/toolmark/v1/session_service_pb.js";
import type { CommitFeed } from "../../src/ledger/commit-feed.js";
import type { Store } from "../../src/ledger/store-port.js";
import type { Authenticate } from "../../src/rpc/authenticate.js";
import { readConfig, type Config } from "../../src/server/config.js";
import { createLog } from "../../src/server/log.js";
import { openStore, startService } from "../../src/server/service.js";

/** The ways that a JavaScript client can speak to the service. */
export const WIRES = ["grpc", "connect-binary", "connect-json", "grpc-web"] as const;
export type Wire = (typeof WIRES)[number];

export interface TestService {
  readonly grpcAddress: string;
  readonly httpAddress: string;
  readonly config: Config;
  /** Everything that was logged so far, one JSON object a line. */
  logged(): string;
  clients(wire?: Wire): Clients;
  /** Shuts the service down and leaves its clients as they are. */
  drain(): Promise<void>;
  stop(): Promise<void>;
}

/** A client of each service over one connection. */
export interface Clients {
  readonly sessions: Client<typeof SessionService>;
  readonly runs: Client<typeof RunService>;
  readonly calls: Client<typeof CallService>;
  readonly evidence: Client<typeof EvidenceService>;
  readonly replays: Client<typeof ReplayService>;
  readonly history: Client<typeof HistoryService>;
  readonly approvals: Client<typeof ApprovalService>;
  readonly info: Client<typeof InfoService>;
}

export interface TestServiceOptions {
  /** As for `--store`. Default: a store in memory. */
  readonly store?: string;
  readonly flags?: readonly string[];
  /** Puts something between the service and its store. */
  readonly wrapStore?: (store: Store) => Store;
  readonly nowMs?: () => number;
  readonly monotonicMs?: () => number;
  /** How often the clock is looked at while something waits. Default: so often that no test waits for it. */
  readonly expiryCheckMs?: number;
  readonly askHeartbeatMs?: number;
  readonly eventHeartbeatMs?: number;
  readonly watchLagMs?: number;
  /** Where commits are told of, for a test that listens too. */
  readonly commits?: CommitFeed;
  /** Tells who calls. Default: the loopback principal, whoever it is. */
  readonly authenticate?: Authenticate;
}

/** Starts the real service in this process on free ports. Everything is logged, to be looked through. */
export async function startTestService(options: TestServiceOptions = {}): Promise<TestService> {
  const flags = ["--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"];
  const { store = "memory:", wrapStore = (inner: Store): Store => inner } = options;
  const { nowMs, monotonicMs, authenticate, askHeartbeatMs, expiryCheckMs = 10 } = options;
  const { commits, eventHeartbeatMs, watchLagMs } = options;
  const outcome = readConfig([...flags, "--store", store, ...(options.flags ?? [])], {});
  if (outcome.kind !== "config") throw new Error(outcome.text);
  const { config } = outcome;
  const lines: string[] = [];
  const sink = new Writable({
    write(chunk: Buffer, _encoding, done) {
      lines.push(chunk.toString());
      done();
    },
  });
  const service = await startService({
    config,
    version: "0.0.0-test",
    log: createLog("trace", sink),
    onInvariantBroken: () => {
      lines.push('{"msg":"an invariant broke"}\n');
    },
    openStore: async (location) => wrapStore(await openStore(location)),
    expiryCheckMs,
    ...(nowMs === undefined ? {} : { nowMs }),
    ...(monotonicMs === undefined ? {} : { monotonicMs }),
    ...(askHeartbeatMs === undefined ? {} : { askHeartbeatMs }),
    ...(eventHeartbeatMs === undefined ? {} : { eventHeartbeatMs }),
    ...(watchLagMs === undefined ? {} : { watchLagMs }),
    ...(commits === undefined ? {} : { commits }),
    ...(authenticate === undefined ? {} : { authenticate }),
  });
  const { grpcAddress, httpAddress } = service;
  const connections: Http2SessionManager[] = [];
  return {
    grpcAddress,
    httpAddress,
    config,
    logged: () => lines.join(""),
    clients: (wire = "grpc") => clientsOf(transportOf(wire, grpcAddress, httpAddress, connections)),
    drain: () => service.drain(),
    stop: async () => {
      for (const connection of connections) connection.abort();
      await service.drain();
    },
  };
}

/** A transport to a service at these addresses. Connections that stay open are added to `connections`. */
export function transportOf(
  wire: Wire,
  grpcAddress: string,
  httpAddress: string,
  connections: Http2SessionManager[] = [],
): Transport {
  if (wire === "grpc") {
    const baseUrl = `http://${grpcAddress}`;
    const sessionManager = new Http2SessionManager(baseUrl);
    connections.push(sessionManager);
    return createGrpcTransport({ baseUrl, sessionManager });
  }
  const baseUrl = `http://${httpAddress}`;
  if (wire === "grpc-web") return createGrpcWebTransport({ baseUrl, httpVersion: "1.1" });
  const useBinaryFormat = wire === "connect-binary";
  return createConnectTransport({ baseUrl, httpVersion: "1.1", useBinaryFormat });
}

export function clientsOf(transport: Transport): Clients {
  const client = <S extends DescService>(service: S): Client<S> =>
    createClient<S>(service, transport);
  return {
    sessions: client(SessionService),
    runs: client(RunService),
    calls: client(CallService),
    evidence: client(EvidenceService),
    replays: client(ReplayService),
    history: client(HistoryService),
    approvals: client(ApprovalService),
    info: client(InfoService),
  };
}
