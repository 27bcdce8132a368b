import { isEntry } from "./old-model.js";
import type {
  OldAsk,
  OldCall,
  OldEntry,
  OldItem,
  OldModel,
  OldParked,
  OldRelationship,
  OldResult,
} from "./old-model.js";

/** Oldest first: bare, in the driver's tag (as an object or as base64), and in the file store's wrapper. */
export const SNAPSHOT_GENERATIONS = ["inner", "enveloped", "enveloped-base64", "wrapped"] as const;
export type SnapshotGeneration = (typeof SNAPSHOT_GENERATIONS)[number];

const ESCAPED_BY_GO = /[<>&\u2028\u2029]/g;

/** A JSON string as Go writes it. */
export function jsonText(text: string): string {
  return JSON.stringify(text).replace(ESCAPED_BY_GO, (found) => {
    return `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}

/** A JSON object with these members, in this order, without the undefined ones. */
export function jsonObject(members: Readonly<Record<string, string | undefined>>): string {
  const written = Object.entries(members).flatMap(([key, json]) => {
    return json === undefined ? [] : [`"${key}":${json}`];
  });
  return `{${written.join(",")}}`;
}

export function jsonList(elements: readonly string[]): string {
  return `[${elements.join(",")}]`;
}

/** A string that Go leaves out if it is empty. */
function textOrNone(text: string | undefined): string | undefined {
  return text ? jsonText(text) : undefined;
}

function trueOrNone(flag: boolean | undefined): string | undefined {
  return flag === true ? "true" : undefined;
}

/** A call with its arguments embedded as they stand. */
export function callJson({ providerCallId, name, argumentsText, itemId }: OldCall): string {
  return jsonObject({
    ID: jsonText(providerCallId),
    Name: jsonText(name),
    Args: argumentsText ?? "null",
    item_id: textOrNone(itemId),
  });
}

export function resultJson({ providerCallId, content, isError }: OldResult): string {
  return jsonObject({
    CallID: jsonText(providerCallId),
    Content: jsonText(content),
    IsError: String(isError),
  });
}

/** An ask as both the snapshot and the log write it. */
export function askJson(ask: OldAsk): string {
  const { guardrail: scope } = ask;
  return jsonObject({
    AskID: jsonText(ask.askId),
    Tool: jsonText(ask.tool),
    Args: ask.argumentsText ?? "null",
    Reason: jsonText(ask.reason),
    call: ask.namesCall ? textOrNone(ask.providerCallId) : undefined,
    guardrail:
      scope &&
      jsonObject({
        ReviewID: jsonText(scope.reviewId),
        Kind: jsonText(scope.kind),
        GrantDigest: jsonText(scope.grantDigest),
        SessionOnly: String(scope.sessionOnly),
        RepeatAvailable: String(scope.repeatAvailable),
      }),
    origin: textOrNone(ask.origin),
    hook_originated: trueOrNone(ask.hookOriginated),
    plan_originated: trueOrNone(ask.planOriginated),
  });
}

function base64(text: string): string {
  return Buffer.from(text, "utf8").toString("base64");
}

function parkedCallJson({ providerCallId, name, argumentsText, itemId }: OldCall): string {
  return jsonObject({
    id: jsonText(providerCallId),
    name: jsonText(name),
    args: argumentsText === null ? "null" : `"${base64(argumentsText)}"`,
    item_id: textOrNone(itemId),
  });
}

function parkedJson(parked: OldParked): string {
  const { deferred } = parked;
  return jsonObject({
    authorization: jsonObject({
      id: jsonText(parked.authorizationId),
      display_name: textOrNone(parked.displayName),
      binding: jsonText(parked.binding),
      expires_at: jsonText(parked.expiresAt),
    }),
    call: parkedCallJson(parked.call),
    deferred: deferred.length > 0 ? jsonList(deferred.map(parkedCallJson)) : undefined,
  });
}

function messageJson(entry: OldEntry): string {
  if (entry.kind === "result") {
    return jsonObject({ role: '"tool"', tool_result: resultJson(entry) });
  }
  return jsonObject({
    role: entry.kind === "turn" ? '"assistant"' : jsonText(entry.role),
    text: textOrNone(entry.text),
    tool_calls:
      entry.kind === "turn" && entry.calls.length > 0
        ? jsonList(entry.calls.map(callJson))
        : undefined,
    reasoning: textOrNone(entry.reasoning),
    phase: textOrNone(entry.phase),
    reasoning_item_id: textOrNone(entry.reasoningItemId),
  });
}

/** The messages that the compactions of a history left, a summary in place of what they dropped. */
export function snapshotEntries(items: readonly OldItem[]): OldEntry[] {
  let context: OldEntry[] = [];
  for (const item of items) {
    if (isEntry(item)) context.push(item);
    if (item.kind !== "archive") continue;
    const summary: OldEntry = { kind: "message", role: "user", text: item.summary };
    context = [summary, ...(item.kept === 0 ? [] : context.slice(-item.kept))];
  }
  return context;
}

function relationshipJson(place: OldRelationship): string {
  return jsonObject({
    schedule_name: textOrNone(place.scheduleName),
    origin_session_id: textOrNone(place.originSessionId),
    origin_incarnation: textOrNone(place.originIncarnation),
    parent_session_id: textOrNone(place.parentSessionId),
    parent_incarnation: textOrNone(place.parentIncarnation),
    call_id: textOrNone(place.callId),
    branch_index: place.branchIndex?.toString(),
    team_id: textOrNone(place.teamId),
    member_name: textOrNone(place.memberName),
    debug_target_id: textOrNone(place.debugTargetId),
    debug_target_incarnation: textOrNone(place.debugTargetIncarnation),
  });
}

/** The counts of tokens that both formats write. */
export function usageJson(tokens: number): string {
  return jsonObject({
    InputTokens: String(tokens),
    OutputTokens: String(tokens),
    CacheReadTokens: "0",
    CacheWriteTokens: "0",
    ReasoningTokens: "0",
  });
}

const LIMITS = jsonObject({ MaxTurns: "0", MaxToolCalls: "0", MaxConsecutiveFailures: "0" });
const ENVIRONMENT = jsonObject({ Kind: '"local"', ID: '"/ws"', Revision: '"in-tree-v1"' });
const INCARNATION = '"inc_62uh2dgrpkhppqmlfaush4pzzu"';

/** What the snapshot and the metadata of its wrapper say alike. */
function identityMembers(model: OldModel) {
  const turns = model.items.filter(({ kind }) => kind === "turn").length;
  const results = model.items.filter(({ kind }) => kind === "result").length;
  const counts = { Turns: String(turns), ToolCalls: String(results), ConsecutiveFailures: "0" };
  return {
    id: jsonText(model.id),
    state: jsonText(model.state),
    counters: jsonObject(counts),
    kind: textOrNone(model.kind),
    created_at: jsonText(model.createdAt),
  };
}

/** The stop of the last run, if no run began after it. */
function stopReason(items: readonly OldItem[]): string | undefined {
  const last = items.findLast(({ kind }) => kind === "run" || kind === "runEnd");
  return last?.kind === "runEnd" ? textOrNone(last.stop) : undefined;
}

/** The tokens by the key of the oldest snapshots, that of the later ones, or both. None if there are none. */
function usageMembers({ tokens }: OldModel, generation: SnapshotGeneration) {
  if (tokens === 0) return {};
  const usage = usageJson(tokens);
  const byModel = jsonObject({ Total: usage, Models: jsonObject({ unknown: usage }) });
  return {
    token_usage: generation === "inner" ? undefined : jsonObject({ main: byModel }),
    usage: generation === "inner" || generation === "wrapped" ? usage : undefined,
  };
}

function innerJson(model: OldModel, generation: SnapshotGeneration): string {
  const isOldest = generation === "inner";
  const isLate = generation === "wrapped";
  const { id, state, counters, kind, created_at } = identityMembers(model);
  const disposition = model.permanentFailure ? "2" : "1";
  const retries = isLate && model.state === "failed" ? disposition : undefined;
  return jsonObject({
    id,
    state,
    mode: '"default"',
    limits: LIMITS,
    counters,
    workspace: isOldest ? '"/ws"' : undefined,
    created_at,
    incarnation: isOldest ? undefined : INCARNATION,
    messages: jsonList(snapshotEntries(model.items).map(messageJson)),
    pending: model.pendingAsk && askJson(model.pendingAsk),
    pending_authorization: model.parked && parkedJson(model.parked),
    stop_reason: stopReason(model.items),
    kind,
    relationship: model.relationship && relationshipJson(model.relationship),
    title: textOrNone(model.title),
    title_generation: isLate ? '"disabled"' : undefined,
    ...usageMembers(model, generation),
    permanent: isOldest || isLate ? trueOrNone(model.permanentFailure) : undefined,
    retry_disposition: retries,
    stream_progress: retries,
    run_id: textOrNone(model.runId),
    environment_ref: isOldest ? undefined : ENVIRONMENT,
    placement: isLate ? "{}" : undefined,
  });
}

function wrappedJson(model: OldModel): string {
  const { id, state, counters, kind, created_at } = identityMembers(model);
  const metadata = { id, state, counters, kind, environment_ref: ENVIRONMENT, created_at };
  return jsonObject({
    v: '"sessnap-current-json/2"',
    modified_at: '"2026-09-22T10:29:50.169043017Z"',
    metadata: jsonObject(metadata),
    activity: model.items.some(isEntry) ? '"active"' : '"draft"',
    snapshot: innerJson(model, "wrapped"),
  });
}

function snapshotText(model: OldModel, generation: SnapshotGeneration): string {
  if (generation === "wrapped") return wrappedJson(model);
  const inner = innerJson(model, generation);
  if (generation === "inner") return inner;
  const payload = generation === "enveloped" ? inner : `"${base64(inner)}"`;
  return jsonObject({ format: '"sessnap-json/1"', payload });
}

/** The snapshot file that the writer of a generation left of a session. */
export function snapshotFile(model: OldModel, generation: SnapshotGeneration): Uint8Array {
  return new TextEncoder().encode(snapshotText(model, generation));
}
