import { isJsonFault, parseJsonText } from "../../src/domain/json-text.js";
import { isPayloadFault, type PayloadFault } from "../../src/domain/provider-turn.js";
import type { Content, HistoryResult } from "../../src/domain/history.js";
import type {
  ItemsContent,
  JsonSpan,
  ProjectedCall,
  RequestItem,
  Wire,
} from "../../src/provider/wire.js";

const utf8 = new TextEncoder();

export function spanOf(text: string): JsonSpan {
  const node = parseJsonText(text);
  if (isJsonFault(node)) throw new Error(`${node.fault} at ${node.offset}`);
  return { text, node };
}

/** The items of a response and what they say, or what is wrong with it. */
export function readResponse(
  { itemsOf, read }: Wire,
  response: string,
): { readonly items: JsonSpan; readonly content: ItemsContent } | PayloadFault {
  const span = spanOf(response);
  const node = itemsOf(span);
  if (isPayloadFault(node)) return node;
  const items = { text: response, node };
  const content = read(items, "ITEMS");
  return isPayloadFault(content) ? content : { items, content };
}

export function textContent(text: string, mediaType = "text/plain"): Content {
  return { data: utf8.encode(text), mediaType };
}

export function bytesContent(bytes: readonly number[], mediaType: string): Content {
  return { data: Uint8Array.from(bytes), mediaType };
}

export function resultOf(content: Content, isError = false): HistoryResult {
  return { ...content, isError };
}

/** What a sample call has that differs from the others. */
export interface SampleCall {
  readonly callId?: string | undefined;
  readonly toolName?: string;
  readonly args?: string;
  readonly result?: HistoryResult;
}

export function projectedCall(sample: SampleCall): ProjectedCall {
  return {
    callId: sample.callId,
    itemId: undefined,
    toolName: sample.toolName ?? "t",
    arguments: utf8.encode(sample.args ?? "{}"),
    result: sample.result ?? resultOf(textContent("r")),
  };
}

/** The calls of a response as a request shows them if nothing about them has to change. */
export function unchangedCalls({ calls }: ItemsContent): readonly ProjectedCall[] {
  return calls.map(({ callId, toolName, arguments: args }) =>
    projectedCall({ callId, toolName, args }),
  );
}

export function jsonOf(items: readonly RequestItem[]): readonly string[] {
  return items.map(({ json }) => json);
}

/** A turn of a wire as it goes back over it. */
export function replayedOver(
  wire: Wire,
  items: string,
  calls: readonly SampleCall[],
): readonly string[] {
  return jsonOf(wire.replay(spanOf(items), calls.map(projectedCall), new Set()));
}
