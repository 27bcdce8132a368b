import { monotonicMs } from "../server/system.js";
import { sayProgress } from "./command-line.js";

const BAR_WIDTH_MAX = 40;
/** Below it a bar says less than nothing in its place. */
const BAR_WIDTH_MIN = 4;
const COLUMNS_IF_UNKNOWN = 80;
const DRAW_EVERY_MS = 100;
/** The rate is that of this last time, not of the whole. */
const RATE_OVER_MS = 3000;

interface Sample {
  readonly ms: number;
  readonly done: number;
}

/** How far a command is, on the terminal that started it: `[####....] 6,120 of 10,000  61%  1,240/s`. */
export class ProgressBar {
  #samples: Sample[];
  #drawnMs = -Infinity;

  constructor(private readonly clockMs: () => number = monotonicMs) {
    this.#samples = [{ ms: clockMs(), done: 0 }];
  }

  /** Draws at most ten times a second, and at the end. */
  show(done: number, total: number): void {
    const ms = this.clockMs();
    if (done < total && ms - this.#drawnMs < DRAW_EVERY_MS) return;
    this.#drawnMs = ms;
    sayProgress(this.text(done, total, process.stderr.columns));
  }

  /** One line that fits into the columns. A terminal that does not know its own says 0. */
  text(done: number, total: number, said = 0): string {
    const columns = said > 0 ? said : COLUMNS_IF_UNKNOWN;
    const share = total === 0 ? 1 : done / total;
    const counts = `${grouped(done)} of ${grouped(total)}`;
    const rest = `${counts}  ${Math.floor(share * 100)}%  ${grouped(this.#rateAt(done))}/s`;
    // Brackets, the space, and one column that stays free, so that no terminal wraps the line.
    const width = Math.min(BAR_WIDTH_MAX, columns - rest.length - 4);
    if (width < BAR_WIDTH_MIN) return rest.slice(0, columns - 1);
    const filled = Math.floor(share * width);
    return `[${"#".repeat(filled)}${".".repeat(width - filled)}] ${rest}`;
  }

  #rateAt(done: number): number {
    const ms = this.clockMs();
    this.#samples.push({ ms, done });
    const first = this.#samples.findLastIndex((sample) => ms - sample.ms >= RATE_OVER_MS);
    if (first > 0) this.#samples = this.#samples.slice(first);
    const [oldest = { ms, done }] = this.#samples;
    const elapsedMs = ms - oldest.ms;
    return elapsedMs <= 0 ? 0 : Math.round(((done - oldest.done) * 1000) / elapsedMs);
  }
}

/** With a comma before every three digits. */
export function grouped(count: number): string {
  return count.toLocaleString("en-US");
}
