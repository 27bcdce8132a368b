import { create } from "@bufbuild/protobuf";
import {
  ProviderPairingSchema,
  type ProviderPairing,
  type ProviderWire,
} from "../../gen/toolmark/engine/v1/command_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import type { HistoryCall, HistoryEntry, HistoryTurn } from "../../src/domain/history.js";
import { isPayloadFault } from "../../src/domain/provider-turn.js";
import { syntheticText } from "../../src/domain/synthetic-text.js";
import { HistoryProjection, type ReplayTarget } from "../../src/provider/project-history.js";
import { readProviderTurn } from "../../src/provider/read-provider-turn.js";
import { bytes } from "./conversation.js";
import {
  namedCalls,
  responseOf,
  type GeneratedContent,
  type GeneratedStep,
  type GeneratedTurn,
  type NamedCall,
} from "./generated-histories.js";
import { WIRES } from "./replaying.js";

/** Where every history is projected to: each wire, for any provider of it and for a certain one. */
export const TARGETS: readonly ReplayTarget[] = WIRES.flatMap((wire) => [
  { wire, provider: undefined },
  { wire, provider: "one" },
]);

/** A request as it is put together. */
export interface Projection {
  readonly items: string;
  readonly system: string | undefined;
}

export function projectEntries(target: ReplayTarget, entries: readonly HistoryEntry[]): Projection {
  const projection = new HistoryProjection(target);
  const items = entries.map((entry) => projection.add(entry)).join("");
  return { items: `[${items}]`, system: projection.system };
}

/** The id of a call of a history that no service has seen. */
export function modelledCallId(number: number): string {
  return `tc_public${String(number).padStart(17, "0")}`;
}

/** Names of what a service has already given ids to. */
export interface CallNames {
  readonly toolCallId: (number: number) => string;
  /** The call that a provider could hit upon when a number of calls have been made. Absent: any. */
  readonly known?: (number: number, made: number) => string | undefined;
  /** What a call without a result of its own came to. */
  readonly endState?: ToolCallState;
}

/** A history in the words of the ledger. */
export class ModelledHistory {
  /** One for each step. */
  readonly entries: HistoryEntry[] = [];
  readonly turns: HistoryTurn[] = [];
  readonly #names: CallNames;
  #calls = 0;

  constructor(steps: readonly GeneratedStep[], names: CallNames = { toolCallId: modelledCallId }) {
    this.#names = names;
    for (const step of steps) {
      if (step.kind === "turn") this.#addTurn(step);
      else this.entries.push({ kind: "message", role: step.role, content: step });
    }
  }

  /** The entries behind a compaction of the first ones. */
  compacted(archived: number, summary: string): HistoryEntry[] {
    const gone = this.entries.slice(0, archived).flatMap((entry): HistoryEntry[] => {
      if (entry.kind !== "turn") return [];
      const { wire, provider, calls } = entry.turn;
      return calls.map(({ toolCallId, pairing }) => {
        return { kind: "archivedCall", call: { toolCallId, turn: { wire, provider }, pairing } };
      });
    });
    const content = { data: bytes(summary), mediaType: "text/plain" };
    return [...gone, { kind: "summary", content }, ...this.entries.slice(archived)];
  }

  #addTurn(step: GeneratedTurn): void {
    const { toolCallId, known = toolCallId } = this.#names;
    const first = this.#calls;
    const named = namedCalls(step, (number) => known(number, first));
    const turn =
      step.wire === undefined
        ? { wire: undefined, items: undefined, calls: named.map(bareCall) }
        : readResponse(step.wire, responseOf(step.wire, step, named));
    const calls = turn.calls.map((call, index): HistoryCall => {
      const generated = named[index];
      if (generated === undefined) throw new Error("the response has a call too many");
      const number = first + index;
      return { ...call, toolCallId: toolCallId(number), result: this.#result(generated, number) };
    });
    this.#calls += calls.length;
    const modelled = { ...turn, provider: step.provider, calls };
    this.turns.push(modelled);
    this.entries.push({ kind: "turn", turn: modelled });
  }

  #result({ result }: NamedCall, number: number): HistoryCall["result"] {
    if (result !== undefined) return { ...result, data: markedData(result, number) };
    const text = syntheticText(this.#names.endState ?? ToolCallState.OUTCOME_UNKNOWN);
    return { data: bytes(text), mediaType: "text/plain", isError: true };
  }
}

/** What a result says, with a mark of its own if it is a text. */
export function markedData(
  { data, mediaType }: GeneratedContent,
  number: number,
): Uint8Array<ArrayBuffer> {
  if (mediaType !== "text/plain") return data;
  return Uint8Array.from([...data, ...bytes(` #r${number}#`)]);
}

type BareCall = Pick<HistoryCall, "toolName" | "arguments" | "pairing">;

function bareCall({ toolName, args, id, itemId }: NamedCall): BareCall {
  return { toolName, arguments: bytes(args), pairing: pairingOf(id, itemId) };
}

export function pairingOf(id: string | undefined, itemId: string | undefined): ProviderPairing {
  return create(ProviderPairingSchema, {
    ...(id === undefined ? {} : { providerCallId: id }),
    ...(itemId === undefined ? {} : { providerItemId: itemId }),
  });
}

function readResponse(wire: ProviderWire, response: string) {
  const read = readProviderTurn(wire, bytes(response));
  if (isPayloadFault(read)) throw new Error(`${read.path} ${read.rule}: ${response}`);
  const calls = read.calls.map(
    ({ toolName, arguments: args, providerCallId, providerItemId }): BareCall => {
      return { toolName, arguments: args, pairing: pairingOf(providerCallId, providerItemId) };
    },
  );
  return { wire, items: read.items, calls };
}
