/** Limits of one server. Sizes in bytes. Configurable, and published by GetServerInfo. */
export interface Limits {
  readonly messageBytes: number;
  readonly outgoingMessageBytes: number;
  readonly inlineBodyBytes: number;
  readonly bodyBytes: number;
  readonly callsPerTurn: number;
  readonly commandsPerApply: number;
  /**
   * Calls of one session without a result; likewise its open asks and unspent allows together. Bounds what a run's end
   * writes and what loading reads.
   */
  readonly openCallsPerSession: number;
  readonly openAsksPerSession: number;
  /** Delegating calls from a root session to the deepest below it. Each ask of a session names them all. */
  readonly delegationDepth: number;
  /** Sessions that work for one call. Each of its updates names them all. */
  readonly sessionsPerCall: number;
  readonly streamsPerConnection: number;
  readonly pageSize: number;
}

/** Longest name of a tool. */
export const TOOL_NAME_BYTES = 512;
/** Longest id that a provider gives a call or an item. */
export const PROVIDER_ID_BYTES = 4096;

const KIB = 1024;
const MIB = 1024 * KIB;

/** Most bytes that a provider wants back with a call: they are told in one part. */
export const PROVIDER_OPAQUE_BYTES = 128 * KIB;

/** Most bytes of one part of what is streamed in parts. */
export const STREAM_PART_BYTES = 256 * KIB;

export const DEFAULT_LIMITS: Limits = {
  messageBytes: 4 * MIB,
  outgoingMessageBytes: 1 * MIB,
  inlineBodyBytes: 64 * KIB,
  bodyBytes: 64 * MIB,
  callsPerTurn: 256,
  commandsPerApply: 256,
  openCallsPerSession: 4096,
  openAsksPerSession: 100,
  delegationDepth: 100,
  sessionsPerCall: 256,
  streamsPerConnection: 100,
  pageSize: 500,
};
