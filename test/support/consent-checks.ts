import { timestampMs } from "@bufbuild/protobuf/wkt";
import { AskKind, AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import {
  ReceiptPath,
  SpendState,
  Verdict,
  type Receipt,
} from "../../gen/toolmark/v1/receipt_pb.js";
import { RunOutcome, RunState, type Run } from "../../gen/toolmark/v1/run_pb.js";
import { SessionState } from "../../gen/toolmark/v1/session_pb.js";
import {
  Ran,
  ToolCallState,
  ToolResultKind,
  type ToolCall,
} from "../../gen/toolmark/v1/tool_call_pb.js";
import { equalBytes } from "../../src/domain/bytes.js";
import { waitsUntilMs } from "../../src/domain/deadline.js";
import { EventKind } from "../../src/domain/event-kind.js";
import { RecordLog, type LogEntry } from "./record-log.js";

/** What breaks a promise about asks, receipts, starts, results and authorizations in a session's log, one line each. */
export function consentFaults(entries: readonly LogEntry[]): string[] {
  const audit = new Audit();
  for (const entry of entries) audit.add(entry);
  return [...audit.faults, ...endFaults(audit.log)];
}

const VERDICT_STATE: Partial<Record<Verdict, AskState>> = {
  [Verdict.DENY]: AskState.ANSWERED,
  [Verdict.ALLOW_ONCE]: AskState.ANSWERED,
  [Verdict.ALLOW_ALWAYS]: AskState.ANSWERED,
  [Verdict.EXPIRED]: AskState.EXPIRED,
  [Verdict.WITHDRAWN]: AskState.WITHDRAWN,
};

/** Reads a log event by event, and holds each against what went before. */
class Audit {
  readonly faults: string[] = [];
  readonly log = new RecordLog();
  /** Calls whose arguments changed under an ask or an unspent allow, and that no ask has allowed since. */
  readonly #amended = new Set<string>();

  add(entry: LogEntry): void {
    const record = entry.record?.record;
    switch (record?.case) {
      case "ask":
        this.#ask(record.value);
        break;
      case "receipt":
        this.#receipt(record.value);
        break;
      case "toolCall":
        this.#call(entry.kind, record.value);
        break;
      case "provisional":
        this.#held(record.value.toolCallId, undefined);
        break;
      case "run":
        this.#run(record.value);
        break;
      case "session":
        if (record.value.state === SessionState.ENDED) this.#nothingWaits("the session's end");
        break;
      default:
        break;
    }
    this.log.add([entry]);
  }

  #fault(text: string): void {
    this.faults.push(text);
  }

  #ask(ask: Ask): void {
    const { askId, toolCallId, state } = ask;
    const before = this.log.asks.get(askId);
    if (before === undefined) {
      if (state !== AskState.OPEN) this.#fault(`${askId} did not begin open`);
      const others = this.#asksOf(toolCallId, ask.kind).filter(isOpen);
      if (others.length > 0) this.#fault(`${askId} is a second open ask of its call and kind`);
      if (ask.kind === AskKind.RESULT_RELEASE) this.#notAllowedYet(ask);
      return;
    }
    if (isOpen(before)) {
      if (isOpen(ask)) this.#fault(`${askId} was opened twice`);
      if (ask.kind === AskKind.ACTION && isReplacedByArguments(ask)) this.#amended.add(toolCallId);
      return;
    }
    const learnsOfNewer = isReplacedByArguments(before) && ask.supersededByAskId !== undefined;
    if (state !== before.state) this.#fault(`${askId} left ${AskState[before.state]}`);
    else if (!learnsOfNewer) this.#fault(`${askId} was settled twice`);
  }

  /** Of a result only the last question counts. */
  #notAllowedYet({ askId, toolCallId }: Ask): void {
    const allows = this.#allowsOf(this.#asksOf(toolCallId, AskKind.RESULT_RELEASE));
    if (allows.some(isUnspent)) this.#fault(`${askId} was opened beside an unspent allow`);
  }

  #receipt(receipt: Receipt): void {
    const { receiptId, askId, toolCallId, spendState } = receipt;
    const before = this.log.receipts.get(receiptId);
    const ask = this.log.asks.get(askId);
    if (ask === undefined) {
      this.#fault(`${receiptId} settles no ask`);
      return;
    }
    if (before !== undefined) {
      const wasUnspent = before.spendState === SpendState.UNSPENT;
      if (!wasUnspent) this.#fault(`${receiptId} left ${SpendState[before.spendState]}`);
      if (spendState === SpendState.UNSPENT) this.#fault(`${receiptId} was kept unspent`);
      const isVoid = spendState === SpendState.VOID && ask.kind === AskKind.ACTION;
      if (isVoid && wasUnspent) this.#amended.add(toolCallId);
      return;
    }
    this.#settlement(receipt, ask);
    if (ask.kind === AskKind.ACTION && isAllow(receipt)) this.#amended.delete(toolCallId);
  }

  #settlement(receipt: Receipt, ask: Ask): void {
    const { receiptId, toolCallId, reviewId, verdict, spendState, path } = receipt;
    if (!isOpen(ask)) this.#fault(`${receiptId} settles ${ask.askId}, which was settled`);
    const isSame = toolCallId === ask.toolCallId && reviewId === ask.reviewId;
    if (!isSame) this.#fault(`${receiptId} is of another call or review than its ask`);
    if (!equalBytes(receipt.presentedSha256, ask.presented?.sha256 ?? new Uint8Array(0))) {
      this.#fault(`${receiptId} is of other bytes than its ask`);
    }
    const spends = isAllow(receipt) ? SpendState.UNSPENT : SpendState.UNSPECIFIED;
    if (spendState !== spends) this.#fault(`${receiptId} began as ${SpendState[spendState]}`);
    if (isLate(receipt, ask)) this.#fault(`${receiptId} came when the time was over`);
    const isExpiry = verdict === Verdict.EXPIRED;
    if (isExpiry !== (path === ReceiptPath.TIMEOUT)) {
      this.#fault(`${receiptId} is ${Verdict[verdict]} by ${ReceiptPath[path]}`);
    }
  }

  #call(kind: string, call: ToolCall): void {
    const { toolCallId, state } = call;
    const before = this.log.calls.get(toolCallId);
    if (before !== undefined && isEnd(before.state) && state !== before.state) {
      const isReconciled = before.state === ToolCallState.OUTCOME_UNKNOWN;
      if (!isReconciled) this.#fault(`${toolCallId} left ${ToolCallState[before.state]}`);
    }
    const fault = ranFault(call);
    if (fault !== undefined) this.#fault(`${toolCallId} ${fault}`);
    const isUnknown = state === ToolCallState.OUTCOME_UNKNOWN;
    const releases = this.#allowsOf(this.#asksOf(toolCallId, AskKind.RESULT_RELEASE));
    if (isUnknown && (call.ran === YES) !== releases.length > 0) {
      this.#fault(`${toolCallId} ended unknown, ran ${Ran[call.ran]}, ${releases.length} releases`);
    }
    if (before !== undefined && kind === EventKind.toolCallStarted) this.#start(before, call);
    const hasEnded = isEnd(state) && !isEnd(before?.state ?? state);
    if (hasEnded && this.#receiptsOf(toolCallId).some(isUnspent)) {
      this.#fault(`${toolCallId} ended with an unspent receipt`);
    }
    const isResult = call.result !== undefined && before?.result === undefined;
    if (isResult) this.#result(call);
  }

  #start(before: ToolCall, { toolCallId, effective }: ToolCall): void {
    if (before.state !== ToolCallState.ACCEPTED) {
      this.#fault(`${toolCallId} started from ${ToolCallState[before.state]}`);
    }
    if (before.startTime !== undefined) this.#fault(`${toolCallId} started twice`);
    const asks = this.#asksOf(toolCallId, AskKind.ACTION);
    if (asks.some(isOpen)) this.#fault(`${toolCallId} started while it was asked about`);
    if (asks.some((ask) => this.#isRefused(ask))) this.#fault(`${toolCallId} started after a no`);
    const needsAllow = this.#amended.has(toolCallId);
    if (needsAllow) this.#fault(`${toolCallId} started with arguments that nobody allowed`);
    for (const { receiptId, presentedSha256, spendState } of this.#allowsOf(asks)) {
      if (spendState === SpendState.UNSPENT) this.#fault(`${receiptId} was not spent by the start`);
      const isSame = equalBytes(presentedSha256, effective?.sha256 ?? new Uint8Array(0));
      if (spendState === SpendState.SPENT && !isSame) {
        this.#fault(`${receiptId} was spent on other arguments`);
      }
    }
  }

  #result(call: ToolCall): void {
    const { toolCallId } = call;
    const asks = [...this.log.asks.values()].filter((ask) => ask.toolCallId === toolCallId);
    if (asks.some(isOpen)) this.#fault(`${toolCallId} got its result while it was asked about`);
    this.#held(toolCallId, call);
  }

  /** A result whose release was asked for reaches nobody without an allow. `call` is absent for a part of it. */
  #held(toolCallId: string, call: ToolCall | undefined): void {
    const last = this.#asksOf(toolCallId, AskKind.RESULT_RELEASE).at(-1);
    if (last === undefined || call?.state === ToolCallState.WITHHELD) return;
    const [allow] = this.#allowsOf([last]);
    if (allow === undefined) {
      this.#fault(`${toolCallId} gave a result that was not released`);
    } else if (call?.result?.kind === ToolResultKind.CANONICAL) {
      const given = call.result.content?.sha256 ?? new Uint8Array(0);
      const isSame = equalBytes(given, allow.presentedSha256);
      if (!isSame) this.#fault(`${toolCallId} gave another result than was released`);
      if (allow.spendState !== SpendState.SPENT) this.#fault(`${allow.receiptId} was not spent`);
    }
  }

  #run({ runId, state, outcome }: Run): void {
    if (state !== RunState.ENDED || outcome === RunOutcome.PARKED) return;
    this.#nothingWaits(`the end of ${runId}`);
  }

  #nothingWaits(when: string): void {
    for (const { askId } of this.log.openAsks()) this.#fault(`${askId} was open after ${when}`);
    for (const { authorizationId } of this.log.pendingAuthorizations()) {
      this.#fault(`${authorizationId} was pending after ${when}`);
    }
    for (const { toolCallId, result } of this.log.calls.values()) {
      if (result === undefined) this.#fault(`${toolCallId} had no result after ${when}`);
    }
  }

  #asksOf(toolCallId: string, kind: AskKind): Ask[] {
    const all = [...this.log.asks.values()];
    return all.filter((ask) => ask.toolCallId === toolCallId && ask.kind === kind);
  }

  #allowsOf(asks: readonly Ask[]): Receipt[] {
    const receipts = asks.flatMap(({ receiptId }) => this.log.receipts.get(receiptId ?? "") ?? []);
    return receipts.filter(isAllow);
  }

  #receiptsOf(toolCallId: string): Receipt[] {
    const all = [...this.log.receipts.values()];
    return all.filter((receipt) => receipt.toolCallId === toolCallId);
  }

  #isRefused({ receiptId }: Ask): boolean {
    const verdict = this.log.receipts.get(receiptId ?? "")?.verdict;
    return verdict === Verdict.DENY || verdict === Verdict.EXPIRED;
  }
}

