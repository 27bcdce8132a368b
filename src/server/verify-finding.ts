/** A row, or a file, that is not as it was written. */
export interface StoreFinding {
  /** Absent for what is of no session. */
  readonly tenant?: string;
  readonly sessionId?: string;
  readonly table: string;
  readonly key: string;
  readonly sequence?: bigint;
  readonly fault: string;
}

/** A checkpoint that a log does not go through. */
export interface MissedCheckpoint {
  /** Absent if there is no such session. */
  readonly tenant?: string;
  readonly sessionId: string;
  readonly sequence: bigint;
  readonly headSequence?: bigint;
}

/** A finding as one line. */
export function findingText(finding: StoreFinding): string {
  const { tenant, sessionId, table, key, sequence, fault } = finding;
  const where = sessionId === undefined ? "" : `session ${sessionId} of ${tenant ?? ""}: `;
  const isNamedTwice = sequence === undefined || key === String(sequence);
  return `${where}${table} ${key}${isNamedTwice ? "" : `, sequence ${sequence}`}: ${fault}`;
}
