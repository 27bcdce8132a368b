import { invariant } from "../domain/invariant.js";
import { jsonMember, type JsonNode } from "../domain/json-text.js";
import type { JsonSplice } from "./json-splice.js";
import { jsonString } from "./strict-json.js";

/** The id of a call in a request of a wire whose calls all have one. */
export function requiredCallId(callId: string | undefined): string {
  invariant(callId !== undefined, "a call of a request has no id");
  return callId;
}

/** Puts the id of the request into a call of a response, where it is another one or none. */
export function putCallId(
  splice: JsonSplice,
  call: JsonNode,
  key: string,
  callId: string | undefined,
): void {
  const id = requiredCallId(callId);
  const written = jsonMember(call, key);
  if (written === undefined) splice.insert(call, `"${key}":${jsonString(id)}`);
  else if (written.value !== id) splice.replace(written, jsonString(id));
}
