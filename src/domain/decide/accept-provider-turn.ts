import { create } from "@bufbuild/protobuf";
import {
  NewToolCallSchema,
  type AcceptProviderTurnCommand,
  type NewToolCall,
} from "../../../gen/toolmark/engine/v1/command_pb.js";
import { ProviderTurnSchema } from "../../../gen/toolmark/storage/v1/storage_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import type { Run } from "../../../gen/toolmark/v1/run_pb.js";
import { isPayloadFault, type PayloadFault, type ReadCall } from "../provider-turn.js";
import { isRefusal, refuse, type Refusal } from "../refusal.js";
import type { SessionState } from "../session-state.js";
import { acceptCalls, type NewTurn } from "./accept-turn.js";
import type { Decided, Draft } from "./draft.js";
import { privateBytes } from "./private-body.js";

const PAYLOAD = "command.payload";
/** Clients take only so many bytes of error metadata. */
const PATH_LENGTH_MAX = 512;

/** Accepts the response of a provider as a turn: the same rules for its calls as if the harness had named them. */
export function acceptProviderTurn(
  draft: Draft,
  state: SessionState,
  run: Run,
  command: AcceptProviderTurnCommand,
): Decided {
  const payload = privateBytes(draft, command.payload, PAYLOAD);
  if (isRefusal(payload)) return payload;
  const read = draft.facts.readProviderTurn(command.wire, payload);
  if (isPayloadFault(read)) return refusePayload(read);
  const { callsPerTurn } = draft.facts.limits;
  if (read.calls.length > callsPerTurn) return refuseManyCalls(callsPerTurn);
  const { provider, model, wire } = command;
  const turn: NewTurn = {
    field: PAYLOAD,
    provider,
    model,
    calls: read.calls.map(newToolCall),
    response: { items: create(ProviderTurnSchema, { wire, items: read.items }), text: read.text },
  };
  return acceptCalls(draft, state, run, turn);
}

function newToolCall(call: ReadCall): NewToolCall {
  const { toolName, arguments: data, providerCallId, providerItemId } = call;
  return create(NewToolCallSchema, {
    toolName,
    arguments: { data, mediaType: "application/json" },
    pairing: {
      ...(providerCallId === undefined ? {} : { providerCallId }),
      ...(providerItemId === undefined ? {} : { providerItemId }),
    },
  });
}

function refusePayload({ path, rule }: PayloadFault): Refusal {
  const at = path.slice(0, PATH_LENGTH_MAX);
  const message = `the response is not of its wire: ${at === "" ? "it" : at} ${rule}`;
  const metadata = { field: PAYLOAD, path: at, rule };
  return refuse(ErrorReason.PROVIDER_PAYLOAD_INVALID, message, metadata);
}

function refuseManyCalls(limit: number): Refusal {
  const message = `the response has more than ${limit} calls`;
  const metadata = { field: PAYLOAD, limit: String(limit) };
  return refuse(ErrorReason.QUOTA_EXCEEDED, message, metadata);
}
