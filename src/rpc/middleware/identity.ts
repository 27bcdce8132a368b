import { isRefusal } from "../../domain/refusal.js";
import type { Authenticate } from "../authenticate.js";
import type { Middleware } from "../reply.js";

/** Stamps the verified caller on the call. Nothing below looks at a credential. */
export function identity(authenticate: Authenticate): Middleware {
  return (call, request, next) => {
    const principal = authenticate(call);
    if (isRefusal(principal)) return principal;
    call.identify(principal);
    return next(call, request);
  };
}
