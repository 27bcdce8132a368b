import type { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import type {
  Content,
  HistoryCall,
  HistoryEntry,
  HistoryTurn,
  TurnSource,
} from "../domain/history.js";
import { invariant, InvariantError, unreachable } from "../domain/invariant.js";
import { isJsonFault, parseJsonText } from "../domain/json-text.js";
import { isPayloadFault } from "../domain/provider-turn.js";
import { ProjectedIds } from "./projected-ids.js";
import { utf8Text } from "../domain/utf8-text.js";
import type { ItemSpeaker, JsonSpan, ProjectedCall, RequestItem, Wire } from "./wire.js";
import { isReplayedOver, wireOf } from "./wires.js";

/** Who a request is for. */
export interface ReplayTarget {
  readonly wire: ProviderWire;
  /** The provider's name. Absent: every turn of the wire is taken for its own. */
  readonly provider: string | undefined;
}

/** A history as the items of a request. What an entry gives never changes by those after it. */
export class HistoryProjection {
  readonly #wire: Wire;
  readonly #callIds: ProjectedIds;
  readonly #itemIds = new Set<string>();
  readonly #system: Content[] = [];
  #isSystemClosed: boolean;
  #before: ItemSpeaker | undefined;

  constructor(private readonly target: ReplayTarget) {
    this.#wire = wireOf(target.wire);
    this.#callIds = new ProjectedIds(this.#wire.ids);
    this.#isSystemClosed = this.#wire.system === undefined;
  }

  /** Whether no later entry can add to `system`. */
  get isSystemClosed(): boolean {
    return this.#isSystemClosed;
  }

  /** What the system says outside the items, as a JSON value. Absent if that is nothing. */
  get system(): string | undefined {
    return this.#system.length === 0 ? undefined : this.#wire.system?.(this.#system);
  }

  /** The items of the next entry, as JSON text to be appended: with the comma before them. Empty if there are none. */
  add(entry: HistoryEntry): string {
    const isFirst = this.#before === undefined;
    const json = this.#itemsOf(entry)
      .map((item) => item.json)
      .join(",");
    return isFirst || json === "" ? json : `,${json}`;
  }

  #itemsOf(entry: HistoryEntry): RequestItem[] {
    switch (entry.kind) {
      case "archivedCall": {
        const { toolCallId, turn, pairing } = entry.call;
        this.#callIds.idOf(toolCallId, pairing?.providerCallId, this.#isOwn(turn));
        return [];
      }
      case "summary":
        return this.#message("user", entry.content);
      case "message":
        return this.#message(speakerOf(entry.role), entry.content);
      case "turn":
        return this.#turn(entry.turn);
      default:
        return unreachable(entry);
    }
  }

  #message(speaker: Exclude<ItemSpeaker, "tool">, content: Content): RequestItem[] {
    if (speaker === "system" && !this.#isSystemClosed) {
      this.#system.push(content);
      return [];
    }
    this.#isSystemClosed = true;
    return this.#follow(this.#wire.message(speaker, content, this.#before));
  }

  #turn(turn: HistoryTurn): RequestItem[] {
    this.#isSystemClosed = true;
    const isOwn = this.#isOwn(turn);
    const calls = turn.calls.map((call) => this.#projected(call, turn, isOwn));
    const items = turn.items && spanOf(turn.items);
    const replayed = isOwn ? items : undefined;
    const made =
      replayed === undefined
        ? this.#wire.compose(textOf(turn.wire, items), calls)
        : this.#wire.replay(replayed, calls, this.#itemIds);
    return [...this.#follow(made), ...this.#follow(this.#wire.results(calls, replayed))];
  }

  /** Whether a turn came over the wire of the request, and from no other provider of it. */
  #isOwn({ wire, provider }: TurnSource): boolean {
    if (wire === undefined || !isReplayedOver(wire, this.target.wire)) return false;
    return !this.#isFromElsewhere(provider);
  }

  #isFromElsewhere(provider: string | undefined): boolean {
    const { provider: target } = this.target;
    return provider !== undefined && target !== undefined && provider !== target;
  }

  #projected(call: HistoryCall, turn: HistoryTurn, isOwn: boolean): ProjectedCall {
    const { toolCallId, toolName, arguments: args, pairing, result } = call;
    const callId = this.#callIds.idOf(toolCallId, pairing?.providerCallId, isOwn);
    // The items of a turn have the ids of its calls; only what came without its items has to be given them back.
    const isWithoutItems = turn.wire === undefined && !this.#isFromElsewhere(turn.provider);
    const itemId = isWithoutItems ? this.#takeItemId(pairing?.providerItemId) : undefined;
    return { callId, itemId, toolName, arguments: args, result };
  }

  #takeItemId(id: string | undefined): string | undefined {
    if (id === undefined || this.#wire.isItemId?.(id) !== true) return undefined;
    if (this.#itemIds.has(id)) return undefined;
    this.#itemIds.add(id);
    return id;
  }

  /** Items with what the wire wants before each of them. */
  #follow(items: readonly RequestItem[]): RequestItem[] {
    const followed: RequestItem[] = [];
    for (const item of items) {
      followed.push(...this.#wire.between(this.#before, item), item);
      this.#before = item.speaker;
    }
    return followed;
  }
}

function speakerOf(role: MessageRole): Exclude<ItemSpeaker, "tool"> {
  switch (role) {
    case MessageRole.SYSTEM:
      return "system";
    case MessageRole.ASSISTANT:
      return "assistant";
    case MessageRole.USER:
      return "user";
    case MessageRole.UNSPECIFIED:
      throw new InvariantError("a message has no role");
    default:
      return unreachable(role);
  }
}

/** What a turn of another wire said. */
function textOf(wire: ProviderWire | undefined, items: JsonSpan | undefined): string {
  if (wire === undefined || items === undefined) return "";
  const said = wireOf(wire).read(items, "");
  invariant(!isPayloadFault(said), "the kept items of a turn cannot be read");
  return said.text;
}

function spanOf(items: Uint8Array): JsonSpan {
  const text = utf8Text(items);
  invariant(text !== undefined, "the kept items of a turn are not UTF-8");
  const node = parseJsonText(text);
  invariant(!isJsonFault(node), "the kept items of a turn are not JSON");
  return { text, node };
}
