import { logVerbosity, Server, ServerCredentials, setLogVerbosity } from "@grpc/grpc-js";
import { HealthImplementation } from "grpc-health-check";
import type { Limits } from "../domain/limits.js";
import { addToGrpcServer } from "../rpc/grpc-adapter.js";
import type { Pipeline } from "../rpc/pipeline.js";
import { AddressUnavailableError, formatAddress, type Address } from "./address.js";
import { nextTurn } from "./next-turn.js";

const KEEPALIVE_INTERVAL_MS = 30_000;
const KEEPALIVE_TIMEOUT_MS = 10_000;

/** The name under which health is asked for the server as a whole. */
const WHOLE_SERVER = "";

export interface GrpcListenerOptions {
  readonly address: Address;
  readonly limits: Limits;
  readonly pipeline: Pipeline;
}

export interface GrpcListener {
  readonly address: Address;
  /** Health answers NOT_SERVING from now on, also to those who watch it. */
  stopServing(): void;
  /** Stops accepting, lets streams end, and after the grace time destroys what is left. */
  close(graceMs: number): Promise<void>;
}

/** Serves native gRPC with health. */
export async function listenGrpc(options: GrpcListenerOptions): Promise<GrpcListener> {
  // What fails reaches us by callbacks; grpc-js would write it to the console too.
  setLogVerbosity(logVerbosity.NONE);
  const { limits, pipeline } = options;
  const server = new Server({
    "grpc.max_receive_message_length": limits.messageBytes,
    // Checked in our own middleware, where a reply too large is a fault.
    "grpc.max_send_message_length": -1,
    "grpc.max_concurrent_streams": limits.streamsPerConnection,
    "grpc.keepalive_time_ms": KEEPALIVE_INTERVAL_MS,
    "grpc.keepalive_timeout_ms": KEEPALIVE_TIMEOUT_MS,
    "grpc.enable_channelz": 0,
  });
  addToGrpcServer(server, pipeline);
  const names = [WHOLE_SERVER, ...pipeline.services.map(({ desc }) => desc.typeName)];
  const health = new HealthImplementation(
    Object.fromEntries(names.map((name) => [name, "SERVING"])),
  );
  health.addToServer(server);
  const port = await bind(server, options.address);
  const address = { host: options.address.host, port };
  return {
    address,
    stopServing: () => {
      for (const name of names) health.setStatus(name, "NOT_SERVING");
    },
    close: (graceMs) => close(server, address, graceMs),
  };
}

function bind(server: Server, address: Address): Promise<number> {
  return new Promise((resolve, reject) => {
    server.bindAsync(formatAddress(address), ServerCredentials.createInsecure(), (fault, port) => {
      if (fault === null) resolve(port);
      else reject(new AddressUnavailableError(address, fault));
    });
  });
}

/** How much longer than the grace time a shutdown may take before it is forced. */
const FORCE_AFTER_MS = 100;

/**
 * `drain` destroys late sessions by its own timer, which `tryShutdown` alone would wait for without end. It waits so
 * even for a session that just broke and has not told so yet: two turns let that be told.
 */
async function close(server: Server, address: Address, graceMs: number): Promise<void> {
  server.drain(formatAddress(address), graceMs);
  await nextTurn();
  await nextTurn();
  await new Promise<void>((resolve, reject) => {
    const forcing = setTimeout(() => {
      server.forceShutdown();
      resolve();
    }, graceMs + FORCE_AFTER_MS);
    server.tryShutdown((fault) => {
      clearTimeout(forcing);
      if (fault === undefined) resolve();
      else reject(fault);
    });
  });
}
