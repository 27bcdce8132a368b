import { create } from "@bufbuild/protobuf";
import {
  GetServerInfoResponseSchema,
  LimitsSchema,
  type InfoService,
} from "../../../gen/toolmark/v1/info_service_pb.js";
import type { Limits } from "../../domain/limits.js";
import type { Implementation } from "../call.js";

export interface InfoOptions {
  readonly version: string;
  readonly limits: Limits;
  /**
   * Full names of the methods that are answered. Asked for on each call: this service is one of
   * them.
   */
  readonly methods: () => readonly string[];
}

export function infoHandlers({
  version,
  limits,
  methods,
}: InfoOptions): Implementation<typeof InfoService> {
  const published = create(LimitsSchema, {
    messageBytes: BigInt(limits.messageBytes),
    outgoingMessageBytes: BigInt(limits.outgoingMessageBytes),
    inlineBodyBytes: BigInt(limits.inlineBodyBytes),
    bodyBytes: BigInt(limits.bodyBytes),
    callsPerTurn: limits.callsPerTurn,
    openAsksPerSession: limits.openAsksPerSession,
    streamsPerConnection: limits.streamsPerConnection,
    pageSize: limits.pageSize,
    openCallsPerSession: limits.openCallsPerSession,
    commandsPerApply: limits.commandsPerApply,
    delegationDepth: limits.delegationDepth,
    sessionsPerCall: limits.sessionsPerCall,
  });
  return {
    getServerInfo: () =>
      Promise.resolve(
        create(GetServerInfoResponseSchema, {
          version,
          limits: published,
          methods: [...methods()].sort(),
        }),
      ),
  };
}
