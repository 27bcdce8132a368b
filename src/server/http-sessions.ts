import type { Http2Server, ServerHttp2Session } from "node:http2";

const PING_INTERVAL_MS = 30_000;
const PING_TIMEOUT_MS = 10_000;

/**
 * The HTTP/2 connections of a server: kept alive by pings, so that a dead peer is noticed, and
 * ended together.
 */
export class HttpSessions {
  readonly #sessions = new Set<ServerHttp2Session>();

  constructor(server: Http2Server) {
    server.on("session", (session) => {
      this.#sessions.add(session);
      const stopPinging = keepAlive(session);
      session.once("close", () => {
        stopPinging();
        this.#sessions.delete(session);
      });
    });
  }

  /**
   * Tells every peer by GOAWAY to open no more streams; a session closes when its last stream has
   * ended.
   */
  closeGracefully(): void {
    for (const session of this.#sessions) session.close();
  }

  destroy(): void {
    for (const session of this.#sessions) session.destroy();
  }
}

function keepAlive(session: ServerHttp2Session): () => void {
  let overdue: NodeJS.Timeout | undefined;
  const interval = setInterval(() => {
    overdue ??= setTimeout(() => {
      session.destroy();
    }, PING_TIMEOUT_MS).unref();
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
