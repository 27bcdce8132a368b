import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { createClient, type Client } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { ProviderWire } from "../gen/toolmark/engine/v1/command_pb.js";
import { ReplayService } from "../gen/toolmark/engine/v1/replay_service_pb.js";
import { openStore } from "../src/server/service.js";
import { ledgerOn, LedgerWriter } from "./ledger-writer.js";
import type { Options } from "./options.js";
import { appendProviderTurns } from "./provider-turns.js";
import { atMost, barColumns, type Bar, column, grouped, median, print } from "./report.js";
import { startService, storePath } from "./service-process.js";

const CALLS = [200, 2_000, 20_000] as const;
/** Of the time for each call, beside the least of what it takes in sessions of fewer calls. */
const GROWTH_MAX = 2;
const MIB = 1024 * 1024;

const TARGETS = [
  { name: "Anthropic (own turns)", wire: ProviderWire.ANTHROPIC_MESSAGES },
  { name: "OpenAI Responses", wire: ProviderWire.OPENAI_RESPONSES },
  { name: "OpenAI Chat", wire: ProviderWire.OPENAI_CHAT_COMPLETIONS },
  { name: "Gemini", wire: ProviderWire.GEMINI },
  { name: "Mistral", wire: ProviderWire.MISTRAL },
] as const;
type Target = (typeof TARGETS)[number];

interface WrittenSession {
  readonly sessionId: string;
  readonly calls: number;
}

interface Projected {
  readonly tookMs: number;
  readonly sizeBytes: number;
}

type Replays = Client<typeof ReplayService>;

/** The time to project sessions of Anthropic's turns for each wire, by how many calls they have. */
export async function measureProjection(
  { rounds, profile }: Pick<Options, "rounds" | "profile">,
  folder: string,
): Promise<readonly Bar[]> {
  const own = join(folder, "projected");
  await mkdir(own);
  const sessions = await writeSessions(own);
  print(`\nprojecting a session, medians of ${rounds} rounds`);
  const heads = ["calls", "MiB", "ms", "µs per call", "growth", "at most"];
  print(`${"".padEnd(28)}${heads.map(column).join("")}`);
  const service = await startService(own, profile);
  const connection = new Http2SessionManager(`http://${service.grpcAddress}`);
  const baseUrl = `http://${service.grpcAddress}`;
  const transport = createGrpcTransport({ baseUrl, sessionManager: connection });
  const replays = createClient(ReplayService, transport);
  try {
    const bars: Bar[] = [];
    for (const target of TARGETS) {
      bars.push(...(await measureTarget(replays, target, sessions, rounds)));
    }
    return bars;
  } finally {
    connection.abort();
    await service.stop();
  }
}

async function writeSessions(folder: string): Promise<readonly WrittenSession[]> {
  const store = await openStore({ kind: "sqlite", path: storePath(folder) });
  try {
    const ledger = ledgerOn(store);
    const writer = new LedgerWriter(ledger, "projected");
    const sessions: WrittenSession[] = [];
    for (const calls of CALLS) {
      const run = await writer.beginRun();
      await appendProviderTurns(writer, run, calls);
      sessions.push({ sessionId: run.sessionId, calls });
    }
    await ledger.close();
    return sessions;
  } finally {
    await store.close();
  }
}

/** The sessions in turn, so that all sizes see the same machine. */
async function measureTarget(
  replays: Replays,
  { name, wire }: Target,
  sessions: readonly WrittenSession[],
  rounds: number,
): Promise<readonly Bar[]> {
  const runs = sessions.map((): Projected[] => []);
  for (let round = 0; round <= rounds; round += 1) {
    for (const [index, session] of sessions.entries()) {
      const projected = await project(replays, session.sessionId, wire);
      // The first round warms up.
      if (round > 0) runs[index]?.push(projected);
    }
  }
  const bars: Bar[] = [];
  let leastUs = Infinity;
  for (const [index, { calls }] of sessions.entries()) {
    const projected = runs[index] ?? [];
    const tookMs = median(projected.map((run) => run.tookMs));
    const callUs = (tookMs * 1000) / calls;
    const figures = [grouped(calls), mib(projected), tookMs.toFixed(1), callUs.toFixed(1)];
    const bar = atMost(`projecting ${calls} calls, ${name}`, callUs / leastUs, GROWTH_MAX);
    const isFirst = leastUs === Infinity;
    const growth = isFirst ? "" : barColumns(bar);
    print(`${(isFirst ? name : "").padEnd(28)}${figures.map(column).join("")}${growth}`);
    if (!isFirst) bars.push(bar);
    leastUs = Math.min(leastUs, callUs);
  }
  return bars;
}

function mib(projected: readonly Projected[]): string {
  return ((projected[0]?.sizeBytes ?? Number.NaN) / MIB).toFixed(2);
}

async function project(
  replays: Replays,
  sessionId: string,
  wire: ProviderWire,
): Promise<Projected> {
  let sizeBytes = 0;
  const startMs = performance.now();
  for await (const { part } of replays.projectReplay({ sessionId, wire })) {
    sizeBytes += part.value?.length ?? 0;
  }
  return { tookMs: performance.now() - startMs, sizeBytes };
}
