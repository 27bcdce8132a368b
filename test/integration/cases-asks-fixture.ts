import type { Transport } from "@connectrpc/connect";
import type { Http2SessionManager } from "@connectrpc/connect-node";
import type { Principal } from "../../src/domain/principal.js";
import { clientsOf, transportOf, type Clients, type TestService } from "../support/service.js";
import { CALLER_HEADER } from "../support/watched-service.js";
import { until } from "./listeners-fixture.js";

export const TWO_WIRES = ["grpc", "connect-json"] as const;
export type OneOfTwoWires = (typeof TWO_WIRES)[number];

/** The system's clock, which a test can set forward. */
export class MovableClock {
  aheadMs = 0;

  readonly nowMs = (): number => Date.now() + this.aheadMs;
}

/** A principal of the tenant that every test is in. */
export function principal(subject: string, roles: Principal["roles"]): Principal {
  return { tenant: "default", subject, roles };
}

/** Clients of principals of a watched service. */
export class Callers {
  readonly #connections: Http2SessionManager[] = [];
  readonly #known = new Map<string, Clients>();

  constructor(readonly service: TestService) {}

  /** Clients that call as the principal of this name. */
  as(name: string, wire: OneOfTwoWires = "grpc"): Clients {
    const key = `${wire} ${name}`;
    const clients = this.#known.get(key) ?? this.#connect(name, wire);
    this.#known.set(key, clients);
    return clients;
  }

  #connect(name: string, wire: OneOfTwoWires): Clients {
    const { grpcAddress, httpAddress } = this.service;
    const plain = transportOf(wire, grpcAddress, httpAddress, this.#connections);
    return clientsOf(withCaller(plain, name));
  }

  disconnect(): void {
    for (const connection of this.#connections) connection.abort();
  }
}

function withCaller(transport: Transport, name: string): Transport {
  const named = (given: HeadersInit | undefined): Headers => {
    const headers = new Headers(given);
    headers.set(CALLER_HEADER, name);
    return headers;
  };
  return {
    unary: (method, signal, timeoutMs, headers, ...rest) =>
      transport.unary(method, signal, timeoutMs, named(headers), ...rest),
    stream: (method, signal, timeoutMs, headers, ...rest) =>
      transport.stream(method, signal, timeoutMs, named(headers), ...rest),
  };
}

/** What the log of refused attempts says of one, without its time. */
export interface RefusedAttempt {
  readonly method: string;
  readonly reason: string;
  readonly tenant?: string;
  readonly subject?: string;
  readonly sessionId?: string;
  readonly askId?: string;
}

/** The refused attempts of a subject that were logged. */
export function attemptsOf(service: TestService, subject: string): RefusedAttempt[] {
  return service
    .logged()
    .split("\n")
    .filter((line) => line.includes('"call refused"') && line.includes(`"${subject}"`))
    .map((line) => JSON.parse(line) as RefusedAttempt)
    .filter((attempt) => attempt.subject === subject);
}

/** The next refused attempt of a subject after the first `known`. */
export async function nextAttempt(
  service: TestService,
  subject: string,
  known: number,
): Promise<RefusedAttempt> {
  await until(() => attemptsOf(service, subject).length > known);
  const attempt = attemptsOf(service, subject)[known];
  if (attempt === undefined) throw new Error("the attempt is gone");
  return attempt;
}

/** Those of these secrets that stand somewhere in a text. */
export function secretsIn(text: string, secrets: readonly string[]): string[] {
  return secrets.filter((secret) => secret !== "" && text.includes(secret));
}

/** Every order of some things. */
export function ordersOf<T>(things: readonly T[]): T[][] {
  if (things.length === 0) return [[]];
  return things.flatMap((first, index) =>
    ordersOf(things.filter((_, other) => other !== index)).map((rest) => [first, ...rest]),
  );
}
