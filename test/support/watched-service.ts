import type { Principal } from "../../src/domain/principal.js";
import { authenticateLoopback, type Authenticate } from "../../src/rpc/authenticate.js";
import { OpenCall } from "../../src/rpc/open-call.js";
import { startTestService, type TestService, type TestServiceOptions } from "./service.js";

/** The header by which a caller says who it is. Whoever sends none is the loopback principal. */
export const CALLER_HEADER = "x-test-caller";

/** A service that tells callers apart, and in which a test sees the calls that arrived. */
export interface WatchedService extends TestService {
  /** Every call that got as far as its caller's identity, in order. */
  readonly arrived: readonly OpenCall[];
}

export async function startWatchedService(
  options: TestServiceOptions & { readonly principals?: Readonly<Record<string, Principal>> } = {},
): Promise<WatchedService> {
  const { principals = {} } = options;
  const arrived: OpenCall[] = [];
  const authenticate: Authenticate = (caller) => {
    if (caller instanceof OpenCall) arrived.push(caller);
    return principals[caller.header(CALLER_HEADER) ?? ""] ?? authenticateLoopback(caller);
  };
  return { ...(await startTestService({ ...options, authenticate })), arrived };
}
