import type { IncomingHttpHeaders } from "node:http";

/** The longest time that a timer can wait, about 24 days. A longer one would fire at once. */
const TIMEOUT_MAX_MS = 2 ** 31 - 1;

const UNIT_MS: Readonly<Record<string, number>> = {
  H: 3_600_000,
  M: 60_000,
  S: 1000,
  m: 1,
  u: 0.001,
  n: 0.000_001,
};

/** Lowers a longer deadline to what can be kept, in the headers of Connect and gRPC-Web. */
export function capTimeout(headers: IncomingHttpHeaders): void {
  const connectTimeout = headers["connect-timeout-ms"];
  if (typeof connectTimeout === "string" && Number(connectTimeout) > TIMEOUT_MAX_MS) {
    headers["connect-timeout-ms"] = String(TIMEOUT_MAX_MS);
  }
  const grpcTimeout = headers["grpc-timeout"];
  if (typeof grpcTimeout === "string" && grpcTimeoutMs(grpcTimeout) > TIMEOUT_MAX_MS) {
    headers["grpc-timeout"] = `${String(Math.floor(TIMEOUT_MAX_MS / 1000))}S`;
  }
}

/** NaN, which is above nothing, for what is no timeout: connect-node refuses it. */
function grpcTimeoutMs(text: string): number {
  return Number(text.slice(0, -1)) * (UNIT_MS[text.slice(-1)] ?? Number.NaN);
}