function isOpen({ state }: Ask): boolean {
  return state === AskState.OPEN;
}

function isReplacedByArguments({ state, supersededByAskId }: Ask): boolean {
  return state === AskState.SUPERSEDED && supersededByAskId === undefined;
}

/** Whether something else settled an ask than its expiry, which was due. */
function isLate({ verdict, answerTime }: Receipt, ask: Ask): boolean {
  const untilMs = waitsUntilMs(ask);
  if (untilMs === undefined || answerTime === undefined || verdict === Verdict.EXPIRED) {
    return false;
  }
  return untilMs <= timestampMs(answerTime);
}

function isUnspent({ spendState }: Receipt): boolean {
  return spendState === SpendState.UNSPENT;
}

function isAllow({ verdict }: Receipt): boolean {
  return verdict === Verdict.ALLOW_ONCE || verdict === Verdict.ALLOW_ALWAYS;
}

const NOT_ENDED: ReadonlySet<ToolCallState> = new Set([
  ToolCallState.ACCEPTED,
  ToolCallState.AWAITING_ANSWER,
  ToolCallState.AWAITING_AUTHORIZATION,
  ToolCallState.STARTED,
]);

function isEnd(state: ToolCallState): boolean {
  return !NOT_ENDED.has(state);
}

const { NO, YES, UNKNOWN } = Ran;
const RAN: Partial<Record<ToolCallState, readonly Ran[]>> = {
  [ToolCallState.ACCEPTED]: [NO, UNKNOWN],
  [ToolCallState.AWAITING_ANSWER]: [NO, UNKNOWN],
  [ToolCallState.AWAITING_AUTHORIZATION]: [NO, UNKNOWN],
  [ToolCallState.STARTED]: [YES],
  [ToolCallState.COMPLETED]: [YES],
  [ToolCallState.FAILED]: [NO, YES, UNKNOWN],
  [ToolCallState.BLOCKED]: [NO],
  [ToolCallState.DENIED]: [NO],
  [ToolCallState.EXPIRED]: [NO],
  [ToolCallState.WITHHELD]: [YES],
  [ToolCallState.CANCELLED]: [NO],
  [ToolCallState.INTERRUPTED]: [YES],
  [ToolCallState.TIMED_OUT]: [UNKNOWN],
  [ToolCallState.OUTCOME_UNKNOWN]: [YES, UNKNOWN],
};

