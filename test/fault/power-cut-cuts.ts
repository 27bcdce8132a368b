import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { startTestService, type Clients } from "../support/service.js";
import { AcknowledgingWriter, type Acknowledgement } from "./acknowledging-writer.js";
import { PowerCutDisk, SURVIVALS } from "./power-cut-disk.js";
import type { RecordedRun } from "./power-cut-run.js";
import { cutProblems, readStored, type CutProblems } from "./power-cut-store.js";

/** One of so many stores is not only read but also served and written to. */
const SERVED_EVERY = 20;

/** What was found at a number of cut points. */
export interface CutCounts {
  cuts: number;
  /** Cut points after which something acknowledged was gone. */
  lost: number;
  /** Cut points after which something was there that must not be, or that could not be read. */
  corrupt: number;
  /** The first few of both. */
  readonly examples: string[];
}

export function noCuts(): CutCounts {
  return { cuts: 0, lost: 0, corrupt: 0, examples: [] };
}

const EXAMPLES_MAX = 10;

/** Cuts the power at so many points of a run, and adds what is left each time to `counts`. */
export async function cutPower(
  run: RecordedRun,
  wanted: number,
  random: () => number,
  counts: CutCounts,
): Promise<void> {
  const target = `${run.root}-left`;
  const disk = new PowerCutDisk(run.root);
  let applied = 0;
  for (const cut of cutPoints(run, wanted, random)) {
    for (; applied < cut; applied += 1) disk.apply(operationAt(run, applied));
    const survival = SURVIVALS[Math.floor(random() * SURVIVALS.length)] ?? "nothing";
    rmSync(target, { recursive: true, force: true });
    mkdirSync(target);
    disk.rebuild(target, survival, random);
    const toldBefore = new Set(
      run.timed.filter(({ operationsBefore }) => operationsBefore < cut).map((at) => at.command),
    );
    const isServed = counts.cuts % SERVED_EVERY === 0;
    const problems = await problemsOf(join(target, run.database), run, toldBefore, isServed);
    count(counts, problems, `${survival} left at ${cut} of ${run.operations.length}`);
  }
  rmSync(target, { recursive: true, force: true });
}

function count(counts: CutCounts, { lost, corrupt }: CutProblems, where: string): void {
  counts.cuts += 1;
  if (lost.length > 0) counts.lost += 1;
  if (corrupt.length > 0) counts.corrupt += 1;
  const [first] = [...lost.map((id) => `lost ${id}`), ...corrupt];
  if (first !== undefined && counts.examples.length < EXAMPLES_MAX) {
    counts.examples.push(`${where}: ${first}`);
  }
}

/** After each change or sync of a file, and while a reply is sent: so many of them, in order. */
function cutPoints(run: RecordedRun, wanted: number, random: () => number): number[] {
  const points = new Set(run.timed.map(({ operationsBefore }) => operationsBefore + 1));
  for (const [index, { kind }] of run.operations.entries()) {
    if (kind !== "send") points.add(index + 1);
  }
  const all = [...points];
  if (all.length < wanted) throw new Error(`only ${all.length} cut points`);
  const chosen: number[] = [];
  while (chosen.length < wanted) {
    const [point] = all.splice(Math.floor(random() * all.length), 1);
    if (point !== undefined) chosen.push(point);
  }
  return chosen.sort((one, other) => one - other);
}

function operationAt({ operations }: RecordedRun, index: number) {
  const operation = operations[index];
  if (operation === undefined) throw new Error(`there is no operation ${index}`);
  return operation;
}

async function problemsOf(
  path: string,
  run: RecordedRun,
  toldBefore: ReadonlySet<Acknowledgement>,
  isServed: boolean,
): Promise<CutProblems> {
  try {
    const left = await readStored(path, [...run.whole.keys()]);
    const problems = cutProblems(left, run.whole, run.told, toldBefore);
    if (isServed) problems.corrupt.push(...(await servedProblems(path, [...toldBefore])));
    return problems;
  } catch (error) {
    return { lost: [], corrupt: [`it cannot be read: ${String(error)}`] };
  }
}

/** What is wrong with a store when it is served, one line each. */
export async function servedProblems(
  path: string,
  told: readonly Acknowledgement[],
): Promise<string[]> {
  try {
    const service = await startTestService({ store: `sqlite:${path}` });
    try {
      return await repeatedProblems(service.clients(), told);
    } finally {
      await service.stop();
    }
  } catch (error) {
    return [`it cannot be served: ${String(error)}`];
  }
}

/** Sends everything again that was acknowledged, then something new. */
async function repeatedProblems(
  clients: Clients,
  told: readonly Acknowledgement[],
): Promise<string[]> {
  const problems: string[] = [];
  for (const { requestId, reply, send } of told) {
    const again = await send(clients).catch((error: unknown) => String(error));
    if (typeof again === "string") problems.push(`${requestId} again: ${again}`);
    else if (!again.equals(reply)) problems.push(`${requestId} again: another reply`);
  }
  const options = { name: "afterwards", bodyBytes: 100, asksForSequence: false };
  const writer = new AcknowledgingWriter(clients, options);
  await writer.begin();
  await writer.round();
  return problems;
}
