import { expect, test } from "vitest";
import { LegacySourceFormat } from "../../gen/toolmark/v1/legacy_pb.js";
import { recordIdOf } from "../../src/domain/record-id.js";
import { readSources } from "../../src/legacy/read-sources.js";
import { oldSnapshot } from "../support/old-session.js";

const { SNAPSHOT, EVENT_LOG } = LegacySourceFormat;
const LOG = [
  { v: "eventlog-gen/1", g: "0123456789abcdef" },
  { v: "eventlog-json/1", ev: { Type: "turn.start", Seq: 1, Turn: 1, RunID: "r" } },
  {
    v: "eventlog-json/1",
    ev: { Type: "tool.call", Seq: 2, Turn: 1, RunID: "r", ToolCall: { ID: "c", Name: "ls" } },
  },
  {
    v: "eventlog-json/1",
    ev: {
      ...{ Type: "hook", Seq: 3, Turn: 1, RunID: "r" },
      Hook: { Phase: "PreToolUse", Tool: "ls", Decision: "info", CallID: "c" },
    },
  },
];

function bytes(text: string): Uint8Array {
  return Buffer.from(text);
}

// Worked out beside the program: a digest over the kind, the session and the place, each behind its length.
const SNAPSHOT_IDS = [
  "msgl_1g95bf3r7nakqpa44abetmjx7q",
  "trnl_4hd5jr4r6wdnrt2j5x2x8yr0b6",
  "tcl_03y8fwr1skzh165ry2gp48zq18",
];
const LOG_IDS = [
  "trnl_1qm3ax1a6en1mtdw3fx12s1daa",
  "tcl_503z0vb99mtj6gcwcpgyyty3tx",
  "hkl_5j4tyvyx8x9b65fwjr2gbt3bxz",
];

/** Every id that the records of an old session get, in their order. */
function idsOf(format: LegacySourceFormat, data: Uint8Array): (string | undefined)[] {
  const read = readSources("old-session", [{ format, data }]);
  if ("malformed" in read) throw new Error(read.malformed);
  return read.records.map(recordIdOf);
}

test("the ids of an old session are those that every version gives it", () => {
  expect(idsOf(SNAPSHOT, bytes(JSON.stringify(oldSnapshot("old-session"))))).toEqual(SNAPSHOT_IDS);
  const log = LOG.map((line) => `${JSON.stringify(line)}\n`).join("");
  expect(idsOf(EVENT_LOG, bytes(log))).toEqual(LOG_IDS);
});
