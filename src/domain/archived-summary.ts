import { create } from "@bufbuild/protobuf";
import type { BaseState } from "../../gen/toolmark/v1/base_state_pb.js";
import { CompactionSchema, type Compaction } from "../../gen/toolmark/v1/session_pb.js";

/** What stands for the records that a fork's source had archived. Absent if it had archived none. */
export function archivedSummary({
  archivedRecordCount,
  summary,
}: BaseState): Compaction | undefined {
  return archivedRecordCount === 0 ? undefined : create(CompactionSchema, { summary });
}
