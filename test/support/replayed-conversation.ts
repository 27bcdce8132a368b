import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import { bytes, freshRequestId, given, of, openRun, type OpenRun } from "./conversation.js";
import {
  listOf,
  member,
  parseLossless,
  textAt,
  writeLossless,
  type Lossless,
} from "./lossless-json.js";
import {
  atomWireOf,
  type Atom,
  type AtomWire,
  type Observed,
  type RecordedReplay,
  type RecordedReplayStep,
} from "./recorded-replays.js";
import { acceptResponse, say } from "./replaying.js";
import type { Clients } from "./service.js";

/** What the projection must show at one place of a recorded conversation. */
export type Expected =
  | {
      readonly kind: "own";
      /** As the provider gave it. */
      readonly given: Lossless;
      /** As the client sent it back. Absent if it did not. */
      readonly theirs: Lossless | undefined;
      readonly changes: readonly string[];
    }
  | {
      readonly kind: "said";
      readonly speaker: Atom["speaker"];
      readonly theirs: Lossless;
    };

interface WaitingCall {
  readonly toolCallId: string;
  readonly toolName: string;
  readonly theirId: string | undefined;
}

const INSERTED = "inserted by client, not from this response";
const NOT_REPLAYED = "not replayed";

/** Plays a recorded conversation to a service, request by request, as its harness would have. */
export class ReplayedConversation {
  readonly expected: Expected[] = [];
  readonly wire: AtomWire;
  #run: OpenRun | undefined;
  #toolCalls: { readonly toolCallId: string; readonly toolName: string }[] = [];
  #waiting: WaitingCall[] = [];
  #insertedIds = new Set<string>();
  #before: RecordedReplayStep | undefined;

  constructor(
    private readonly clients: Clients,
    readonly recorded: RecordedReplay,
  ) {
    this.wire = atomWireOf(recorded.wire);
  }

