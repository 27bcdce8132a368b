import { readRecordedTexts } from "./recorded-files.js";
import {
  anthropicMessages,
  chatCompletions,
  gemini,
  openaiResponses,
  type RecordedBody,
  type RequestItem,
  type Wire,
  type WireCall,
} from "./recorded-wires.js";

const WIRES: Readonly<Record<string, Wire>> = {
  "openai-responses": openaiResponses,
  "openai-chat": chatCompletions,
  mistral: chatCompletions,
  "anthropic-messages": anthropicMessages,
  gemini,
};

/** A text of the user or the system that came up for the first time. */
export interface RecordedMessage {
  readonly kind: "message";
  readonly role: "user" | "system";
  readonly text: string;
}

/** The result of a call of this exchange. */
export interface RecordedResult {
  readonly kind: "result";
  /** `number` of the call that it answers. */
  readonly callNumber: number;
  readonly content: Uint8Array;
  readonly isError: boolean;
}

export interface RecordedCall {
  /** Position among all calls of the exchange, from 0. */
  readonly number: number;
  readonly providerCallId: string | undefined;
  readonly providerItemId: string | undefined;
  readonly opaque: Uint8Array | undefined;
  readonly toolName: string;
  readonly arguments: Uint8Array;
}

/** One request and its response: first what the request brought, in its order, then the calls of the response. */
export interface RecordedStep {
  readonly inputs: readonly (RecordedMessage | RecordedResult)[];
  readonly calls: readonly RecordedCall[];
}

/** A result in a request that answers no call of this exchange: the client brought or made up its call. */
export interface ForeignResult {
  readonly step: number;
  readonly id: string | undefined;
  readonly toolName: string | undefined;
}

export interface RecordedExchange {
  /** Path below the folder, for example `gemini/001.json`. */
  readonly file: string;
  readonly wire: string;
  readonly models: readonly string[];
  /** Number of calls in each response as the recording itself states it. */
  readonly callsPerResponse: readonly number[];
  readonly steps: readonly RecordedStep[];
  readonly calls: readonly RecordedCall[];
  /** Numbers of the calls that no later request answers. */
  readonly unansweredCalls: readonly number[];
  readonly foreignResults: readonly ForeignResult[];
  /** Tool uses that the provider carried out itself: no calls of the harness. */
  readonly serverSideCalls: number;
  /** Every non-empty provider id of the calls. */
  readonly providerIds: ReadonlySet<string>;
  /** Every signature or encrypted content of the calls, as text. */
  readonly opaqueValues: ReadonlySet<string>;
  /** Everything that may be shown: messages, tool names, arguments and results, as text. */
  readonly publicTexts: ReadonlySet<string>;
}

/** Whether a value occurs in what the exchange itself shows, so that finding it elsewhere proves no leak. */
export function isPublicValue({ publicTexts }: RecordedExchange, value: string): boolean {
  return [...publicTexts].some((text) => text.includes(value));
}

/** Calls without a result, and the pairing of results with them. */
class OpenCalls {
  readonly #open: RecordedCall[] = [];

  add(calls: readonly RecordedCall[]): void {
    this.#open.push(...calls);
  }

  numbers(): number[] {
    return this.#open.map(({ number }) => number);
  }

  /**
   * Takes the call that a result answers: the nearest earlier one with the result's id, else the first with its tool
   * name. A call that another result of the request names by id is not taken by name.
   */
  take(result: ResultItem, toolName: string | undefined, idsOfRequest: ReadonlySet<string>) {
    const { id } = result;
    const byId =
      id === undefined ? -1 : this.#open.findLastIndex((call) => call.providerCallId === id);
    const index =
      byId >= 0
        ? byId
        : this.#open.findIndex(
            (call) => call.toolName === toolName && !idsOfRequest.has(call.providerCallId ?? ""),
          );
    return index < 0 ? undefined : this.#open.splice(index, 1)[0];
  }
}

type ResultItem = Extract<RequestItem, { kind: "result" }>;
type NewItem = Exclude<RequestItem, { kind: "call" }>;

/** Equal but for ids, which clients rewrite between requests. */
function sameItem(left: NewItem, right: NewItem): boolean {
  if (left.kind === "message") {
    return right.kind === "message" && left.role === right.role && left.text === right.text;
  }
  return right.kind === "result" && Buffer.compare(left.content, right.content) === 0;
}

/** The items of a request that the one before did not have: requests repeat the history and add to its end. */
function newItems(items: readonly NewItem[], before: readonly NewItem[]): readonly NewItem[] {
  const firstNew = items.findIndex((item, index) => {
    const old = before[index];
    return old === undefined || !sameItem(item, old);
  });
  return firstNew < 0 ? [] : items.slice(firstNew);
}

