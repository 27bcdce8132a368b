import { stat } from "node:fs/promises";
import { Counter, Gauge, Registry } from "prom-client";
import type { CommitResult, Store } from "../ledger/store-port.js";
import { traceOf } from "../rpc/fault-trace.js";
import type { HttpResponse } from "../rpc/http.js";
import type { Log } from "../rpc/log.js";
import { answerText, type HttpRoute } from "./http-listener.js";
import type { StoreLocation } from "./setting.js";

/** What became of a commit. */
export type CommitOutcome =
  | Exclude<CommitResult["outcome"], "failed">
  | Extract<CommitResult, { outcome: "failed" }>["reason"];

/** Every one of them: each is there from the start, at 0. */
const OUTCOMES = {
  committed: true,
  command_failed: true,
  full: true,
  busy: true,
  damaged: true,
  lost: true,
  other: true,
} as const satisfies Record<CommitOutcome, true>;

const MICROSECONDS_PER_SECOND = 1e6;

export interface MetricsOptions {
  readonly store: Pick<Store, "lastPosition">;
  readonly location: StoreLocation;
  readonly log: Log;
}

export interface Metrics {
  readonly countCommit: (outcome: CommitOutcome) => void;
  /** Answers GET /metrics in the text format of Prometheus. */
  readonly route: HttpRoute;
}

/** What the service counts. Labels hold no id, name or text that comes from outside. */
export function serviceMetrics({ store, location, log }: MetricsOptions): Metrics {
  const registry = new Registry();
  const commits = new Counter({
    name: "toolmark_commits_total",
    help: "Commits by what became of them.",
    labelNames: ["outcome"],
    registers: [registry],
  });
  for (const outcome of Object.keys(OUTCOMES)) commits.inc({ outcome }, 0);
  gauge(
    registry,
    "toolmark_store_last_position",
    "Position of the last committed event.",
    async () => Number(await store.lastPosition()),
  );
  if (location.kind === "sqlite") addFileSizes(registry, location.path);
  addProcess(registry);
  return {
    countCommit: (outcome) => {
      commits.inc({ outcome });
    },
    route: metricsRoute(registry, log),
  };
}

function addFileSizes(registry: Registry, path: string): void {
  const sizeOf = async (file: string): Promise<number> => (await stat(file)).size;
  gauge(registry, "toolmark_store_database_bytes", "Size of the database file.", () =>
    sizeOf(path),
  );
  gauge(registry, "toolmark_store_wal_bytes", "Size of the write-ahead log.", () =>
    sizeOf(`${path}-wal`),
  );
}

/** Read when asked for, so that they cost nothing otherwise. */
function addProcess(registry: Registry): void {
  gauge(registry, "process_resident_memory_bytes", "Resident memory.", async () =>
    process.memoryUsage.rss(),
  );
  registry.registerMetric(
    new Counter({
      name: "process_cpu_seconds_total",
      help: "User and system CPU time.",
      registers: [],
      collect() {
        const { user, system } = process.cpuUsage();
        this.reset();
        this.inc((user + system) / MICROSECONDS_PER_SECOND);
      },
    }),
  );
}

/** What cannot be read just now is NaN: the rest is told all the same. */
function gauge(registry: Registry, name: string, help: string, read: () => Promise<number>): void {
  registry.registerMetric(
    new Gauge({
      name,
      help,
      registers: [],
      async collect() {
        this.set(await read().catch(() => Number.NaN));
      },
    }),
  );
}

function metricsRoute(registry: Registry, log: Log): HttpRoute {
  return (request, response) => {
    if (request.url !== "/metrics") return false;
    if (request.method !== "GET") {
      response.setHeader("allow", "GET");
      answerText(response, 405, "GET only");
    } else void answerMetrics(registry, response, log);
    return true;
  };
}

async function answerMetrics(registry: Registry, response: HttpResponse, log: Log): Promise<void> {
  try {
    const text = await registry.metrics();
    response.writeHead(200, { "content-type": registry.contentType });
    response.end(text);
  } catch (fault) {
    log.error("metrics could not be read", { fault: traceOf(fault) });
    answerText(response, 500, "metrics could not be read");
  }
}