  get sessionId(): string {
    return given(this.#run, "run").sessionId;
  }

  /** Records what a request brings, and what the client made of the response before it. */
  async request(step: RecordedReplayStep): Promise<void> {
    this.#run ??= await openRun(this.clients);
    if (this.#before === undefined) {
      for (const text of step.system) await this.#say("system", textAt(text, "text") ?? "");
    }
    const isContinued = step.continues || this.#before === undefined;
    const fresh = step.atoms.slice(isContinued ? 0 : this.#before?.atoms.length);
    const returned = new ReturnedItems(this.wire, this.#before);
    for (const atom of fresh) {
      this.#passLeftOut(returned);
      if (atom.speaker === "assistant" && this.#before === undefined) await this.#earlier(atom);
      else if (atom.speaker === "assistant") this.#returned(returned, atom);
      else if (atom.speaker === "tool") await this.#result(atom);
      else await this.#said(atom);
    }
    this.#passLeftOut(returned);
    this.#before = step;
  }

  async response({ response }: RecordedReplayStep): Promise<void> {
    const run = given(this.#run, "run");
    const reply = await acceptResponse(this.clients, run, this.recorded.wire, response);
    this.#toolCalls = [...reply.toolCalls];
  }

  #passLeftOut(returned: ReturnedItems): void {
    for (const atom of returned.takeLeftOut()) {
      this.expected.push({ kind: "own", given: atom.value, theirs: undefined, changes: [] });
      this.#wait(atom.value, atom.value);
    }
  }

  /** What the recording begins with came from a response that it does not have. */
  async #earlier({ value }: Atom): Promise<void> {
    const run = given(this.#run, "run");
    const response = writeLossless(this.wire.asResponse(value));
    const reply = await acceptResponse(this.clients, run, this.recorded.wire, response);
    this.#toolCalls = [...reply.toolCalls];
    this.expected.push({ kind: "own", given: value, theirs: value, changes: [] });
    this.#wait(value, value);
  }

  #returned(returned: ReturnedItems, theirs: Atom): void {
    const own = returned.take();
    if (own === undefined) {
      for (const id of callIdsOf(this.wire, theirs.value)) {
        if (id !== undefined) this.#insertedIds.add(id);
      }
      return;
    }
    const { atom, changes } = own;
    this.expected.push({ kind: "own", given: atom.value, theirs: theirs.value, changes });
    this.#wait(atom.value, theirs.value);
  }

  #wait(own: Lossless, theirs: Lossless): void {
    const theirIds = callIdsOf(this.wire, theirs);
    for (const [index] of callIdsOf(this.wire, own).entries()) {
      const call = given(this.#toolCalls.shift(), "call");
      this.#waiting.push({ ...call, theirId: theirIds[index] });
    }
  }

  async #said({ speaker, value }: Atom): Promise<void> {
    this.expected.push({ kind: "said", speaker, theirs: value });
    if (typeof value === "string") return this.#say(speaker, value);
    // A block or part stands in a message of its own.
    const content = Array.isArray(value) ? value : [value];
    return this.#say(speaker, writeLossless(content), this.wire.nativeMediaType);
  }

  #say(speaker: Atom["speaker"], text: string, mediaType?: string): Promise<void> {
    const role = speaker === "system" ? MessageRole.SYSTEM : MessageRole.USER;
    return say(this.clients, given(this.#run, "run"), text, role, mediaType);
  }

  async #result({ value }: Atom): Promise<void> {
    const id = this.wire.resultId(value);
    if (id !== undefined && this.#insertedIds.has(id)) return;
    const { toolCallId } = this.#take(id, textAt(value, "functionResponse", "name"));
    const content = this.wire.resultContent(value) ?? "";
    const data = bytes(typeof content === "string" ? content : writeLossless(content));
    const mediaType = typeof content === "string" ? "text/plain" : this.wire.nativeMediaType;
    const isError = member(value, "is_error") === true;
    const canonical = { content: { data, mediaType }, isError };
    await this.clients.calls.recordResult({
      ...of(given(this.#run, "run"), freshRequestId()),
      command: { toolCallId, result: { case: "canonical", value: canonical } },
    });
    this.expected.push({ kind: "said", speaker: "tool", theirs: value });
  }

  #take(id: string | undefined, name: string | undefined): WaitingCall {
    const byId = this.#waiting.findIndex(({ theirId }) => id !== undefined && theirId === id);
    const index = byId >= 0 ? byId : this.#waiting.findIndex(({ toolName }) => name === toolName);
    if (index < 0) throw new Error(`${this.recorded.file}: no call ${id ?? name ?? ""} waits`);
    return given(this.#waiting.splice(index, 1)[0], "call");
  }
}

/** The ids of the calls in an item, as many as there are calls. */
export function callIdsOf(wire: AtomWire, value: Lossless): (string | undefined)[] {
  const calls = listOf(member(value, "tool_calls"));
  if (calls.length > 0) return calls.map((call) => textAt(call, "id"));
  return wire.isCall(value) ? [wire.callId(value)] : [];
}

/** The items of a response, matched with what the client says it made of them. */
class ReturnedItems {
  readonly #atoms: Atom[];
  readonly #observed: Observed[];

  constructor(wire: AtomWire, before: RecordedReplayStep | undefined) {
    this.#observed = [...(before?.observed ?? [])];
    this.#atoms =
      before === undefined ? [] : wire.atoms(wire.responseItems(parseLossless(before.response)));
  }

  takeLeftOut(): Atom[] {
    const left: Atom[] = [];
    while (this.#observed[0]?.change.includes(NOT_REPLAYED) === true) {
      this.#observed.shift();
      left.push(given(this.#atoms.shift(), "item"));
    }
    return left;
  }

  /** Absent if the client made the item up. */
  take(): { readonly atom: Atom; readonly changes: readonly string[] } | undefined {
    const { change } = given(this.#observed.shift(), "observation");
    if (change.includes(INSERTED)) return undefined;
    return { atom: given(this.#atoms.shift(), "item"), changes: change };
  }
}
