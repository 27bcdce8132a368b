import { isPayloadFault } from "../../src/domain/provider-turn.js";
import type { Wire } from "../../src/provider/wire.js";
import { jsonSpan, type JsonPath } from "./json-span.js";
import type { RecordedConversation } from "./recorded-bodies.js";
import { jsonOf, readResponse, unchangedCalls } from "./wire-samples.js";

/** What a wire makes of the recorded responses of a conversation. */
export interface ReplayedRecording {
  readonly callsPerResponse: readonly number[];
  /** The items of each replayed response. */
  readonly replayed: readonly (readonly string[])[];
}

/** Reads each response of a conversation and replays it, as the provider itself would get it back. */
export function replayRecording(
  wire: Wire,
  { file, steps }: RecordedConversation,
): ReplayedRecording {
  const read = steps.map(({ response }, index) => {
    const turn = readResponse(wire, response);
    if (isPayloadFault(turn)) throw new Error(`${file} ${index}: ${turn.path} ${turn.rule}`);
    const replayed = wire.replay(turn.items, unchangedCalls(turn.content), new Set());
    return { count: turn.content.calls.length, items: jsonOf(replayed) };
  });
  return {
    callsPerResponse: read.map(({ count }) => count),
    replayed: read.map(({ items }) => items),
  };
}

/** A value of each recorded response as it is written there. */
export function writtenInResponses(
  { steps }: RecordedConversation,
  path: JsonPath,
): readonly string[] {
  return steps.map(({ response }) => {
    const span = jsonSpan(response, path);
    if (span === undefined) throw new Error(`no ${path.join(".")} in a response`);
    return response.slice(span.start, span.end);
  });
}
