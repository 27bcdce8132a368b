import { isDeepStrictEqual } from "node:util";
import * as fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { decodeLog } from "../../src/legacy/decode-log.js";
import { decodeSnapshot } from "../../src/legacy/decode-snapshot.js";
import { LogHistory } from "../../src/legacy/log-history.js";
import { isMalformed, type Malformed } from "../../src/legacy/malformed.js";
import type { OldSources } from "../../src/legacy/old-session.js";
import { OldTurn } from "../../src/legacy/old-turn.js";
import { translateSession } from "../../src/legacy/translate-session.js";
import { TranslationDraft } from "../../src/legacy/translation-draft.js";
import { oldHistories } from "../support/old-histories.js";
import { LOG_FORMS, logFile } from "../support/old-log-file.js";
import type { OldModel } from "../support/old-model.js";
import { SNAPSHOT_GENERATIONS, snapshotFile } from "../support/old-snapshot-file.js";
import { propertyOptions, seededTitle } from "../support/seed.js";
import { translationFaults } from "../support/translation-faults.js";

const STEPS_MAX = 12;
const FULL_RUNS = 4_000;
/** Enough for each mistake; the same in every run, so that none is found by luck. */
const MUTANT_RUNS = { numRuns: 400, seed: 1, endOnFailure: true };

function whole<Decoded extends object>(decoded: Decoded | Malformed): Decoded {
  if (isMalformed(decoded)) throw new Error(`${decoded.path}: ${decoded.malformed}`);
  return decoded;
}

/** What may be there of a session: each generation of its snapshot, each form of its log, and both. */
function sourcesOf(model: OldModel): (readonly [string, OldSources])[] {
  const { id: sessionId } = model;
  const snapshots = SNAPSHOT_GENERATIONS.map((generation) => {
    const snapshot = whole(decodeSnapshot(snapshotFile(model, generation)));
    return [generation, { sessionId, snapshot, log: undefined }] as const;
  });
  const logs = LOG_FORMS.map((form) => {
    const log = whole(decodeLog(logFile(model, form)));
    return [form, { sessionId, snapshot: undefined, log }] as const;
  });
  const [, { snapshot }] = snapshots[0]!;
  const [, { log }] = logs[0]!;
  return [...snapshots, ...logs, ["both", { sessionId, snapshot, log }]];
}

function faultsOf(model: OldModel): string[] {
  return sourcesOf(model).flatMap(([name, sources]) => {
    const translation = translateSession(sources);
    const isSame = isDeepStrictEqual(translateSession(sources), translation);
    const faults = translationFaults(sources, translation);
    if (!isSame) faults.push("translated twice, it differs");
    return faults.map((fault) => `${name}: ${fault}`);
  });
}

test(
  seededTitle("every old session is translated, with nothing lost, joined by guess or told"),
  () => {
    const property = fc.property(oldHistories(STEPS_MAX), (model) => {
      expect(faultsOf(model)).toEqual([]);
    });
    fc.assert(property, propertyOptions(FULL_RUNS));
  },
);

describe("a fault is found in a translation", () => {
  const { addCall, addEvidence } = TranslationDraft.prototype;
  const MISTAKES: readonly (readonly [name: string, fault: RegExp, plant: () => void])[] = [
    [
      "that names calls by their provider's id and their tool",
      /two records share an id/,
      () => {
        vi.spyOn(TranslationDraft.prototype, "addCall").mockImplementation(function (
          this: TranslationDraft,
          place,
          turn,
          old,
        ) {
          const occurrence = `${old.providerCallId}/${old.toolName}`;
          return addCall.call(this, { ...place, occurrence }, turn, old);
        });
      },
    ],
    [
      "that gives a result to the latest call with its id",
      /not the result that is its own/,
      () => {
        vi.spyOn(OldTurn.prototype, "callOf").mockImplementation(function (this: OldTurn, id) {
          return this.calls.findLast(({ old }) => old.providerCallId === id);
        });
      },
    ],
    [
      "that goes on with a turn that is over",
      /not the result that is its own/,
      () => {
        vi.spyOn(LogHistory.prototype, "changeTurn").mockImplementation(() => undefined);
      },
    ],
    [
      "that takes a verdict for a permission",
      /can be started that nobody asks for/,
      () => {
        vi.spyOn(LogHistory.prototype, "finish").mockImplementation(() => undefined);
      },
    ],
    [
      "that opens an ask that was answered",
      /an ask that was taken away is open/,
      () => {
        const { addAsk } = LogHistory.prototype;
        vi.spyOn(LogHistory.prototype, "addAsk").mockImplementation(function (
          this: LogHistory,
          place,
          ask,
        ) {
          addAsk.call(this, place, ask, true);
        });
      },
    ],
    [
      "that tells what a provider called a call",
      /label of a legacyEvidence tells/,
      () => {
        vi.spyOn(TranslationDraft.prototype, "addLooseResult").mockImplementation(function (
          this: TranslationDraft,
          place,
          { providerCallId },
        ) {
          addEvidence.call(this, place.occurrence, 1, { label: providerCallId });
        });
      },
    ],
    [
      "that forgets a result",
      /results of/,
      () => {
        vi.spyOn(TranslationDraft.prototype, "complete").mockImplementation(function (
          this: TranslationDraft,
          call,
        ) {
          this.end(call, ToolCallState.OUTCOME_UNKNOWN);
        });
      },
    ],
  ];

  test.each(MISTAKES)("%s", (_name, fault, plant) => {
    plant();
    const property = fc.property(oldHistories(STEPS_MAX), (model) => {
      return !faultsOf(model).some((text) => fault.test(text));
    });
    expect(fc.check(property, MUTANT_RUNS).failed).toBe(true);
  });
});
