import type { DescMethod, DescService, Message } from "@bufbuild/protobuf";
import type { Limits } from "../domain/limits.js";
import { answerFaults } from "./answer-faults.js";
import type { Authenticate } from "./authenticate.js";
import type { Binding, BoundMethod } from "./call.js";
import type { CallsInFlight } from "./calls-in-flight.js";
import type { Log } from "./log.js";
import { accessLog } from "./middleware/access-log.js";
import { deadline } from "./middleware/deadline.js";
import { decoding } from "./middleware/decoding.js";
import { draining } from "./middleware/draining.js";
import { faults } from "./middleware/faults.js";
import { identity } from "./middleware/identity.js";
import { outgoingSize } from "./middleware/outgoing-size.js";
import { policy } from "./middleware/policy.js";
import { validation, type Validate } from "./middleware/validation.js";
import type { CallEnvironment } from "./open-call.js";
import { resolvePolicy, type Policy } from "./policy.js";
import type { Middleware, Step } from "./reply.js";

export interface PipelineOptions {
  readonly binding: Binding;
  readonly policy: Policy;
  readonly authenticate: Authenticate;
  readonly validate: Validate;
  readonly limits: Limits;
  readonly log: Log;
  readonly callsInFlight: CallsInFlight;
  readonly clock: Omit<CallEnvironment, "draining">;
  /** An invariant broke: nothing in memory can be trusted, so the process must stop. */
  readonly onInvariantBroken: () => void;
}

/**
 * A method with everything that happens to its calls, the same for every listener. Never throws or
 * rejects.
 */
export interface ServedMethod {
  readonly method: DescMethod;
  readonly run: Step;
}

export interface ServedService {
  readonly desc: DescService;
  readonly methods: readonly ServedMethod[];
}

export interface Pipeline {
  readonly services: readonly ServedService[];
  readonly environment: CallEnvironment;
}

/** Composes each method once, so that a call builds no chain. Throws if a method has no policy. */
export function buildPipeline(options: PipelineOptions): Pipeline {
  const chain = middlewareOf(options);
  const services = options.binding.map(({ desc, methods }) => ({
    desc,
    methods: methods.map((bound) => ({ method: bound.method, run: compose(bound, chain) })),
  }));
  const { clock, callsInFlight } = options;
  const environment: CallEnvironment = {
    nowMs: clock.nowMs,
    monotonicMs: clock.monotonicMs,
    mintCorrelationId: clock.mintCorrelationId,
    draining: callsInFlight.draining,
  };
  return { services, environment };
}

/**
 * From the outside in. The log sees every end, refusals by a shutdown too. Calls are counted
 * outside the fault barrier, so that none leaves uncounted. Who calls and whether they may is
 * settled before their bytes are decoded; fields are checked before the handler sees them. Sizes
 * are checked on what the handler gave. The deadline is nearest to the handler, so that everything
 * outside sees an aborted stream end like any other.
 */
function middlewareOf(options: PipelineOptions): readonly Middleware[] {
  const answerFault = answerFaults(options.log, options.onInvariantBroken);
  return [
    accessLog(options.log, options.clock.monotonicMs),
    draining(options.callsInFlight),
    faults(answerFault),
    identity(options.authenticate),
    policy(resolvePolicy(options.binding, options.policy)),
    decoding,
    validation(options.validate),
    outgoingSize(options.limits.outgoingMessageBytes),
    deadline(answerFault),
  ];
}

function compose(bound: BoundMethod, chain: readonly Middleware[]): Step {
  // Decoding is part of the chain, so bytes never get this far.
  const handler: Step = (call, request) =>
    bound.handle(call, request as Message | AsyncIterable<Message>);
  return chain.reduceRight<Step>(
    (next, middleware) => (call, request) => middleware(call, request, next),
    handler,
  );
}
