import { create } from "@bufbuild/protobuf";
import {
  AwaitAskResponseSchema,
  type CallService,
} from "../../../gen/toolmark/engine/v1/call_service_pb.js";
import {
  WriteBodyResponseSchema,
  type EvidenceService,
} from "../../../gen/toolmark/engine/v1/evidence_service_pb.js";
import {
  ApplyResponseSchema,
  BeginRunResponseSchema,
  type RunService,
} from "../../../gen/toolmark/engine/v1/run_service_pb.js";
import { commandResult } from "../../domain/decide/command-result.js";
import { invariant } from "../../domain/invariant.js";
import { isRefusal } from "../../domain/refusal.js";
import type { BodyWriter } from "../../ledger/body-writer.js";
import type { Ledger } from "../../ledger/ledger.js";
import type { AwaitAsk } from "../../watch/await-ask.js";
import type { Implementation } from "../call.js";
import { callerOf } from "../caller.js";
import { untilCutOff } from "../until-cut-off.js";
import { commandHandler, withFieldOfApply } from "./command.js";
import { bodyInParts } from "./body-in-parts.js";

export function runHandlers(ledger: Ledger): Implementation<typeof RunService> {
  return {
    async beginRun(context, request) {
      const mutation = { kind: "beginRun", request } as const;
      const replies = await ledger.submit(callerOf(context), mutation, context);
      if (isRefusal(replies)) return replies;
      const record = replies[0]?.[0]?.record;
      invariant(record?.case === "run", "a reply about a run has its record");
      return create(BeginRunResponseSchema, { run: record.value });
    },
    endRun: commandHandler(ledger, "endRun"),
    async apply(context, request) {
      const mutation = { kind: "apply", request } as const;
      const replies = await ledger.submit(callerOf(context), mutation, context);
      if (isRefusal(replies)) return withFieldOfApply(replies, request);
      const results = request.commands.map(({ command }, index) =>
        commandResult(command.case, replies[index] ?? []),
      );
      return create(ApplyResponseSchema, { results });
    },
  };
}

export function callHandlers(
  ledger: Ledger,
  awaiting: AwaitAsk,
): Implementation<typeof CallService> {
  return {
    acceptTurn: commandHandler(ledger, "acceptTurn"),
    amendToolCall: commandHandler(ledger, "amendToolCall"),
    startToolCall: commandHandler(ledger, "startToolCall"),
    recordResult: commandHandler(ledger, "recordResult"),
    reconcileToolCall: commandHandler(ledger, "reconcileToolCall"),
    openAsk: commandHandler(ledger, "openAsk"),
    async awaitAsk(context, request) {
      const found = await awaiting.wait(callerOf(context), request, context);
      if (isRefusal(found)) return found;
      const { ask, receipt } = found;
      return create(AwaitAskResponseSchema, receipt === undefined ? { ask } : { ask, receipt });
    },
    withdrawAsk: commandHandler(ledger, "withdrawAsk"),
    settleAsk: commandHandler(ledger, "settleAsk"),
    parkToolCall: commandHandler(ledger, "parkToolCall"),
    settleAuthorization: commandHandler(ledger, "settleAuthorization"),
  };
}

export function evidenceHandlers(
  ledger: Ledger,
  writer: BodyWriter,
): Implementation<typeof EvidenceService> {
  return {
    recordMessage: commandHandler(ledger, "recordMessage"),
    async writeBody(context, requests) {
      const messages = untilCutOff(context, requests);
      try {
        const given = await bodyInParts(messages);
        if (isRefusal(given)) return given;
        const body = await writer.write(callerOf(context), given.head, given.parts, context);
        return isRefusal(body) ? body : create(WriteBodyResponseSchema, { body });
      } finally {
        // A refused upload is left where it is.
        await messages.return(undefined);
      }
    },
    publishHook: commandHandler(ledger, "publishHook"),
    publishReview: commandHandler(ledger, "publishReview"),
  };
}
