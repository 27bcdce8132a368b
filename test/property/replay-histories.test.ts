import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import type { HistoryEntry, HistoryTurn } from "../../src/domain/history.js";
import { projectedCallDigest } from "../../src/domain/identity.js";
import { mistral } from "../../src/provider/mistral.js";
import { HistoryProjection, type ReplayTarget } from "../../src/provider/project-history.js";
import { ProjectedIds } from "../../src/provider/projected-ids.js";
import { toolNameFor } from "../../src/provider/tool-name.js";
import { wireOf } from "../../src/provider/wires.js";
import { generatedHistories, type GeneratedHistory } from "../support/generated-histories.js";
import { ModelledHistory, projectEntries, TARGETS } from "../support/modelled-history.js";
import { PlayedHistory } from "../support/played-history.js";
import {
  argumentFaults,
  fitsWire,
  pairingFaults,
  projectedSteps,
  strictFaults,
  type ProjectedCallStep,
  type ProjectedStep,
} from "../support/projected-request.js";
import { WIRES } from "../support/replaying.js";
import { scaled, testScale } from "../support/scale.js";
import { propertyOptions, seed, seededTitle } from "../support/seed.js";
import { startTestService, type TestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

const FULL_RUNS = 20_000;
/** So many of them go through a service and its store. */
const PLAYED_RUNS = FULL_RUNS / 50;
const PLANTED_RUNS = 2_000;
const TIMEOUT_MS = { short: 120_000, ci: 600_000, long: 3_600_000 }[testScale()];

const { OPENAI_CHAT_COMPLETIONS, MISTRAL } = ProviderWire;

/** Whether a turn goes back to where it came from. */
function isOwn({ wire, provider }: HistoryTurn, target: ReplayTarget): boolean {
  const isSameWire =
    wire === target.wire || (wire === OPENAI_CHAT_COMPLETIONS && target.wire === MISTRAL);
  if (provider === undefined || target.provider === undefined) return isSameWire;
  return isSameWire && provider === target.provider;
}

function isCall(step: ProjectedStep): step is ProjectedCallStep {
  return step.kind === "call";
}

/** What is wrong with the calls of a request, in the light of the turns that they came from. */
function callFaults(
  target: ReplayTarget,
  turns: readonly HistoryTurn[],
  shown: readonly ProjectedCallStep[],
): string[] {
  const faults: string[] = [];
  const used = new Set<string>();
  const waiting = shown.values();
  for (const turn of turns) {
    const own = isOwn(turn, target);
    for (const { toolName, pairing } of turn.calls) {
      const call = waiting.next().value;
      if (call === undefined) return [...faults, `the call of ${toolName} is not shown`];
      const native = pairing?.providerCallId ?? "";
      faults.push(...idFaults(target.wire, call, native, own, used));
      if (call.id !== undefined) used.add(call.id);
      // A turn of Chat Completions with a custom tool cannot go to Mistral as it is.
      const names = own ? [toolName, toolNameFor(toolName)] : [toolNameFor(toolName)];
      if (!names.includes(call.name)) faults.push(`${toolName} is shown as ${call.name}`);
    }
  }
  if (waiting.next().done !== true) faults.push("a call is shown that there is not");
  return faults;
}

function idFaults(
  wire: ProviderWire,
  { id }: ProjectedCallStep,
  native: string,
  own: boolean,
  used: ReadonlySet<string>,
): string[] {
  const isKept = native !== "" && fitsWire(wire, native, own) && !used.has(native);
  if (isKept) return id === native ? [] : [`the id ${native} fits and became ${id}`];
  if (id === undefined) return [];
  // A derived one could be another's, but not this one's.
  return fitsWire(wire, id, false) && id !== native ? [] : [`the id ${native} became ${id}`];
}

/** Every result says something of its own: what it said first can be told from what others said. */
function resultFaults(turns: readonly HistoryTurn[], steps: readonly ProjectedStep[]): string[] {
  const shown = steps.filter((step) => step.kind === "result").values();
  return turns
    .flatMap(({ calls }) => calls)
    .flatMap(({ result }) => {
      const [mark] = /#r[0-9]+#/.exec(Buffer.from(result.data).toString()) ?? [];
      const content = shown.next().value?.content ?? "";
      return mark === undefined || content.includes(mark)
        ? []
        : [`the result ${mark} does not say what it said: ${content}`];
    });
}

function requestFaults(
  target: ReplayTarget,
  turns: readonly HistoryTurn[],
  entries: readonly HistoryEntry[],
): string[] {
  const { items, system } = projectEntries(target, entries);
  const strict = [...strictFaults(items), ...strictFaults(system ?? "[]")];
  if (strict.length > 0) return strict;
  const steps = projectedSteps(target.wire, items);
  const calls = steps.filter(isCall);
  return [
    ...callFaults(target, turns, calls),
    ...resultFaults(turns, steps),
    ...pairingFaults(target.wire, steps),
    ...calls.flatMap(argumentFaults),
    ...((items + (system ?? "")).includes("tc_public") ? ["a public id is shown"] : []),
  ];
}

/** The ids of the last calls of a request. */
function lastIds(wire: ProviderWire, items: string, count: number): (string | undefined)[] {
  const ids = projectedSteps(wire, items)
    .filter(isCall)
    .map(({ id }) => id);
  return ids.slice(ids.length - count);
}

function growthFaults(target: ReplayTarget, entries: readonly HistoryEntry[], cut: number) {
  const whole = projectEntries(target, entries);
  const before = projectEntries(target, entries.slice(0, cut));
  const faults: string[] = [];
  if (!whole.items.startsWith(before.items.slice(0, -1))) faults.push("earlier bytes have changed");
  const isBegun = before.items !== "[]";
  if (isBegun && whole.system !== before.system) faults.push("the system text has changed");
  return faults;
}

/** What is wrong with the projections of a history, one line each. */
function historyFaults(history: GeneratedHistory): string[] {
  const model = new ModelledHistory(history.steps);
  const { entries, turns } = model;
  const { archived, cut } = history;
  return TARGETS.flatMap((target) => {
    const faults = [
      ...requestFaults(target, turns, entries),
      ...growthFaults(target, entries, cut),
    ];
    if (archived !== undefined) faults.push(...compactionFaults(target, history));
    return faults.map((fault) => `${ProviderWire[target.wire]} ${target.provider}: ${fault}`);
  });
}

function compactionFaults(target: ReplayTarget, history: GeneratedHistory): string[] {
  const { archived = 0, cut } = history;
  const model = new ModelledHistory(history.steps);
  const compacted = model.compacted(archived, "what was said before");
  const { items } = projectEntries(target, compacted);
  const steps = projectedSteps(target.wire, items);
  const faults = [...strictFaults(items), ...pairingFaults(target.wire, steps)];
  const retained = model.entries
    .slice(archived)
    .flatMap((entry) => (entry.kind === "turn" ? entry.turn.calls : []));
  if (steps.filter(isCall).length !== retained.length) faults.push("another number of calls");
  const whole = projectEntries(target, model.entries).items;
  const [now, was] = [items, whole].map((each) => lastIds(target.wire, each, retained.length));
  if (JSON.stringify(now) !== JSON.stringify(was)) faults.push("ids changed by a compaction");
  const brought = compacted.length - (model.entries.length - archived);
  return [...faults, ...growthFaults(target, compacted, brought + cut)];
}

const property = fc.property(generatedHistories, (history) => {
  expect(historyFaults(history)).toEqual([]);
});

describe("a projected history", () => {
  test(
    seededTitle("has every call with its result, under ids that fit and that stay"),
    () => {
      fc.assert(property, propertyOptions(FULL_RUNS));
    },
    TIMEOUT_MS,
  );

  describe("is found to be wrong", () => {
    type IdOf = (...args: Parameters<ProjectedIds["idOf"]>) => string | undefined;

    function derivingAs(idOf: IdOf): void {
      vi.spyOn(ProjectedIds.prototype, "idOf").mockImplementation(idOf);
    }

    function forgettingArchivedCalls(): void {
      const { add } = HistoryProjection.prototype;
      vi.spyOn(HistoryProjection.prototype, "add").mockImplementation(function (
        this: HistoryProjection,
        entry,
      ) {
        return entry.kind === "archivedCall" ? "" : add.call(this, entry);
      });
    }

    /** What is planted, what is found, and how it is done. */
    const PLANTED: readonly (readonly [string, RegExp, () => void])[] = [
      [
        "with ids whose other characters became underscores",
        /comes twice/,
        () => {
          derivingAs((toolCallId, id) => {
            const text = id ?? "";
            return (text === "" ? `call${toolCallId}` : text)
              .replace(/[^a-zA-Z0-9_-]/g, "_")
              .slice(0, 40);
          });
        },
      ],
      [
        "with ids by the place among the calls that are shown",
        /ids changed by a compaction/,
        () => {
          const shown = new WeakMap<ProjectedIds, number>();
          forgettingArchivedCalls();
          vi.spyOn(ProjectedIds.prototype, "idOf").mockImplementation(function (
            this: ProjectedIds,
          ) {
            const place = shown.get(this) ?? 0;
            shown.set(this, place + 1);
            return `call_${place}`;
          });
        },
      ],
      [
        "with ids that are counted over all requests",
        /earlier bytes have changed/,
        () => {
          let asked = 0;
          derivingAs(() => `call_${(asked += 1)}`);
        },
      ],
      [
        "with ids that are cut off where they are too long",
        /comes twice/,
        () => {
          derivingAs((toolCallId, id = "") => (id === "" ? toolCallId : id).slice(0, 9));
        },
      ],
      [
        "with the id of the service",
        /a public id is shown/,
        () => {
          derivingAs((toolCallId) => toolCallId);
        },
      ],
      [
        "with ids that forget what is archived",
        /ids changed by a compaction/,
        forgettingArchivedCalls,
      ],
      [
        "with results in another order",
        /the result of .* is that of/,
        () => {
          for (const wire of WIRES.map(wireOf)) {
            const { results } = wire;
            const reversed: typeof results = (calls, items) => results(calls.toReversed(), items);
            vi.spyOn(wire, "results").mockImplementation(reversed);
          }
        },
      ],
      [
        "with contents of results in another order",
        /does not say what it said/,
        () => {
          for (const wire of WIRES.map(wireOf)) {
            const { results } = wire;
            vi.spyOn(wire, "results").mockImplementation((calls, items) => {
              const given = calls.map(({ result }) => result).reverse();
              const mixed = calls.map((call, index) => ({ ...call, result: given[index]! }));
              return results(mixed, items);
            });
          }
        },
      ],
      [
        "without a result",
        /without a result/,
        () => {
          vi.spyOn(mistral, "results").mockImplementation(() => []);
        },
      ],
    ];

    test.each(PLANTED)("%s", (_name, found, plant) => {
      plant();
      const without = fc.property(generatedHistories, (history) => {
        const fault = historyFaults(history).find((each) => found.test(each));
        if (fault !== undefined) throw new Error(fault);
      });
      const options = { seed, numRuns: PLANTED_RUNS, endOnFailure: true };
      expect(String(fc.check(without, options).errorInstance)).toMatch(found);
    });
  });
});

describe("B17 ids for Mistral", () => {
  function idsOf(count: number, derive: (digest: Uint8Array) => string): (string | undefined)[] {
    const ids = new ProjectedIds({ ...mistral.ids, derive });
    return Array.from({ length: count }, (_, index) => ids.idOf(`tc_${seed}_${index}`, ""));
  }

  test(
    seededTitle("B17 of 20,000 calls are of nine letters and digits, and none comes twice"),
    () => {
      const { derive } = mistral.ids;
      const ids = idsOf(20_000, (digest) => derive?.(digest) ?? "");
      expect(ids.filter((id) => !/^[A-Za-z0-9]{9}$/.test(id ?? ""))).toEqual([]);
      expect(new Set(ids).size).toBe(20_000);
    },
  );

  test("B17 that would be another call's are made anew, never shared", () => {
    let derived = 0;
    // 4,096 ids in all, so that most of the calls meet one that is taken.
    const ids = idsOf(3_000, (digest) => {
      derived += 1;
      return `id${String(((digest[0] ?? 0) << 4) | ((digest[1] ?? 0) >> 4)).padStart(7, "0")}`;
    });
    expect(new Set(ids).size).toBe(3_000);
    expect(derived).toBeGreaterThan(3_500);
    expect(projectedCallDigest("tc_1", 0n)).not.toEqual(projectedCallDigest("tc_1", 1n));
  });
});

describe("through a service and its store", () => {
  let folder: StoreFolder;
  let service: TestService;

  beforeAll(async () => {
    folder = await makeStoreFolder();
    service = await startTestService({ store: folder.store, flags: ["--snapshot-every", "8"] });
  });

  afterAll(async () => {
    await service.stop();
    await folder.remove();
  });

  test(
    seededTitle("a history is projected as it was made, from its beginning on and after a restart"),
    async () => {
      const numRuns = scaled(PLAYED_RUNS);
      const histories = fc.sample(generatedHistories, { seed, numRuns });
      const played: PlayedHistory[] = [];
      for (const history of histories) {
        const one = await PlayedHistory.play(service.clients(), history);
        played.push(one);
        for (const target of TARGETS) await one.expectAsModelled(service.clients(), target);
      }
      await service.stop();
      service = await startTestService({ store: folder.store });
      const clients = service.clients();
      for (const one of played) await one.expectUnchanged(clients);
      expect(played).toHaveLength(numRuns);
    },
    TIMEOUT_MS,
  );
});
