import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { parseArgs } from "node:util";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import type { ConnectRouter } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { type handleServerStreamingCall, Server, ServerCredentials } from "@grpc/grpc-js";
import {
  HistoryService,
  type WatchEventsRequest,
  WatchEventsRequestSchema,
  type WatchEventsResponse,
  WatchEventsResponseSchema,
} from "../gen/toolmark/v1/history_service_pb.js";
import { answerQuestions, machineMs } from "./answer-questions.js";
import type { BareMessages } from "./bare-messages.js";
import { WATCH_EVENTS_PATH } from "./requests.js";

/**
 * Server streams with nothing behind them. A request names by its session id how many messages are replayed; the stream
 * then stays open for what is broadcast.
 */

const STREAMS_MAX = 100;

const { values } = parseArgs({
  options: { "ready-file": { type: "string" }, messages: { type: "string" } },
});
const { "ready-file": readyFile, messages: messagesFile } = values;
if (readyFile === undefined || messagesFile === undefined) throw new Error("a flag is missing");

const decode = (text: string) => fromBinary(WatchEventsResponseSchema, Buffer.from(text, "base64"));
const encode = (message: WatchEventsResponse) =>
  Buffer.from(toBinary(WatchEventsResponseSchema, message));
const told = JSON.parse(readFileSync(messagesFile, "utf8")) as BareMessages;
const replayed = told.replayed.map(decode);
const boundary = decode(told.boundary);
const live = decode(told.live);
const liveBytes = encode(live);

function messageAt(index: number): WatchEventsResponse {
  const message = replayed[index % replayed.length];
  if (message === undefined) throw new Error("nothing is replayed");
  return message;
}

type Reply = WatchEventsResponse | Buffer;
const grpcStreams = new Set<{ write(reply: Reply): boolean }>();

const watchByGrpc: handleServerStreamingCall<WatchEventsRequest, Reply> = (call) => {
  const replay = async (): Promise<void> => {
    const count = Number(call.request.sessionId);
    for (let index = 0; index < count; index += 1) {
      if (!call.write(messageAt(index))) await once(call, "drain");
    }
    call.write(boundary);
    grpcStreams.add(call);
    call.once("cancelled", () => grpcStreams.delete(call));
  };
  void replay();
};

const wakes = new Set<() => void>();

async function* watchByConnect({
  sessionId,
}: WatchEventsRequest): AsyncGenerator<WatchEventsResponse> {
  const count = Number(sessionId);
  for (let index = 0; index < count; index += 1) yield messageAt(index);
  yield boundary;
  let wake = (): void => undefined;
  const ring = (): void => {
    wake();
  };
  wakes.add(ring);
  try {
    for (;;) {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
      yield live;
    }
  } finally {
    wakes.delete(ring);
  }
}

function listenGrpc(): Promise<number> {
  const server = new Server({ "grpc.max_concurrent_streams": STREAMS_MAX });
  const method = {
    path: WATCH_EVENTS_PATH,
    requestStream: false,
    responseStream: true,
    requestSerialize: (request: WatchEventsRequest) =>
      Buffer.from(toBinary(WatchEventsRequestSchema, request)),
    requestDeserialize: (bytes: Buffer) => fromBinary(WatchEventsRequestSchema, bytes),
    responseSerialize: (reply: Reply) => (Buffer.isBuffer(reply) ? reply : encode(reply)),
    responseDeserialize: (bytes: Buffer): Reply => bytes,
  };
  server.addService({ watchEvents: method }, { watchEvents: watchByGrpc });
  return new Promise((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => {
      if (error === null) resolve(port);
      else reject(error);
    });
  });
}

async function listenHttp(): Promise<number> {
  const routes = (router: ConnectRouter): void => {
    router.service(HistoryService, { watchEvents: watchByConnect });
  };
  const settings = { maxConcurrentStreams: STREAMS_MAX };
  const server = createServer({ settings }, connectNodeAdapter({ routes, grpc: false }));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

/** Gives when it began. */
function broadcast(): number {
  const startMs = machineMs();
  for (const stream of grpcStreams) stream.write(liveBytes);
  for (const wake of wakes) wake();
  return startMs;
}

const grpcAddress = `127.0.0.1:${await listenGrpc()}`;
const httpAddress = `127.0.0.1:${await listenHttp()}`;
answerQuestions({ broadcast });
writeFileSync(readyFile, JSON.stringify({ grpcAddress, httpAddress }));
process.once("SIGTERM", () => process.exit(0));
