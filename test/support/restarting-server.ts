import type { Http2SessionManager } from "@connectrpc/connect-node";
import {
  launchServer,
  StartFailedError,
  type LaunchOptions,
  type ServerProcess,
} from "./server-process.js";
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
  /** Time from the signal to the end, of each life. */
  readonly exitMs: number[] = [];
  #life: Promise<ServerLife>;
  #lives = 0;
  #isOver = false;

  constructor(
    readonly folder: string,
    readonly store: string,
    readonly options: LaunchOptions = {},
  ) {
    this.#life = this.#start();
  }

  /** The life that goes on, or the next one once it has begun after it. An error once all is over. */
  async life(): Promise<ServerLife> {
    if (this.#isOver) throw new Error("the server has ended for good");
    return this.#life;
  }

  /** Ends this life by signals, one after the other, and begins the next. Clients stay with it until it is gone. */
  async restart(...signals: readonly NodeJS.Signals[]): Promise<ServerLife> {
    await this.#end(await this.#life, signals);
    this.#life = this.#start();
    return this.#life;
  }

  /** Ends it for good. Does nothing if that was done. */
  async stop(signal: "SIGKILL" | "SIGTERM"): Promise<void> {
    if (this.#isOver) return;
    this.#isOver = true;
    const life = await lifeOrNone(this.#life);
    if (life !== undefined) await this.#end(life, [signal]);
  }

  async #start(): Promise<ServerLife> {
    const server = await launchServer(this.folder, this.store, this.options);
    this.readyMs.push(server.readyMs);
    this.#lives += 1;
    return new ServerLife(this.#lives, server);
  }

  async #end(life: ServerLife, signals: readonly NodeJS.Signals[]): Promise<void> {
    const beganMs = performance.now();
    for (const signal of signals) life.server.send(signal);
    this.exitCodes.push(await life.server.exited);
    this.exitMs.push(performance.now() - beganMs);
    life.disconnect();
  }
}

/** None if it could not begin: then there is nothing to end. */
async function lifeOrNone(life: Promise<ServerLife>): Promise<ServerLife | undefined> {
  try {
    return await life;
  } catch (error) {
    if (error instanceof StartFailedError) return undefined;
    throw error;
  }
}
