import { create } from "@bufbuild/protobuf";
import {
  ToolResultKind,
  ToolResultSchema,
  type ToolResult,
} from "../../../gen/toolmark/v1/tool_call_pb.js";
import type { Draft } from "./draft.js";
import { storeBytes } from "./intake-body.js";

/** The result that the service gives a call which ended without one: the text that the model is told. */
export function syntheticResult(draft: Draft, text: string): ToolResult {
  const bytes = new TextEncoder().encode(text);
  return create(ToolResultSchema, {
    content: storeBytes(draft, bytes, "text/plain; charset=utf-8"),
    isError: true,
    kind: ToolResultKind.SYNTHETIC,
  });
}
