import type { RestartingServer } from "./restarting-server.js";
import {
  startTestService,
  type Clients,
  type TestService,
  type TestServiceOptions,
  type Wire,
} from "./service.js";

/** One life of a server. */
export interface Life {
  readonly number: number;
  readonly httpAddress: string;
  clients(wire?: Wire): Clients;
}

/** A server that ends and lives again on one store. */
export interface LivingServer {
  /** The life that goes on, or the next one once it has begun. */
  life(): Promise<Life>;
  restart(): Promise<void>;
  stop(): Promise<void>;
}

/** The service in this process: it drains, and its store is opened again. */
export class ReopeningService implements LivingServer {
  readonly #options: TestServiceOptions;
  #lives = 0;
  #service: Promise<TestService>;
  #life: Promise<Life>;

  constructor(options: TestServiceOptions) {
    this.#options = options;
    this.#service = startTestService(options);
    this.#life = this.#lifeOf(this.#service);
  }

  life(): Promise<Life> {
    return this.#life;
  }

  async restart(): Promise<void> {
    const before = await this.#service;
    this.#service = endOf(before).then(() => startTestService(this.#options));
    this.#life = this.#lifeOf(this.#service);
    await this.#life;
  }

  async stop(): Promise<void> {
    await endOf(await this.#service);
  }

  async #lifeOf(service: Promise<TestService>): Promise<Life> {
    const { httpAddress, clients } = await service;
    this.#lives += 1;
    return { number: this.#lives, httpAddress, clients };
  }
}

/** Clients hear of it before their connections are gone. */
async function endOf(service: TestService): Promise<void> {
  await service.drain();
  await service.stop();
}

/** A server in a process of its own, which is killed without a word. */
export function killedServer(server: RestartingServer): LivingServer {
  return {
    life: async () => {
      const life = await server.life();
      return {
        number: life.number,
        httpAddress: life.server.httpAddress,
        clients: (wire = "grpc") => life.clients(wire),
      };
    },
    restart: async () => {
      await server.restart("SIGKILL");
    },
    stop: () => server.stop("SIGKILL"),
  };
}
