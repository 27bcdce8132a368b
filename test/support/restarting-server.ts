import type { Http2SessionManager } from "@connectrpc/connect-node";
import { startServerProcess, type ServerProcess } from "./server-process.js";
import { clientsOf, transportOf, type Clients, type Wire } from "./service.js";

/** One life of a server that is ended and started again. */
export class ServerLife {
  readonly #connections: Http2SessionManager[] = [];

  constructor(
    readonly number: number,
    readonly server: ServerProcess,
  ) {}

  /** Clients with a connection of their own. */
  clients(wire: Wire): Clients {
    const { grpcAddress, httpAddress } = this.server;
    return clientsOf(transportOf(wire, grpcAddress, httpAddress, this.#connections));
  }

  disconnect(): void {
    for (const connection of this.#connections) connection.abort();
  }
}

/** A server process on one database that lives, ends and lives again. */
export class RestartingServer {
  readonly readyMs: number[] = [];
  readonly exitCodes: (number | null)[] = [];
  #life: Promise<ServerLife>;
  #lives = 0;
  #isOver = false;

  constructor(
    readonly folder: string,
    readonly store: string,
  ) {
    this.#life = this.#start();
  }

  /** The life that goes on, or the next one once it has begun. An error once all is over. */
  async life(): Promise<ServerLife> {
    if (this.#isOver) throw new Error("the server has ended for good");
    return this.#life;
  }

  restart(signal: "SIGKILL" | "SIGTERM"): Promise<ServerLife> {
    const ended = this.#life;
    this.#life = ended.then(async (life) => {
      await this.#end(life, signal);
      return this.#start();
    });
    return this.#life;
  }

  /** Ends it for good. Does nothing if that was done. */
  async stop(signal: "SIGKILL" | "SIGTERM"): Promise<void> {
    if (this.#isOver) return;
    this.#isOver = true;
    await this.#end(await this.#life, signal);
  }

  async #start(): Promise<ServerLife> {
    const server = await startServerProcess(this.folder, this.store);
    this.readyMs.push(server.readyMs);
    this.#lives += 1;
    return new ServerLife(this.#lives, server);
  }

  async #end(life: ServerLife, signal: "SIGKILL" | "SIGTERM"): Promise<void> {
    this.exitCodes.push(await life.server.stop(signal));
    life.disconnect();
  }
}
