import {
  Code,
  ConnectError,
  createConnectRouter,
  createContextValues,
  type ConnectRouter,
} from "@connectrpc/connect";
import {
  compressionBrotli,
  compressionGzip,
  universalRequestFromNodeRequest,
  universalResponseToNodeResponse,
} from "@connectrpc/connect-node";
import type { UniversalHandler } from "@connectrpc/connect/protocol";
import type { Limits } from "../domain/limits.js";
import { capTimeout } from "./cap-timeout.js";
import { asCarried, asDeclared, CARRIED_AS_JSON, carrying } from "./connect-bytes.js";
import { connectHandler, cutOffKey, peerKey } from "./connect-call.js";
import { traceOf } from "./fault-trace.js";
import { peerOf, type HttpRequest, type HttpResponse } from "./http.js";
import { cutOff } from "./http-cut-off.js";
import type { Log } from "./log.js";
import type { Pipeline } from "./pipeline.js";

/** Answers a request if its path is that of a method; false leaves it untouched. */
export type RpcOverHttp = (request: HttpRequest, response: HttpResponse) => boolean;

/** A last resort: the limit on replies is checked on their binary form, and JSON takes more. */
const JSON_EXPANSION_MAX = 16;

/** Serves every method over Connect and gRPC-Web. Native gRPC has a listener of its own. */
export function serveConnect(pipeline: Pipeline, limits: Limits, log: Log): RpcOverHttp {
  const router = createConnectRouter({
    connect: true,
    grpcWeb: true,
    grpc: false,
    acceptCompression: [compressionGzip, compressionBrotli],
    readMaxBytes: limits.messageBytes,
    writeMaxBytes: limits.outgoingMessageBytes * JSON_EXPANSION_MAX,
    jsonOptions: CARRIED_AS_JSON,
  });
  addServices(router, pipeline);
  const handlers = new Map(router.handlers.map((handler) => [handler.requestPath, handler]));
  return (request, response) => {
    const handler = handlers.get(request.url?.split("?", 1)[0] ?? "");
    if (handler === undefined) return false;
    void answer(handler, request, response, log);
    return true;
  };
}

function addServices(router: ConnectRouter, { services, environment }: Pipeline): void {
  for (const { methods } of services) {
    for (const served of methods) {
      router.rpc(carrying(served.method), connectHandler(served, environment) as never);
    }
  }
}

/** What connectNodeAdapter does, except that a failure goes to our log and not to the console. */
async function answer(
  handler: UniversalHandler,
  request: HttpRequest,
  response: HttpResponse,
  log: Log,
): Promise<void> {
  const connection = { closed: false };
  response.once("close", () => {
    connection.closed = true;
    // connect-node waits for this event for ever if the caller goes away while it cannot write.
    response.emit("drain");
  });
  capTimeout(request.headers);
  try {
    const values = createContextValues()
      .set(peerKey, peerOf(request))
      .set(cutOffKey, () => {
        cutOff(response);
      });
    const universal = universalRequestFromNodeRequest(request, response, undefined, values);
    const body = leavingTheRest(request, response) ?? universal.body;
    const reply = await handler(asCarried({ ...universal, body }));
    await universalResponseToNodeResponse(asDeclared(reply, universal), response);
  } catch (fault) {
    const method = `${handler.service.typeName}.${handler.method.name}`;
    const callerGone = connection.closed || ConnectError.from(fault).code === Code.Aborted;
    const write = callerGone ? log.debug : log.error;
    write("reply not delivered", { method, fault: traceOf(fault) });
    if (!callerGone) response.destroy();
  }
}

/**
 * The bytes of a request over HTTP/1.1. One that is refused before all of it came is read to its end and dropped: else
 * the next request on the connection would wait behind it for ever.
 */
function leavingTheRest(
  request: HttpRequest,
  response: HttpResponse,
): AsyncIterable<Uint8Array> | undefined {
  if (request.httpVersionMajor !== 1) return undefined;
  response.once("finish", () => {
    request.resume();
  });
  return request.iterator({ destroyOnReturn: false });
}
