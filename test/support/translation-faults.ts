import { isDeepStrictEqual } from "node:util";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { LegacyEvidenceKind } from "../../gen/toolmark/v1/legacy_pb.js";
import { ToolCallState, ToolResultKind } from "../../gen/toolmark/v1/tool_call_pb.js";
import type {
  OldCall,
  OldLog,
  OldPayload,
  OldSnapshot,
  OldSources,
} from "../../src/legacy/old-session.js";
import type { AnyRecord, Translation } from "../../src/legacy/translation.js";
import { bytesOf, recordsOf } from "./translations.js";

/** Shorter texts are found in ids and words by chance. */
const TELLING_LENGTH = 4;
/** Ids of the old system, which are shown as they were. `hookId` is one if it is that of the review. */
const VERBATIM = new Set(["askId", "legacyId", "authorizationId", "reviewId", "sessionId"]);
/** What a person was shown instead of the arguments of a call. */
const SHOWN = "display";

/** What is wrong with a translation of these sources, one line for each rule. */
export function translationFaults(sources: OldSources, translation: Translation): string[] {
  return [
    ...idFaults(translation),
    ...leakFaults(sources, translation),
    ...pairingFaults(sources, translation),
    ...startFaults(sources, translation),
    ...countFaults(sources, translation),
  ];
}

function idFaults({ records, occurrences }: Translation): string[] {
  const ids = records.map(idOf);
  const table = occurrences.map(({ occurrence }) => occurrence);
  const calls = records.filter((record) => record.case === "toolCall").map(idOf);
  return [
    ...(new Set(ids).size < ids.length ? ["two records share an id"] : []),
    ...(new Set(table).size < table.length ? ["two calls share an occurrence"] : []),
    ...(isDeepStrictEqual(occurrences.map(({ toolCallId }) => toolCallId).sort(), calls.sort())
      ? []
      : ["the table of occurrences is not that of the calls"]),
  ];
}

function idOf(record: AnyRecord): string {
  const key = record.case && ID_KEYS[record.case];
  const id = key && new Map<string, unknown>(Object.entries(record.value)).get(key);
  if (typeof id !== "string") throw new Error(`a ${String(record.case)} has no id`);
  return id;
}

const ID_KEYS: Readonly<Partial<Record<NonNullable<AnyRecord["case"]>, string>>> = {
  ...{ message: "messageId", turn: "turnId", toolCall: "toolCallId", hook: "hookId" },
  ...{ ask: "askId", authorization: "authorizationId", legacyEvidence: "evidenceId" },
};

function leakFaults(sources: OldSources, { records }: Translation): string[] {
  const secrets = secretsOf(sources);
  return records.flatMap((record) =>
    publicTexts(record).flatMap(([key, text]) => {
      const leaked = secrets.find((secret) => text.includes(secret));
      return leaked === undefined ? [] : [`${key} of a ${String(record.case)} tells "${leaked}"`];
    }),
  );
}

/** Every text of a record by its key, but for what is shown verbatim on purpose. */
function publicTexts(record: AnyRecord): [string, string][] {
  const isEvent =
    record.case === "legacyEvidence" && record.value.kind === LegacyEvidenceKind.EVENT;
  return textsIn(record.value).filter(([key, text]) => {
    if (VERBATIM.has(key) || key === SHOWN) return false;
    if (key === "hookId") return text.startsWith("hkl_");
    return !(isEvent && (key === "text" || key === "label"));
  });
}

function textsIn(value: unknown, key = ""): [string, string][] {
  if (typeof value === "string") return key === "$typeName" ? [] : [[key, value]];
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return [];
  return Object.entries(value).flatMap(([name, member]) =>
    textsIn(member, Array.isArray(value) ? key : name),
  );
}

/** Ids that providers gave, and arguments. */
function secretsOf({ snapshot, log }: OldSources): string[] {
  const calls = [
    ...(snapshot?.messages ?? []).flatMap((message) => message.calls),
    ...payloadsOf(log, "call").map(({ call }) => call),
  ];
  const secrets = calls.flatMap(({ providerCallId, providerItemId, arguments: args }: OldCall) => [
    ...[providerCallId, providerItemId ?? "", Buffer.from(args ?? []).toString()],
  ]);
  return [...new Set(secrets)].filter((secret) => secret.length >= TELLING_LENGTH);
}

function payloadsOf<Of extends OldPayload["of"]>(
  log: OldLog | undefined,
  of: Of,
): Extract<OldPayload, { of: Of }>[] {
  return (log?.records ?? []).flatMap(({ entry }) =>
    entry.kind === "event" && entry.payload.of === of
      ? [entry.payload as Extract<OldPayload, { of: Of }>]
      : [],
  );
}

/** A call of the sources as it should end: with the text of its result, if there is one that is certain. */
interface Expected {
  readonly id: string;
  content: string | undefined;
}

function pairingFaults({ snapshot, log }: OldSources, translation: Translation): string[] {
  const expected = snapshot ? pairedBySnapshot(snapshot) : pairedByLog(log);
  const got = recordsOf(translation, "toolCall").map(({ result }) =>
    result?.kind === ToolResultKind.CANONICAL
      ? bytesOf(translation, result.content?.bodyRef)
      : undefined,
  );
  const wanted = expected.map(({ content }) => content);
  return isDeepStrictEqual(got, wanted) ? [] : ["a call has not the result that is its own"];
}

