import { dirname } from "node:path";
import type { Http2SessionManager } from "@connectrpc/connect-node";
import { startServerProcess } from "./server-process.js";
import { clientsOf, transportOf, type Clients, type Wire } from "./service.js";

/** A server in a process of its own, and clients of it. */
export interface SpawnedServer {
  clients(wire?: Wire): Clients;
  /** Whether it was told to end: calls may fail from then on. */
  readonly isEnding: boolean;
  /** Asks the process to end and waits until it is gone. */
  stop(): Promise<void>;
  /** Ends the process without a word and waits until it is gone. */
  kill(): Promise<void>;
}

/** Starts the built server on a SQLite file and waits until it listens. */
export async function spawnServer(path: string, ...flags: string[]): Promise<SpawnedServer> {
  const server = await startServerProcess(dirname(path), `sqlite:${path}`, ...flags);
  const { grpcAddress, httpAddress } = server;
  const connections: Http2SessionManager[] = [];
  let isEnding = false;
  const end = async (signal: "SIGKILL" | "SIGTERM"): Promise<void> => {
    isEnding = true;
    await server.stop(signal);
    for (const connection of connections) connection.abort();
  };
  return {
    clients: (wire = "grpc") => clientsOf(transportOf(wire, grpcAddress, httpAddress, connections)),
    get isEnding() {
      return isEnding;
    },
    stop: () => end("SIGTERM"),
    kill: () => end("SIGKILL"),
  };
}
