import type { JsonNode } from "../domain/json-text.js";
import type { Content, HistoryResult } from "../domain/history.js";
import type { PayloadFault } from "../domain/provider-turn.js";

/** A value of a JSON text: `text.slice(node.offset, node.offset + node.length)` is it as it was written. */
export interface JsonSpan {
  readonly text: string;
  readonly node: JsonNode;
}

/** A call in the items of a response. */
export interface ItemCall {
  readonly toolName: string;
  /** The text of the arguments as the model wrote it: of a JSON string its value, of an object its own text. */
  readonly arguments: string;
  readonly callId: string | undefined;
  readonly itemId: string | undefined;
}

/** What the items of a response say, in the wire's own terms. */
export interface ItemsContent {
  /** What the model said to the user. Empty if nothing; reasoning is not in it. */
  readonly text: string;
  readonly calls: readonly ItemCall[];
}

/** A call as a request shows it. */
export interface ProjectedCall {
  /** The same in the call and its result; none where the wire does without. */
  readonly callId: string | undefined;
  /** The provider's own id of the item that holds the call. Absent if there is none to restore. */
  readonly itemId: string | undefined;
  readonly toolName: string;
  /** As the model wrote them. */
  readonly arguments: Uint8Array;
  readonly result: HistoryResult;
}

/** Who an item of a request is from, for wires that want some order among them. */
export type ItemSpeaker = "system" | "user" | "assistant" | "tool";

/** One item of a request, as JSON text. */
export interface RequestItem {
  readonly speaker: ItemSpeaker;
  readonly json: string;
  /** Whether the assistant calls tools in it, for wires where that matters to the order. */
  readonly hasCalls?: boolean;
}

/** Which call ids a wire takes. */
export interface IdRule {
  readonly fits: (id: string) => boolean;
  /** Of the ids that came over the wire itself, those that go back over it. Absent: those that fit. */
  readonly fitsOwn?: (id: string) => boolean;
  /** An id that fits, from 32 bytes. Absent: the wire does without ids, and calls have none but their own. */
  readonly derive: ((digest: Uint8Array) => string) | undefined;
}

/** One provider interface: how to read its responses and write its requests. */
export interface Wire {
  /** Where the items of a response are. */
  readonly itemsOf: (response: JsonSpan) => JsonNode | PayloadFault;
  /** What the items say, or what is wrong with them. `path` is where they are in the response. */
  readonly read: (items: JsonSpan, path: string) => ItemsContent | PayloadFault;
  /**
   * A turn of this wire as it came. Only what `calls` say otherwise and what no request may hold is changed. `itemIds`
   * are those of the request so far, for wires whose items have ids that must not come twice: the turn adds its own.
   */
  readonly replay: (
    items: JsonSpan,
    calls: readonly ProjectedCall[],
    itemIds: Set<string>,
  ) => readonly RequestItem[];
  /** A turn from elsewhere. */
  readonly compose: (text: string, calls: readonly ProjectedCall[]) => readonly RequestItem[];
  /** `items` are those of a replayed turn, absent for a composed one. */
  readonly results: (
    calls: readonly ProjectedCall[],
    items: JsonSpan | undefined,
  ) => readonly RequestItem[];
  /** `before` is who the item before is from. */
  readonly message: (
    speaker: Exclude<ItemSpeaker, "tool">,
    content: Content,
    before: ItemSpeaker | undefined,
  ) => readonly RequestItem[];
  /** The system texts that a request has outside its items, as one JSON value. Absent: they are items. */
  readonly system: ((contents: readonly Content[]) => string) | undefined;
  /** Items that the wire wants between two others, or before the first. */
  readonly between: (before: ItemSpeaker | undefined, next: RequestItem) => readonly RequestItem[];
  readonly ids: IdRule;
  /** Whether an id can be an item's of the wire: those of calls that came without their items. Absent: none can. */
  readonly isItemId?: (id: string) => boolean;
  /** Media type of contents that are this wire's own JSON and are taken as they are. */
  readonly nativeMediaType: string;
}
