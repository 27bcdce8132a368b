import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { AskKind, AskProvenance, AskSchema, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { permissionOptions, verdictOf } from "../../src/projection/acp-permission.js";
import { UNKNOWN } from "../support/conversation-records.js";

const ROOT = "ses_root";
const { DENY, ALLOW_ONCE, ALLOW_ALWAYS } = Verdict;

type AskInit = Partial<Pick<Ask, "kind" | "provenance" | "delegationPath">>;

function askIn(sessionId: string, changed: AskInit = {}): Ask {
  return create(AskSchema, {
    kind: AskKind.ACTION,
    provenance: AskProvenance.PERMISSION,
    origin: { sessionId },
    allowedVerdicts: [DENY, ALLOW_ONCE, ALLOW_ALWAYS],
    ...changed,
  });
}

const offered = (ask: Ask): string[] =>
  permissionOptions(ask, ROOT).map(({ optionId }) => optionId);

describe("a permission request", () => {
  test("about a call of the session itself offers always, if the ask takes it", () => {
    expect(offered(askIn(ROOT))).toEqual(["allow_once", "allow_always", "deny"]);
    expect(verdictOf(askIn(ROOT), ROOT, "allow_always")).toBe(ALLOW_ALWAYS);
  });

  test("of a session below never offers always, and takes none for an answer", () => {
    const step = { sessionId: ROOT, toolCallId: "tc_1" };
    const path = create(AskSchema, { delegationPath: [step] }).delegationPath;
    for (const ask of [askIn("ses_child"), askIn(ROOT, { delegationPath: path })]) {
      expect(offered(ask)).toEqual(["allow_once", "deny"]);
      expect(verdictOf(ask, ROOT, "allow_always")).toBeUndefined();
    }
  });

  test("of unknown provenance never offers an allow", () => {
    for (const provenance of [AskProvenance.UNSPECIFIED, UNKNOWN]) {
      const ask = askIn(ROOT, { provenance });
      expect(offered(ask)).toEqual(["deny"]);
      expect(verdictOf(ask, ROOT, "allow_once")).toBeUndefined();
    }
  });

  test("to release a result offers once and withhold, and nothing else", () => {
    expect(offered(askIn(ROOT, { kind: AskKind.RESULT_RELEASE }))).toEqual(["allow_once", "deny"]);
  });

  test("of a kind that is not known offers a denial alone", () => {
    expect(offered(askIn(ROOT, { kind: UNKNOWN }))).toEqual(["deny"]);
  });
});
