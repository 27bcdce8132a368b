import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";

/** Requests and responses of HTTP/1.1 and HTTP/2, which differ little. */
export type HttpRequest = IncomingMessage | Http2ServerRequest;
export type HttpResponse = (ServerResponse & { req: IncomingMessage }) | Http2ServerResponse;

/** Address and port of the caller. */
export function peerOf({ socket }: HttpRequest): string {
  return `${socket.remoteAddress ?? "unknown"}:${String(socket.remotePort ?? 0)}`;
}
