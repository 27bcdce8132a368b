import { Writable } from "node:stream";
import type { Http2SessionManager } from "@connectrpc/connect-node";
import type { Store } from "../../src/ledger/store-port.js";
import type { Principal } from "../../src/domain/principal.js";
import { authenticateLoopback, type Authenticate } from "../../src/rpc/authenticate.js";
import { OpenCall } from "../../src/rpc/open-call.js";
import { readConfig } from "../../src/server/config.js";
import { createLog } from "../../src/server/log.js";
import { openStore, startService } from "../../src/server/service.js";
import { clientsOf, transportOf, type TestService, type TestServiceOptions } from "./service.js";

/** The header by which a caller says who it is. Whoever sends none is the loopback principal. */
export const CALLER_HEADER = "x-test-caller";

/** A service that tells callers apart, and in which a test sees the calls that arrived. */
export interface WatchedService extends TestService {
  /** Every call that got as far as its caller's identity, in order. */
  readonly arrived: readonly OpenCall[];
  /** Shuts the service down and leaves its clients as they are. */
  drain(): Promise<void>;
}

export async function startWatchedService(
  options: TestServiceOptions & { readonly principals?: Readonly<Record<string, Principal>> } = {},
): Promise<WatchedService> {
  const { store = "memory:", wrapStore = (inner: Store) => inner, principals = {} } = options;
  const free = ["--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"];
  const outcome = readConfig([...free, "--store", store, ...(options.flags ?? [])], {});
  if (outcome.kind !== "config") throw new Error(outcome.text);
  const { config } = outcome;
  const lines: string[] = [];
  const arrived: OpenCall[] = [];
  const authenticate: Authenticate = (caller) => {
    if (caller instanceof OpenCall) arrived.push(caller);
    return principals[caller.header(CALLER_HEADER) ?? ""] ?? authenticateLoopback(caller);
  };
  const service = await startService({
    config,
    version: "0.0.0-test",
    log: createLog("trace", sinkTo(lines)),
    onInvariantBroken: () => lines.push('{"msg":"an invariant broke"}\n'),
    openStore: async (location) => wrapStore(await openStore(location)),
    authenticate,
  });
  const { grpcAddress, httpAddress } = service;
  const connections: Http2SessionManager[] = [];
  return {
    grpcAddress,
    httpAddress,
    config,
    arrived,
    logged: () => lines.join(""),
    clients: (wire = "grpc") => clientsOf(transportOf(wire, grpcAddress, httpAddress, connections)),
    drain: () => service.drain(),
    stop: async () => {
      for (const connection of connections) connection.abort();
      await service.drain();
    },
  };
}

function sinkTo(lines: string[]): Writable {
  return new Writable({
    write(chunk: Buffer, _encoding, done) {
      lines.push(chunk.toString());
      done();
    },
  });
}