/** Whether the call ran, against its state and its recorded start. */
function ranFault({ state, ran, startTime }: ToolCall): string | undefined {
  if (!(RAN[state] ?? []).includes(ran)) return `is ${ToolCallState[state]} and ran is ${Ran[ran]}`;
  if (startTime !== undefined && ran === NO) return "started and did not run";
  const mayLackEnd = state === ToolCallState.STARTED && startTime === undefined;
  return mayLackEnd ? "is started without a start" : undefined;
}

/** What does not fit together once nothing more happens. */
function endFaults(log: RecordLog): string[] {
  return [
    ...[...log.asks.values()].flatMap((ask) => settledFaults(log, ask)),
    ...[...log.calls.values()].flatMap((call) => callFaults(log, call)),
  ];
}

/** Exactly one receipt says how an answered, expired or withdrawn ask was settled; none does of others. */
function settledFaults({ receipts, calls }: RecordLog, ask: Ask): string[] {
  const { askId, state, kind, toolCallId } = ask;
  const own = [...receipts.values()].filter((receipt) => receipt.askId === askId);
  const hasReceipt = Object.values(VERDICT_STATE).includes(state);
  if (own.length !== (hasReceipt ? 1 : 0)) {
    return [`${askId} is ${AskState[state]} and has ${own.length} receipts`];
  }
  const [receipt] = own;
  if (receipt === undefined) return [];
  const fits = ask.receiptId === receipt.receiptId && VERDICT_STATE[receipt.verdict] === state;
  const isRefused = receipt.verdict === Verdict.DENY || receipt.verdict === Verdict.EXPIRED;
  const hasStarted = calls.get(toolCallId)?.startTime !== undefined;
  return [
    ...(fits ? [] : [`${askId} is not settled as its receipt says`]),
    ...(isRefused && kind === AskKind.ACTION && hasStarted
      ? [`${toolCallId} started, and no`]
      : []),
  ];
}

