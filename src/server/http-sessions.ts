import type { Http2Server, ServerHttp2Session } from "node:http2";
import type { Socket } from "node:net";

const PING_INTERVAL_MS = 30_000;
const PING_TIMEOUT_MS = 10_000;

/**
 * The HTTP/2 connections of a server: kept alive by pings, so that a dead peer is noticed, and
 * ended together.
 */
export class HttpSessions {
  readonly #sockets = new Map<ServerHttp2Session, Socket>();

  constructor(server: Http2Server) {
    let connected: Socket | undefined;
    // Before the server makes the session, which does not hand its socket out.
    server.prependListener("connection", (socket: Socket) => {
      connected = socket;
    });
    server.on("session", (session) => {
      if (connected === undefined) throw new Error("a session has a connection");
      const socket = connected;
      this.#sockets.set(session, socket);
      const stopPinging = keepAlive(session, socket);
      socket.once("close", () => {
        stopPinging();
        this.#sockets.delete(session);
      });
    });
  }

  /**
   * Tells every peer by GOAWAY to open no more streams; a session closes when its last stream has
   * ended.
   */
  closeGracefully(): void {
    for (const session of this.#sockets.keys()) session.close();
  }

  /** A session that is destroyed already may wait for its peer to take the last bytes, which it may never do. */
  destroy(): void {
    for (const [session, socket] of this.#sockets) {
      session.destroy();
      socket.destroy();
    }
  }
}

function keepAlive(session: ServerHttp2Session, socket: Socket): () => void {
  let overdue: NodeJS.Timeout | undefined;
  const interval = setInterval(() => {
    overdue ??= setTimeout(() => {
      session.destroy();
      socket.destroy();
    }, PING_TIMEOUT_MS).unref();
    // One that is destroyed takes no ping: its peer has until then to take the last bytes.
    if (session.destroyed) return;
    session.ping(() => {
      clearTimeout(overdue);
      overdue = undefined;
    });
  }, PING_INTERVAL_MS).unref();
  return () => {
    clearInterval(interval);
    clearTimeout(overdue);
  };
}
