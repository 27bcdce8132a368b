import { setImmediate } from "node:timers/promises";
import type { Message } from "@bufbuild/protobuf";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { invariant } from "../../domain/invariant.js";
import { isRefusal, refuse, type Refusal } from "../../domain/refusal.js";
import type { OpenCall } from "../open-call.js";
import type { Incoming, Middleware } from "../reply.js";
import { RequestsCutOff } from "../requests-cut-off.js";

/**
 * Decodes what every transport hands over as bytes, so that undecodable ones are refused as
 * everything else is.
 */
export const decoding: Middleware = (call, request, next) => {
  if (isRequestStream(request)) return next(call, decodeEach(call, request));
  const message = decode(call, request);
  if (isRefusal(message)) return message;
  call.request = message;
  return next(call, message);
};

function isRequestStream(request: Incoming): request is AsyncIterable<Message | Uint8Array> {
  return Symbol.asyncIterator in request;
}

function decode(call: OpenCall, request: Message | Uint8Array): Message | Refusal {
  invariant(request instanceof Uint8Array, "transports hand over bytes");
  try {
    return call.decode(request);
  } catch (fault) {
    if (!(fault instanceof Error)) throw fault;
    // The decoder's text may quote the bytes; that they do not decode is all there is to tell.
    const { typeName } = call.method.input;
    return refuse(ErrorReason.REQUEST_UNDECODABLE, `the bytes are no ${typeName}`);
  }
}

async function* decodeEach(
  call: OpenCall,
  requests: AsyncIterable<Message | Uint8Array>,
): AsyncGenerator<Message> {
  let fault: unknown;
  try {
    for await (const request of requests) {
      const message = decode(call, request);
      if (isRefusal(message)) throw new RequestsCutOff(message);
      call.request ??= message;
      yield message;
    }
  } catch (thrown) {
    if (thrown instanceof RequestsCutOff) throw thrown;
    fault = thrown;
  }
  // A transport first ends the requests of a caller that left, or breaks them off with an error of
  // its own, and only then says that the caller left. (A caller that ends them itself before it
  // cancels cannot be told from a complete one.)
  await setImmediate();
  if (call.aborted !== undefined) throw new RequestsCutOff(call.aborted);
  if (fault !== undefined) throw new Error("the requests broke off", { cause: fault });
}
