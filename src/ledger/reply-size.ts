import { toBinary } from "@bufbuild/protobuf";
import { CommandResultSchema } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import type { SessionDecision } from "../domain/decide/apply.js";
import { commandResult } from "../domain/decide/command-result.js";
import type { Limits } from "../domain/limits.js";
import { refuse, type Refusal } from "../domain/refusal.js";
import type { SessionMutation } from "./mutation.js";

/** A record is below this without its one text of up to the inline limit: a review's references are most of it. */
const RECORD_BYTES_MAX = 48 * 1024;
const ENVELOPE_BYTES = 1024;

/**
 * Refuses what could be committed but never answered: commands whose reply is larger than may be sent.
 */
export function refuseLargeReply(
  mutation: SessionMutation,
  { replies }: SessionDecision,
  limits: Limits,
): Refusal | undefined {
  if (mutation.kind !== "apply") return undefined;
  const limit = limits.outgoingMessageBytes - ENVELOPE_BYTES;
  const records = replies.reduce((count, reply) => count + reply.length, 0);
  if (records * (RECORD_BYTES_MAX + limits.inlineBodyBytes) <= limit) return undefined;
  let sizeBytes = 0;
  for (const [index, { command }] of mutation.request.commands.entries()) {
    const reply = (replies[index] ?? []).map(({ record }) => record);
    sizeBytes += toBinary(CommandResultSchema, commandResult(command.case, reply)).length + 8;
  }
  if (sizeBytes <= limit) return undefined;
  return refuse(
    ErrorReason.QUOTA_EXCEEDED,
    `the reply would be larger than ${limit} bytes: send the commands in several requests`,
    { field: "commands", limit: String(limit) },
  );
}
