import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  GetReplayResponseSchema,
  ProjectReplayResponseSchema,
  type GetReplayResponse,
  type ReplayService,
} from "../../../gen/toolmark/engine/v1/replay_service_pb.js";
import { partsOf } from "../../domain/parts.js";
import { isRefusal } from "../../domain/refusal.js";
import type { Ledger } from "../../ledger/ledger.js";
import type { ReplayReader } from "../../ledger/replay-reader.js";
import type { OpenTurn } from "../../ledger/replay-turn.js";
import { projectReplay } from "../../provider/project-replay.js";
import type { Implementation } from "../call.js";
import { callerOf } from "../caller.js";
import { commandHandler } from "./command.js";

export interface ReplayParts {
  readonly ledger: Ledger;
  readonly replays: ReplayReader;
}

export function replayHandlers({
  ledger,
  replays,
}: ReplayParts): Implementation<typeof ReplayService> {
  return {
    acceptProviderTurn: commandHandler(ledger, "acceptProviderTurn"),
    async *getReplay(context, { sessionId }) {
      const history = await replays.history(callerOf(context), sessionId, context);
      if (isRefusal(history)) {
        yield history;
        return;
      }
      for await (const turn of history.turns()) {
        if (isRefusal(turn)) yield turn;
        else yield* partsOfTurn(turn);
      }
    },
    async *projectReplay(context, { sessionId, wire, provider }) {
      const history = await replays.history(callerOf(context), sessionId, context);
      if (isRefusal(history)) {
        yield history;
        return;
      }
      for await (const part of projectReplay({ wire, provider }, history.entries())) {
        yield isRefusal(part) ? part : create(ProjectReplayResponseSchema, { part });
      }
    },
  };
}

function* partsOfTurn({ turn, given, calls }: OpenTurn): Generator<GetReplayResponse, void, void> {
  const { turnId } = turn;
  const items = given?.items ?? new Uint8Array();
  const itemsSizeBytes = BigInt(items.length);
  yield replayed({ case: "turn", value: { turnId, itemsSizeBytes, ...wireOf(given) } });
  for (const part of partsOf(items)) yield replayed({ case: "items", value: part });
  for (const { call, pairing } of calls) {
    const value = { toolCallId: call.toolCallId, ...(pairing === undefined ? {} : { pairing }) };
    yield replayed({ case: "toolCall", value });
  }
}

function wireOf(given: OpenTurn["given"]): Partial<Pick<NonNullable<typeof given>, "wire">> {
  return given === undefined ? {} : { wire: given.wire };
}

function replayed(
  part: MessageInitShape<typeof GetReplayResponseSchema>["part"] & object,
): GetReplayResponse {
  return create(GetReplayResponseSchema, { part });
}
