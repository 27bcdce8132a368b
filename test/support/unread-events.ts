import {
  connect as connectHttp2,
  type ClientHttp2Session,
  type ClientHttp2Stream,
} from "node:http2";
import { connect as connectTcp, type Socket } from "node:net";
import { buffer } from "node:stream/consumers";
import { create, toBinary } from "@bufbuild/protobuf";
import {
  HistoryService,
  WatchEventsRequestSchema,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { pathOf } from "../integration/listeners-fixture.js";

/** How a watch reaches a listener when nobody reads it. A client library would read ahead. */
export const RAW_WIRES = ["gRPC", "Connect over HTTP/2", "Connect over HTTP/1.1", "SSE"] as const;
export type RawWire = (typeof RAW_WIRES)[number];

export interface Addresses {
  readonly grpcAddress: string;
  readonly httpAddress: string;
}

/** A watch from the beginning that takes nothing. */
export interface UnreadWatch {
  /** Ends it without a word: a stream is reset, a connection closed. */
  breakOff(): void;
  /** Everything that the server has sent, once it has ended the stream. */
  readRest(): Promise<Buffer>;
}

/** So many watches of a session that take nothing, over one connection where the wire has streams. */
export function unreadWatches(
  server: Addresses,
  wire: RawWire,
  sessionId: string,
  count: number,
): { readonly watches: readonly UnreadWatch[]; destroy(): void } {
  const ofCount = <T>(make: () => T): T[] => Array.from({ length: count }, make);
  if (wire === "SSE" || wire === "Connect over HTTP/1.1") {
    const sockets = ofCount(() => unreadSocket(server, wire, sessionId));
    const watches = sockets.map((socket) => ({
      breakOff: () => void socket.resetAndDestroy(),
      readRest: () => restOf(socket),
    }));
    return {
      watches,
      destroy: () => {
        for (const socket of sockets) socket.destroy();
      },
    };
  }
  const address = wire === "gRPC" ? server.grpcAddress : server.httpAddress;
  const connection = connectHttp2(`http://${address}`).on("error", () => undefined);
  const streams = ofCount(() => unreadStream(connection, wire, sessionId));
  return {
    watches: streams.map((stream) => ({
      breakOff: () => void stream.destroy(),
      readRest: () => buffer(stream),
    })),
    destroy: () => {
      connection.destroy();
    },
  };
}

function unreadStream(
  connection: ClientHttp2Session,
  wire: "gRPC" | "Connect over HTTP/2",
  sessionId: string,
): ClientHttp2Stream {
  const stream = connection.request({
    ":method": "POST",
    ":path": pathOf(HistoryService.method.watchEvents),
    "content-type": wire === "gRPC" ? "application/grpc+proto" : "application/connect+proto",
    te: "trailers",
  });
  stream.on("error", () => undefined);
  stream.pause().end(envelopeOf(sessionId));
  return stream;
}

function unreadSocket(
  { httpAddress }: Addresses,
  wire: "SSE" | "Connect over HTTP/1.1",
  sessionId: string,
): Socket {
  const [host, port] = httpAddress.split(":");
  const socket = connectTcp(Number(port), host).pause();
  socket.on("error", () => undefined);
  if (wire === "SSE") {
    socket.write(`GET /v1/sessions/${sessionId}/events HTTP/1.1\r\nhost: localhost\r\n\r\n`);
    return socket;
  }
  const body = envelopeOf(sessionId);
  socket.write(
    `POST ${pathOf(HistoryService.method.watchEvents)} HTTP/1.1\r\nhost: localhost\r\n` +
      `content-type: application/connect+proto\r\ncontent-length: ${body.length}\r\n\r\n`,
  );
  socket.write(body);
  return socket;
}

/** The connection stays open behind a reply whose parts end with one of no bytes. */
async function restOf(socket: Socket): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of socket as AsyncIterable<Buffer>) {
    parts.push(part);
    if (part.subarray(-END.length).equals(END)) break;
  }
  return Buffer.concat(parts);
}

const END = Buffer.from("\r\n0\r\n\r\n");

/** gRPC and Connect send a message alike: a flag, a size, the bytes. */
function envelopeOf(sessionId: string): Buffer {
  const message = toBinary(
    WatchEventsRequestSchema,
    create(WatchEventsRequestSchema, { sessionId }),
  );
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}
