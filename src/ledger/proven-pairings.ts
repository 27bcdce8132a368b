import { isCommitment } from "../domain/chain.js";
import type { Refusal } from "../domain/refusal.js";
import { refuseDamagedRow } from "./event-codec.js";
import type { PairingRow, SessionRef, Store } from "./store-port.js";

/** A pairing that the commitment of its event has proven. */
export interface ProvenPairing extends PairingRow {
  readonly pairing: Uint8Array;
}

/** What providers gave with records, one for each commitment to it; or the refusal of what is not as it was. */
export async function provenPairings(
  store: Pick<Store, "readPairings">,
  session: SessionRef,
  commitments: ReadonlyMap<string, Uint8Array>,
): Promise<ProvenPairing[] | Refusal> {
  const recordIds = [...commitments.keys()];
  const rows = recordIds.length === 0 ? [] : await store.readPairings(session, recordIds);
  const proven = new Map<string, ProvenPairing>();
  for (const row of rows) {
    const { recordId, salt, pairing } = row;
    const commitment = commitments.get(recordId);
    if (commitment === undefined || salt === undefined || pairing === undefined) continue;
    if (isCommitment(commitment, salt, pairing)) proven.set(recordId, { ...row, pairing });
  }
  const damagedId = recordIds.find((recordId) => !proven.has(recordId));
  return damagedId === undefined ? [...proven.values()] : refuseDamagedRow(damagedId);
}
