import type { Writable } from "node:stream";
import { toBinary, type DescMethod, type Message } from "@bufbuild/protobuf";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import {
  HistoryService,
  WatchEventsRequestSchema,
  type WatchEventsResponse,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { invariant } from "../domain/invariant.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { sseRefusal, sseText } from "../projection/sse.js";
import type { RpcOverHttp } from "./connect-adapter.js";
import { HTTP_STATUS } from "./error-table.js";
import { traceOf } from "./fault-trace.js";
import { cutOff } from "./http-cut-off.js";
import { peerOf, type HttpRequest, type HttpResponse } from "./http.js";
import type { Log } from "./log.js";
import { OpenCall, type CallEnvironment } from "./open-call.js";
import type { Pipeline, ServedMethod } from "./pipeline.js";
import { everyItem, sendEvery } from "./reply.js";
import { isEventsPath, watchRequestOf } from "./sse-request.js";
import { statusJsonOf, statusOf } from "./status.js";

/** Said within the stream: a browser tells its page nothing of a stream that does not begin. */
const TOLD_IN_STREAM: ReadonlySet<ErrorReason> = new Set([
  ErrorReason.CURSOR_MALFORMED,
  ErrorReason.CURSOR_EXPIRED,
]);

/** Serves WatchEvents as Server-Sent Events, through the same pipeline as every other listener and protocol. */
export function serveEventStream({ services, environment }: Pipeline, log: Log): RpcOverHttp {
  const watchEvents = HistoryService.method.watchEvents;
  const served = services.flatMap(({ methods }) => methods).find((each) => isOf(each, watchEvents));
  return (request, response) => {
    if (served === undefined || !isEventsPath(request.url)) return false;
    if (request.method === "GET") {
      const call = new SseCall(watchEvents, environment, { request, response });
      void answer(served, call, { request, response, log });
    } else {
      response.writeHead(405, { allow: "GET" });
      response.end();
    }
    return true;
  };
}

function isOf({ method }: ServedMethod, wanted: DescMethod): boolean {
  return method === wanted;
}

interface Exchange {
  readonly request: HttpRequest;
  readonly response: HttpResponse;
}

async function answer(
  served: ServedMethod,
  call: SseCall,
  { request, response, log }: Exchange & { readonly log: Log },
): Promise<void> {
  try {
    const asked = watchRequestOf(request);
    if (isRefusal(asked)) endRefused(response, asked);
    else await stream(served, call, response, toBinary(WatchEventsRequestSchema, asked));
  } catch (fault) {
    log.error("event stream broke off", { fault: traceOf(fault) });
    response.destroy();
  } finally {
    call.finish();
  }
}

async function stream(
  served: ServedMethod,
  call: SseCall,
  response: HttpResponse,
  asked: Uint8Array,
): Promise<void> {
  await sendEvery(everyItem(served.run(call, asked)), {
    send: (message) => {
      if (!response.headersSent) startStream(response);
      return write(response, textOf(message)) ? undefined : writable(response, call.signal);
    },
    refuse: (refusal) => {
      endRefused(response, refusal);
    },
    end: () => response.end(),
  });
}

/** False if more should wait for a "drain". */
function write(response: Writable, text: string): boolean {
  return response.write(text);
}

function textOf(item: Message): string {
  invariant(item.$typeName === "toolmark.v1.WatchEventsResponse", "a watch gives its messages");
  return sseText(item as WatchEventsResponse);
}

function startStream(response: HttpResponse): void {
  // Proxies that collect a reply before they pass it on are asked not to.
  response.writeHead(200, { "content-type": "text/event-stream", "x-accel-buffering": "no" });
}

/** Before the stream has begun the refusal is the reply, and afterwards its last event. */
function endRefused(response: HttpResponse, refusal: Refusal): void {
  const status = statusOf(refusal);
  if (!response.headersSent && !TOLD_IN_STREAM.has(refusal.reason)) {
    response.writeHead(HTTP_STATUS[status.name], { "content-type": "application/json" });
    response.end(`${statusJsonOf(status)}\n`);
    return;
  }
  if (!response.headersSent) startStream(response);
  response.end(sseRefusal(statusJsonOf(status)));
}

/** Waits until more can be written, but not for a caller that went away or was cut off. */
function writable(response: HttpResponse, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const wake = (): void => {
      response.off("drain", wake);
      signal.removeEventListener("abort", wake);
      resolve();
    };
    response.on("drain", wake);
    signal.addEventListener("abort", wake);
  });
}

class SseCall extends OpenCall {
  readonly #exchange: Exchange;

  constructor(method: DescMethod, environment: CallEnvironment, exchange: Exchange) {
    super(method, environment);
    this.#exchange = exchange;
    exchange.response.once("close", () => {
      this.callerLeft();
    });
  }

  get peer(): string {
    return peerOf(this.#exchange.request);
  }

  header(name: string): string | undefined {
    const value = this.#exchange.request.headers[name.toLowerCase()];
    return Array.isArray(value) ? value[0] : value;
  }

  override cutOff(reason: Refusal): void {
    super.cutOff(reason);
    cutOff(this.#exchange.response);
  }

  /** A browser sets none: the stream goes on until somebody leaves. */
  protected remainingMs(): number {
    return Infinity;
  }
}
