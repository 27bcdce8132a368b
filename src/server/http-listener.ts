import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { createServer as createHttp2Server, type Http2Server } from "node:http2";
import type { AddressInfo, Socket } from "node:net";
import type { Limits } from "../domain/limits.js";
import type { HttpRequest, HttpResponse } from "../rpc/http.js";
import type { Log } from "../rpc/log.js";
import { AddressUnavailableError, type Address } from "./address.js";
import { HttpSessions } from "./http-sessions.js";
import { sniffProtocol } from "./protocol-sniffer.js";
import { guardAgainstPages } from "./web-guard.js";

const HEADERS_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_TIMEOUT_MS = 65_000;
const MIB = 1024 * 1024;

/** Answers a request, or returns false to leave it to the next. */
export type HttpRoute = (request: HttpRequest, response: HttpResponse) => boolean;

export interface HttpListenerOptions {
  readonly address: Address;
  readonly allowedHosts: readonly string[];
  readonly limits: Limits;
  /** Asked in order. */
  readonly routes: readonly HttpRoute[];
  readonly log: Log;
}

export interface HttpListener {
  readonly address: Address;
  /** Stops accepting, lets streams end, and after the grace time destroys what is left. */
  close(graceMs: number): Promise<void>;
}

/** Serves HTTP/1.1 and cleartext HTTP/2 on one port. */
export async function listenHttp(options: HttpListenerOptions): Promise<HttpListener> {
  const http1 = createServer({
    headersTimeout: HEADERS_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
  });
  const { streamsPerConnection, outgoingMessageBytes } = options.limits;
  const http2 = createHttp2Server({
    settings: { maxConcurrentStreams: streamsPerConnection },
    // Node's 10 MB refuses new streams while replies of old ones wait to be read.
    maxSessionMemory: 10 + Math.ceil((streamsPerConnection * outgoingMessageBytes) / MIB),
  });
  const sessions = new HttpSessions(http2);
  const undecided = splitByProtocol(http1, http2);
  http2.on("sessionError", () => {
    options.log.debug("http/2 session failed");
  });
  const address = await listen(http1, options.address);
  const handler = requestHandler(options, address);
  http1.on("request", handler);
  http2.on("request", handler);
  const destroy = (): void => {
    for (const socket of undecided) socket.destroy();
    sessions.destroy();
    http1.closeAllConnections();
  };
  return {
    address,
    close: async (graceMs) => {
      sessions.closeGracefully();
      await closeWithin(http1, graceMs, destroy);
    },
  };
}

async function listen(server: Server, { host, port }: Address): Promise<Address> {
  server.listen(port, host);
  try {
    await once(server, "listening");
  } catch (fault) {
    throw new AddressUnavailableError({ host, port }, fault);
  }
  return { host, port: (server.address() as AddressInfo).port };
}

/**
 * Hands each connection to the server of its protocol. Returns those of which nothing is known yet.
 */
function splitByProtocol(http1: Server, http2: Http2Server): ReadonlySet<Socket> {
  const undecided = new Set<Socket>();
  const serveHttp1 = http1.listeners("connection") as ((socket: Socket) => void)[];
  http1.removeAllListeners("connection");
  http1.on("connection", (socket) => {
    undecided.add(socket);
    socket.once("close", () => undecided.delete(socket));
    sniffProtocol(socket, HEADERS_TIMEOUT_MS, (protocol) => {
      undecided.delete(socket);
      if (protocol === "http2") {
        // A server of HTTP/1.1 lets sockets stay half open: the session of a peer that left would
        // never close.
        socket.allowHalfOpen = false;
        http2.emit("connection", socket);
      } else {
        for (const serve of serveHttp1) serve.call(http1, socket);
        socket.resume();
      }
    });
  });
  return undecided;
}

function requestHandler(
  options: HttpListenerOptions,
  bound: Address,
): (request: HttpRequest, response: HttpResponse) => void {
  const guard = guardAgainstPages(bound, options.allowedHosts);
  return (request, response) => {
    // Reads are answered to GET as well, and some replies hold answer tokens.
    response.setHeader("cache-control", "no-store");
    const refusal = guard(request);
    if (refusal !== undefined) answerText(response, 403, refusal);
    else if (!options.routes.some((route) => route(request, response))) {
      answerText(response, 404, "not found");
    }
  };
}

export function answerText(response: HttpResponse, status: number, text: string): void {
  response.writeHead(status, { "content-type": "text/plain; charset=utf-8" });
  response.end(`${text}\n`);
}

async function closeWithin(server: Server, graceMs: number, destroy: () => void): Promise<void> {
  const closed = once(server, "close");
  server.close();
  const timer = setTimeout(destroy, graceMs);
  await closed;
  clearTimeout(timer);
}
