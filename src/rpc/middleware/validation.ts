import type { DescMethod, Message } from "@bufbuild/protobuf";
import type { Refusal } from "../../domain/refusal.js";
import { takesStream } from "../call.js";
import type { Middleware } from "../reply.js";

/** Checks the fields of a request on their own, before anything is looked up. */
export type Validate = (method: DescMethod, request: Message) => Refusal | undefined;

/**
 * Unary and server-stream requests only: a handler that reads a stream checks each request as it
 * comes.
 */
export function validation(validate: Validate): Middleware {
  return (call, request, next) => {
    if (takesStream(call.method) || call.request === undefined) return next(call, request);
    return validate(call.method, call.request) ?? next(call, request);
  };
}
