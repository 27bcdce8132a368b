import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Frames } from "./requests.js";

const run = promisify(execFile);

/** Requests in flight: connections times streams on each. */
export interface Concurrency {
  readonly connections: number;
  readonly streams: number;
  /** At a steady pace. Absent: as fast as they are answered. */
  readonly perSecond?: number;
}

export interface Measurement {
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly requests: number;
}

interface LoadReport {
  readonly ok: number;
  readonly failed: number;
  readonly seconds: number;
  readonly p50Us: number;
  readonly p99Us: number;
  readonly nextId: number;
}

/** Compiles and runs load.c. Request ids rise from round to round, so none is used twice. */
export class LoadGenerator {
  readonly #folder: string;
  readonly #program: string;
  #nextId = 0;

  private constructor(folder: string) {
    this.#folder = folder;
    this.#program = join(folder, "load");
  }

  static async compile(source: string, folder: string): Promise<LoadGenerator> {
    const generator = new LoadGenerator(folder);
    await run("gcc", ["-O2", "-o", generator.#program, source, "-lnghttp2"]);
    return generator;
  }

  /** Loads one server. Fails if any reply has a grpc-status other than 0. */
  async load(
    address: string,
    frames: Frames,
    { connections, streams, perSecond = 0 }: Concurrency,
    seconds: number,
  ): Promise<Measurement> {
    const file = join(this.#folder, "frames.bin");
    await writeFile(file, frames.bytes);
    const [host = "", port = ""] = address.split(":");
    const place = [frames.frameSize, frames.idOffset, frames.idWidth, this.#nextId];
    const amount = [connections, streams, seconds, perSecond];
    const { stdout } = await run(this.#program, [
      ...[host, port, frames.path, file],
      ...[...place, ...amount].map(String),
    ]);
    const report = JSON.parse(stdout) as LoadReport;
    this.#nextId = report.nextId;
    if (report.failed > 0 || report.ok === 0) throw new Error(`load: ${stdout}`);
    return {
      perSecond: report.ok / report.seconds,
      p50Ms: report.p50Us / 1000,
      p99Ms: report.p99Us / 1000,
      requests: report.ok,
    };
  }
}

/** The same frame over and over by h2load: a figure to hold that of load.c against. */
export async function h2loadPerSecond(
  address: string,
  frames: Frames,
  { connections, streams }: Concurrency,
  seconds: number,
  folder: string,
): Promise<number> {
  const file = join(folder, "h2load-frame.bin");
  await writeFile(file, frames.bytes.subarray(0, frames.frameSize));
  const { stdout } = await run("h2load", [
    ...["-c", String(connections), "-m", String(streams), "-t", "1"],
    ...["-D", String(seconds), "-d", file],
    ...["-H", "content-type: application/grpc+proto", "-H", "te: trailers"],
    `http://${address}${frames.path}`,
  ]);
  const rate = /finished in [\d.]+\w*, ([\d.]+) req\/s/.exec(stdout)?.[1];
  const clean = stdout.includes(", 0 failed, 0 errored, 0 timeout");
  if (rate === undefined || !clean) throw new Error(`h2load: ${stdout}`);
  return Number(rate);
}
