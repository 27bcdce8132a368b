import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";

/**
 * A request that is not carried out. A value, never thrown: it travels from the rule that refuses to the one error
 * table that gives it a status code. `metadata` holds every dynamic part of `message`.
 */
export interface Refusal {
  readonly kind: "refusal";
  readonly reason: ErrorReason;
  readonly message: string;
  readonly metadata: Readonly<Record<string, string>>;
}

export function refuse(
  reason: ErrorReason,
  message: string,
  metadata: Readonly<Record<string, string>> = {},
): Refusal {
  return { kind: "refusal", reason, message, metadata };
}

export function isRefusal(value: unknown): value is Refusal {
  return typeof value === "object" && value !== null && "kind" in value && value.kind === "refusal";
}

/** Refuses a field of the request by its path in proto names, for example `command.calls[2].tool_name`. */
export function refuseField(field: string, rule: string): Refusal {
  return refuse(ErrorReason.FIELD_INVALID, `${field} ${rule}`, { field, rule });
}
