/** Limits of one server. Sizes in bytes. Published by GetServerInfo, configurable, checked nowhere else. */
export interface Limits {
  readonly messageBytes: number;
  readonly outgoingMessageBytes: number;
  readonly inlineBodyBytes: number;
  readonly bodyBytes: number;
  readonly callsPerTurn: number;
  readonly commandsPerApply: number;
  readonly openAsksPerSession: number;
  readonly streamsPerConnection: number;
  readonly pageSize: number;
}

const KIB = 1024;
const MIB = 1024 * KIB;

export const DEFAULT_LIMITS: Limits = {
  messageBytes: 4 * MIB,
  outgoingMessageBytes: 1 * MIB,
  inlineBodyBytes: 64 * KIB,
  bodyBytes: 64 * MIB,
  callsPerTurn: 256,
  commandsPerApply: 256,
  openAsksPerSession: 100,
  streamsPerConnection: 100,
  pageSize: 500,
};