function continuesOnServer(request: unknown): boolean {
  return (
    typeof request === "object" &&
    request !== null &&
    typeof Reflect.get(request, "previous_response_id") === "string"
  );
}

const utf8 = new TextEncoder();
const fromUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function recordedCall(call: WireCall, number: number): RecordedCall {
  const opaque = call.opaque === undefined ? undefined : utf8.encode(call.opaque);
  return { ...call, number, opaque };
}

/** Follows one exchange from step to step. */
class ExchangeReader {
  readonly steps: RecordedStep[] = [];
  readonly calls: RecordedCall[] = [];
  readonly foreignResults: ForeignResult[] = [];
  readonly open = new OpenCalls();
  serverSideCalls = 0;
  #instructions: readonly string[] = [];
  #history: readonly NewItem[] = [];

  constructor(readonly wire: Wire) {}

  read(request: RecordedBody, response: RecordedBody): void {
    const inputs = [...this.#readInstructions(request), ...this.#readRequest(request)];
    const { calls, serverSideCalls } = this.wire.response(response);
    const recorded = calls.map((call, index) => recordedCall(call, this.calls.length + index));
    this.calls.push(...recorded);
    this.open.add(recorded);
    this.serverSideCalls += serverSideCalls;
    this.steps.push({ inputs, calls: recorded });
  }

  #readInstructions(request: RecordedBody): RecordedMessage[] {
    const known = this.#instructions;
    this.#instructions = this.wire.instructions(request);
    return this.#instructions
      .filter((text, index) => text !== known[index])
      .map((text) => ({ kind: "message", role: "system", text }));
  }

  #readRequest(request: RecordedBody): (RecordedMessage | RecordedResult)[] {
    const items = this.wire.request(request);
    const toolNames = new Map<string, string>();
    for (const item of items) {
      if (item.kind === "call" && item.id !== undefined) toolNames.set(item.id, item.toolName);
    }
    const told = items.filter((item) => item.kind !== "call");
    const added = newItems(told, continuesOnServer(request.value) ? [] : this.#history);
    this.#history = told;
    const ids = new Set(added.flatMap((item) => (item.kind === "result" ? (item.id ?? []) : [])));
    return added.flatMap((item): (RecordedMessage | RecordedResult)[] => {
      if (item.kind === "message") return [item];
      const toolName = item.toolName ?? toolNames.get(item.id ?? "");
      const call = this.open.take(item, toolName, ids);
      if (call !== undefined) {
        const { kind, content, isError } = item;
        return [{ kind, callNumber: call.number, content, isError }];
      }
      this.foreignResults.push({ step: this.steps.length, id: item.id, toolName });
      return [];
    });
  }
}

/** One file of the recording. */
interface RecordedFile {
  readonly wire: string;
  readonly models: readonly string[];
  readonly calls_per_response: readonly number[];
  readonly steps: readonly {
    readonly request: unknown;
    readonly response: unknown;
    readonly request_raw?: string;
    readonly response_raw?: string;
  }[];
}

export function readExchange(file: string, recorded: RecordedFile): RecordedExchange {
  const wire = WIRES[recorded.wire];
  if (wire === undefined) throw new Error(`${file} has the unknown wire ${recorded.wire}`);
  const reader = new ExchangeReader(wire);
  for (const step of recorded.steps) {
    reader.read(
      { value: step.request, raw: step.request_raw },
      { value: step.response, raw: step.response_raw },
    );
  }
  const { steps, calls, foreignResults, serverSideCalls } = reader;
  return {
    file,
    wire: recorded.wire,
    models: recorded.models,
    callsPerResponse: recorded.calls_per_response,
    steps,
    calls,
    unansweredCalls: reader.open.numbers(),
    foreignResults,
    serverSideCalls,
    providerIds: new Set(calls.flatMap(idsOf).filter((id) => id !== "")),
    opaqueValues: new Set(calls.flatMap(({ opaque }) => (opaque ? [fromUtf8.decode(opaque)] : []))),
    publicTexts: publicTextsOf(steps),
  };
}

function idsOf({ providerCallId, providerItemId }: RecordedCall): string[] {
  return [providerCallId ?? "", providerItemId ?? ""];
}

function publicTextsOf(steps: readonly RecordedStep[]): ReadonlySet<string> {
  return new Set(
    steps.flatMap(({ inputs, calls }) => [
      ...inputs.map((item) =>
        item.kind === "message" ? item.text : fromUtf8.decode(item.content),
      ),
      ...calls.flatMap((call) => [call.toolName, fromUtf8.decode(call.arguments)]),
    ]),
  );
}

/** Every recorded exchange in the order of its path, or nothing if there is no such folder. */
export function readRecordedExchanges(): readonly RecordedExchange[] | undefined {
  return readRecordedTexts()?.map(({ file, text }) =>
    readExchange(file, JSON.parse(text) as RecordedFile),
  );
}
