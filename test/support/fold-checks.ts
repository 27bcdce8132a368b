import { fromBinary, toBinary, type DescMessage, type MessageShape } from "@bufbuild/protobuf";
import { AskSchema } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationSchema } from "../../gen/toolmark/v1/authorization_pb.js";
import { ReceiptSchema } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunSchema } from "../../gen/toolmark/v1/run_pb.js";
import { SessionSchema } from "../../gen/toolmark/v1/session_pb.js";
import { ToolCallSchema } from "../../gen/toolmark/v1/tool_call_pb.js";
import { SessionStateSchema } from "../../gen/toolmark/storage/v1/storage_pb.js";
import { CHAIN_START } from "../../src/domain/chain.js";
import { evolve } from "../../src/domain/evolve.js";
import type { DraftEvent, OpenCall, SessionState } from "../../src/domain/session-state.js";
import { restoreState, takeSnapshot } from "../../src/ledger/snapshot.js";

/** The state by each snapshot point and the tail after it must equal the state by all events. Throws if not. */
export function checkFold(drafts: readonly DraftEvent[], restore = restoreState): void {
  const all = evolve(undefined, drafts);
  const whole = textOf(all);
  let state: SessionState | undefined;
  for (const [index, draft] of drafts.entries()) {
    state = evolve(state, [draft]);
    const snapshot = takeSnapshot(state, CHAIN_START);
    const restored = restore(snapshot, fromBinary(SessionStateSchema, snapshot.state));
    const tail = drafts.slice(index + 1);
    const refolded = tail.length === 0 ? restored : evolve(restored, tail);
    if (restored === undefined || textOf(restored) !== textOf(state)) {
      throw new Error(`snapshot ${index + 1} is another state`);
    }
    if (refolded === undefined || textOf(refolded) !== whole) {
      throw new Error(`snapshot ${index + 1} + tail is another state`);
    }
    if (refolded.highWater !== all.highWater) {
      throw new Error(`snapshot ${index + 1} + tail has another high-water`);
    }
  }
}

/** Everything of a state but its high-water and the provider ids, which no snapshot holds. */
function textOf(state: SessionState): string {
  const { session, activeRun, openCalls, openAsks, pendingAuthorizations } = state;
  return JSON.stringify([
    [state.sequence, state.sessionSequence, state.compactedThrough].map(String),
    bytesOf(SessionSchema, session),
    bytesOf(RunSchema, activeRun),
    [...openCalls].map(([id, open]) => [id, callText(open)]),
    [...openAsks].map(([id, ask]) => [id, bytesOf(AskSchema, ask)]),
    [...pendingAuthorizations].map(([id, one]) => [id, bytesOf(AuthorizationSchema, one)]),
  ]);
}

function callText(open: OpenCall): readonly unknown[] {
  const { call, sequence, unspentAllows, needsAllow, heldResult, heldSha256, supersededAskId } =
    open;
  return [
    bytesOf(ToolCallSchema, call),
    String(sequence),
    unspentAllows.map(({ receipt, kind }) => [bytesOf(ReceiptSchema, receipt), kind]),
    needsAllow,
    heldResult,
    Buffer.from(heldSha256).toString("hex"),
    supersededAskId,
  ];
}

function bytesOf<Desc extends DescMessage>(
  schema: Desc,
  record: MessageShape<Desc> | undefined,
): string {
  return record === undefined ? "" : Buffer.from(toBinary(schema, record)).toString("base64");
}