/** A call waits exactly while something of it is open. */
function callFaults(log: RecordLog, { toolCallId, state }: ToolCall): string[] {
  const isAsked = log
    .openAsks()
    .some((ask) => ask.toolCallId === toolCallId && ask.kind === AskKind.ACTION);
  const authorizations = [...log.authorizations.values()].filter(
    (one) => one.toolCallId === toolCallId || one.deferredToolCallIds.includes(toolCallId),
  );
  const isParked = authorizations.some((one) => one.state === AuthorizationState.PENDING);
  const mustEnd = authorizations.some(
    (one) => one.state !== AuthorizationState.PENDING && one.state !== AuthorizationState.GRANTED,
  );
  const awaitsAuthorization = isParked && !isAsked && !isEnd(state);
  return [
    ...(isAsked === (state === ToolCallState.AWAITING_ANSWER)
      ? []
      : [`${toolCallId} is ${ToolCallState[state]}, and asked about: ${isAsked}`]),
    ...(awaitsAuthorization === (state === ToolCallState.AWAITING_AUTHORIZATION)
      ? []
      : [`${toolCallId} is ${ToolCallState[state]}, and parked: ${isParked}`]),
    ...(mustEnd && !isEnd(state) ? [`${toolCallId} outlived its authorization`] : []),
  ];
}