/** Pairs by what was known when the result came: an id that names exactly one call, without a result. */
class Turns {
  readonly calls: Expected[] = [];
  #turn: Expected[] = [];

  begin(): void {
    this.#turn = [];
  }

  call({ providerCallId }: OldCall): void {
    const call = { id: providerCallId, content: undefined };
    this.calls.push(call);
    this.#turn.push(call);
  }

  result(id: string, content: string): void {
    const [only, ...others] = this.#turn.filter((call) => call.id === id);
    if (only && others.length === 0) only.content ??= content;
  }
}

function pairedBySnapshot({ messages }: OldSnapshot): Expected[] {
  const turns = new Turns();
  for (const { role, calls, result } of messages) {
    if (role !== "tool") turns.begin();
    for (const call of calls) turns.call(call);
    if (result) turns.result(result.providerCallId, result.content);
  }
  return turns.calls;
}

function pairedByLog(log: OldLog | undefined): Expected[] {
  const turns = new Turns();
  let key = "";
  for (const { entry } of log?.records ?? []) {
    if (entry.kind === "gap" || entry.payload.of === "end" || entry.type === "turn.start") {
      turns.begin();
    }
    if (entry.kind === "gap") continue;
    const { payload, runId, turn } = entry;
    const isOfTurn = ["call", "result", "ask", "text"].includes(payload.of);
    if (isOfTurn && key !== `${turn} ${runId}`) turns.begin();
    if (isOfTurn) key = `${turn} ${runId}`;
    if (payload.of === "call") turns.call(payload.call);
    if (payload.of === "result") {
      turns.result(payload.result.providerCallId, payload.result.content);
    }
  }
  return turns.calls;
}

function startFaults({ snapshot, log }: OldSources, translation: Translation): string[] {
  const open = recordsOf(translation, "toolCall").filter(({ result }) => result === undefined);
  const asks = recordsOf(translation, "ask").filter(({ state }) => state === AskState.OPEN);
  if (snapshot) {
    const isWaiting = ["awaiting", "authorizing"].includes(snapshot.state);
    return open.length > 0 && !isWaiting ? ["a call of a session that waits is open"] : [];
  }
  const [ask] = asks;
  const waiting = open.filter(({ state }) => state !== ToolCallState.ACCEPTED);
  return [
    ...(open.length > 0 && ask === undefined ? ["a call can be started that nobody asks for"] : []),
    ...(asks.length > 1 ? ["two asks are open"] : []),
    ...(ask && wasTakenAway(log) ? ["an ask that was taken away is open"] : []),
    ...(ask && waiting.some(({ toolCallId }) => toolCallId !== ask.toolCallId)
      ? ["a call waits that nobody asks for"]
      : []),
  ];
}

/** Whether anything after the last ask says what became of it, or that work went on. */
function wasTakenAway(log: OldLog | undefined): boolean {
  const said = (log?.records ?? []).map(({ entry }) =>
    entry.kind === "gap" ? "gap" : entry.payload.of,
  );
  const after = said.slice(said.lastIndexOf("ask") + 1);
  const taking = ["gap", "approval", "retraction", "end", "call", "result", "text"];
  return after.some((of) => taking.includes(of));
}

/** Nothing is lost and nothing is told twice, whether as a record or as evidence. */
function countFaults(sources: OldSources, translation: Translation): string[] {
  const { snapshot, log } = sources;
  const results = (snapshot?.messages ?? []).filter(({ result }) => result).length;
  const calls = (snapshot?.messages ?? []).reduce((sum, { calls: all }) => sum + all.length, 0);
  const pending = snapshot?.pending ? 1 : 0;
  const { CALL, RESULT, ASK, APPROVAL, RETRACTION, ARCHIVE, GAP } = LegacyEvidenceKind;
  const kept = (kind: LegacyEvidenceKind): number =>
    recordsOf(translation, "legacyEvidence").filter((each) => each.kind === kind).length;
  const canonical = recordsOf(translation, "toolCall").filter(({ result }) => {
    return result?.kind === ToolResultKind.CANONICAL;
  });
  const inLog = (of: OldPayload["of"]): number => payloadsOf(log, of).length;
  const gaps = (log?.records ?? []).filter(({ entry }) => entry.kind === "gap").length;
  const counts: readonly (readonly [string, number, number])[] = [
    ["calls", recordsOf(translation, "toolCall").length + kept(CALL), calls + inLog("call")],
    ["results", canonical.length + kept(RESULT), results + inLog("result")],
    ["asks", recordsOf(translation, "ask").length + kept(ASK), pending + inLog("ask")],
    ["approvals", kept(APPROVAL), inLog("approval")],
    ["retractions", kept(RETRACTION), inLog("retraction")],
    ["archives", kept(ARCHIVE), inLog("archive")],
    ["gaps", kept(GAP), gaps],
  ];
  return counts.flatMap(([what, got, wanted]) =>
    got === wanted ? [] : [`${got} ${what} of ${wanted}`],
  );
}
