import { Health } from "../../gen/health/v1/health_pb.js";
import { authenticateLoopback, type Authenticate } from "../rpc/authenticate.js";
import type { Binding } from "../rpc/call.js";
import { CallsInFlight } from "../rpc/calls-in-flight.js";
import { serveConnect } from "../rpc/connect-adapter.js";
import type { Log } from "../rpc/log.js";
import type { Validate } from "../rpc/middleware/validation.js";
import { buildPipeline, type Pipeline } from "../rpc/pipeline.js";
import { POLICY, type Policy } from "../rpc/policy.js";
import { serveEventStream } from "../rpc/sse-adapter.js";
import { formatAddress } from "./address.js";
import type { Config } from "./config.js";
import { drainOnce } from "./drain.js";
import { listenGrpc, type GrpcListener } from "./grpc-listener.js";
import { answerText, listenHttp, type HttpListener, type HttpRoute } from "./http-listener.js";
import { reflectionServices } from "./reflection.js";
import { mintCorrelationId, monotonicMs, nowMs } from "./system.js";

export interface ServerOptions {
  readonly config: Config;
  readonly binding: Binding;
  readonly log: Log;
  /** An invariant broke: the process must stop. */
  readonly onInvariantBroken: () => void;
  /** Checks the fields of requests. Default: no check. */
  readonly validate?: Validate;
  /** Default: whoever reaches the server is the loopback principal. */
  readonly authenticate?: Authenticate;
  readonly policy?: Policy;
  /** More routes of the HTTP listener, asked after those of the methods. */
  readonly routes?: readonly HttpRoute[];
}

export interface RunningServer {
  /** `host:port`, with the port that was picked. */
  readonly grpcAddress: string;
  readonly httpAddress: string;
  /**
   * Shuts down in order and resolves when both listeners are closed. Calling it again waits for the
   * same end.
   */
  drain(): Promise<void>;
}

/**
 * Starts both listeners over one pipeline. Throws if a method has no policy or an address cannot be
 * listened on.
 */
export async function startServer(options: ServerOptions): Promise<RunningServer> {
  const callsInFlight = new CallsInFlight();
  const pipeline = pipelineOf(options, callsInFlight);
  const { config } = options;
  const { limits } = config;
  const grpc = await listenGrpc({ address: config.grpcAddress, limits, pipeline });
  const http = await listenHttpBeside(grpc, options, pipeline, callsInFlight);
  return {
    grpcAddress: formatAddress(grpc.address),
    httpAddress: formatAddress(http.address),
    drain: drainOnce({ callsInFlight, grpc, http, timeoutMs: config.drainTimeoutMs }),
  };
}

function pipelineOf(options: ServerOptions, callsInFlight: CallsInFlight): Pipeline {
  const { config, log, onInvariantBroken } = options;
  const described = [...options.binding.map(({ desc }) => desc), Health];
  return buildPipeline({
    binding: [...options.binding, ...reflectionServices(described)],
    policy: options.policy ?? POLICY,
    authenticate: options.authenticate ?? authenticateLoopback,
    validate: options.validate ?? (() => undefined),
    limits: config.limits,
    clock: { nowMs, monotonicMs, mintCorrelationId },
    ...{ log, callsInFlight, onInvariantBroken },
  });
}

async function listenHttpBeside(
  grpc: GrpcListener,
  { config, log, routes = [] }: ServerOptions,
  pipeline: Pipeline,
  callsInFlight: CallsInFlight,
): Promise<HttpListener> {
  const { httpAddress: address, httpAllowedHosts: allowedHosts, limits } = config;
  const rpc = serveConnect(pipeline, limits, log);
  const events = serveEventStream(pipeline, log);
  const all = [healthRoute(callsInFlight.draining), rpc, events, ...routes];
  try {
    return await listenHttp({ address, allowedHosts, limits, log, routes: all });
  } catch (fault) {
    await grpc.close(0);
    throw fault;
  }
}

function healthRoute(draining: AbortSignal): HttpRoute {
  return (request, response) => {
    if (request.url !== "/healthz") return false;
    if (draining.aborted) answerText(response, 503, "draining");
    else answerText(response, 200, "ok");
    return true;
  };
}
