import { expect } from "vitest";
import type { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import {
  argumentFaults,
  pairingFaults,
  projectedSteps,
  strictFaults,
  type ProjectedCallStep,
  type ProjectedResultStep,
} from "./projected-request.js";
import { project } from "./replaying.js";
import type { Clients } from "./service.js";

/** A projected request and the calls and results in it. */
export interface ShownRequest {
  readonly items: string;
  readonly system: string;
  readonly calls: readonly ProjectedCallStep[];
  readonly results: readonly ProjectedResultStep[];
  readonly ids: readonly (string | undefined)[];
}

/** Projects a session to a request, which must be whole: strict JSON, each call with valid arguments and its result. */
export async function showRequest(
  clients: Clients,
  sessionId: string,
  wire: ProviderWire,
  provider?: string,
): Promise<ShownRequest> {
  const { items, system } = await project(clients, sessionId, wire, provider);
  expect([...strictFaults(items), ...(system === "" ? [] : strictFaults(system))]).toEqual([]);
  const steps = projectedSteps(wire, items);
  const calls = steps.filter((step) => step.kind === "call");
  expect([...pairingFaults(wire, steps), ...calls.flatMap(argumentFaults)]).toEqual([]);
  const results = steps.filter((step) => step.kind === "result");
  return { items, system, calls, results, ids: calls.map(({ id }) => id) };
}

/** The texts of results of wires that have them as strings. */
export function textsOf({ results }: ShownRequest): unknown[] {
  return results.map(({ content }) => JSON.parse(content) as unknown);
}
