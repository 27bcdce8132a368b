import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

export interface TcpProxyOptions {
  /** As host:port. */
  readonly target: string;
  /** Both sides of a connection are destroyed after so long without a byte. Default: never. */
  readonly idleMs?: number;
}

/** Stands between clients and a server, as a load balancer or a network does. */
export interface TcpProxy {
  /** As host:port. */
  readonly address: string;
  /** Connections that it ended for their silence. */
  readonly idled: number;
  /** Breaks every connection; new ones are refused until it is mended. */
  breakDown(): void;
  mend(): void;
  close(): Promise<void>;
}

export async function startTcpProxy({ target, idleMs = 0 }: TcpProxyOptions): Promise<TcpProxy> {
  const sockets = new Set<Socket>();
  let idled = 0;
  let isBroken = false;
  const [host = "", port = ""] = target.split(":");
  const server = createServer((client) => {
    const upstream = connect(Number(port), host);
    const pair = [client, upstream] as const;
    const end = (): void => {
      for (const socket of pair) socket.destroy();
    };
    let last = performance.now();
    const touch = (): void => {
      last = performance.now();
    };
    const timer = setInterval(() => {
      if (idleMs === 0 || performance.now() - last < idleMs) return;
      if (!client.destroyed) idled += 1;
      end();
    }, 10);
    for (const socket of pair) {
      sockets.add(socket);
      socket.on("data", touch).on("error", end);
      socket.on("close", () => {
        clearInterval(timer);
        sockets.delete(socket);
        end();
      });
    }
    client.pipe(upstream).pipe(client);
    if (isBroken) end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const breakAll = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    get idled() {
      return idled;
    },
    breakDown: () => {
      isBroken = true;
      breakAll();
    },
    mend: () => {
      isBroken = false;
    },
    close: async () => {
      breakAll();
      server.close();
      await once(server, "close");
    },
  };
}
