import { equalBytes } from "../../domain/bytes.js";
import { encodeState, type SessionState } from "../../domain/session-state.js";
import { openSnapshot } from "../snapshot.js";
import type { EventRow, SnapshotRow } from "../store-port.js";
import { Unsound } from "./verdict.js";

/** Compares stored snapshots with the state at their events. */
export class SnapshotCheck {
  readonly #open: Map<bigint, SnapshotRow>;
  readonly #generationFloor: bigint;
  #found: Unsound | undefined;

  constructor(snapshots: readonly SnapshotRow[], generationFloor: bigint) {
    this.#open = new Map(snapshots.map((snapshot) => [snapshot.sequence, snapshot]));
    this.#generationFloor = generationFloor;
  }

  /** Looks at the snapshot of this event, if there is one. */
  at(row: EventRow, state: SessionState | undefined): void {
    if (this.#open.size === 0) return;
    const snapshot = this.#open.get(row.sequence);
    if (snapshot === undefined) return;
    this.#open.delete(row.sequence);
    const fault = this.#faultOf(snapshot, row, state);
    if (fault !== undefined) this.#found ??= unsound(snapshot, fault);
  }

  /** Throws Unsound for the first bad one, once every event was seen. */
  finish(): void {
    if (this.#found !== undefined) throw this.#found;
    const [ahead] = this.#open.values();
    if (ahead !== undefined) throw unsound(ahead, "is ahead of the last event");
  }

  #faultOf(
    snapshot: SnapshotRow,
    row: EventRow,
    state: SessionState | undefined,
  ): string | undefined {
    if (!isReadable(snapshot)) return "does not match its digest";
    if (!equalBytes(snapshot.chain, row.chain)) return "has another chain than its event";
    if (state === undefined) return undefined;
    if (!equalBytes(snapshot.state, encodeState(state))) {
      return "is not the state that the events give";
    }
    const isProven = isHighWater(snapshot.highWater, state.highWater, this.#generationFloor);
    return isProven ? undefined : "has another high-water than the events";
  }
}

/** A log of a later generation begins above every revision of an earlier one, so below that nothing is lost. */
export function isHighWater(stated: bigint, folded: bigint, floor: bigint): boolean {
  return stated === folded || (stated > folded && stated <= floor);
}

function isReadable(snapshot: SnapshotRow): boolean {
  try {
    return openSnapshot(snapshot) !== undefined;
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    return false;
  }
}

function unsound({ sequence }: SnapshotRow, fault: string): Unsound {
  return new Unsound({ table: "snapshots", key: String(sequence), sequence, fault });
}
