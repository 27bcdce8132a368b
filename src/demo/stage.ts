import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { CallService } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { EvidenceService } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { RunService } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { ApprovalService } from "../../gen/toolmark/v1/approval_service_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { SessionService } from "../../gen/toolmark/v1/session_service_pb.js";

const SERVER = fileURLToPath(new URL("../server/main.js", import.meta.url));
const LOOK_AGAIN_MS = 10;
const FREE_PORT = "127.0.0.1:0";

export type Clients = ReturnType<typeof clientsOver>;

/** A server process on a temporary database. */
export class Stage {
  readonly #folder = mkdtempSync(join(tmpdir(), "toolmark-demo-"));
  #server: ChildProcess | undefined;
  #connection: Http2SessionManager | undefined;

  /** Starts the server on the database as it is, and connects to it. */
  async start(): Promise<Clients> {
    const readyFile = join(this.#folder, "ready.json");
    rmSync(readyFile, { force: true });
    const server = spawn(process.execPath, this.#arguments(readyFile), {
      stdio: ["ignore", "ignore", "inherit"],
      env: environment(),
    });
    this.#server = server;
    while (!existsSync(readyFile)) {
      if (server.exitCode !== null || server.signalCode !== null) {
        throw new Error("the server ended before it was ready");
      }
      await delay(LOOK_AGAIN_MS);
    }
    const { grpcAddress } = JSON.parse(readFileSync(readyFile, "utf8")) as { grpcAddress: string };
    const baseUrl = `http://${grpcAddress}`;
    this.#connection = new Http2SessionManager(baseUrl);
    return clientsOver(baseUrl, this.#connection);
  }

  /** Ends the server as a crash would. */
  async kill(): Promise<void> {
    this.#connection?.abort();
    const server = this.#server;
    if (server === undefined) return;
    const ended = once(server, "exit");
    server.kill("SIGKILL");
    await ended;
  }

  /** Leaves nothing behind. */
  close(): void {
    this.#connection?.abort();
    this.#server?.kill("SIGKILL");
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }

  #arguments(readyFile: string): string[] {
    const store = `sqlite:${join(this.#folder, "toolmark.db")}`;
    const ports = ["--grpc-address", FREE_PORT, "--http-address", FREE_PORT];
    const rest = ["--store", store, "--ready-file", readyFile, "--log-level", "warn"];
    return [SERVER, ...ports, ...rest];
  }
}

/** Settings of another server are not for this one. */
function environment(): NodeJS.ProcessEnv {
  const entries = Object.entries(process.env);
  return Object.fromEntries(entries.filter(([name]) => !name.startsWith("TOOLMARK_")));
}

function clientsOver(baseUrl: string, sessionManager: Http2SessionManager) {
  const transport = createGrpcTransport({ baseUrl, sessionManager });
  return {
    sessions: createClient(SessionService, transport),
    runs: createClient(RunService, transport),
    calls: createClient(CallService, transport),
    evidence: createClient(EvidenceService, transport),
    history: createClient(HistoryService, transport),
    approvals: createClient(ApprovalService, transport),
  };
}
