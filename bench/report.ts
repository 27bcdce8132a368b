const COLUMN = 12;

/** A figure and its bound. */
export interface Bar {
  readonly name: string;
  readonly value: number;
  readonly bound: number;
  readonly isMissed: boolean;
}

// A figure that is not a number has not been measured.

export function atMost(name: string, value: number, bound: number): Bar {
  return { name, value, bound, isMissed: !(value <= bound) };
}

export function atLeast(name: string, value: number, bound: number): Bar {
  return { name, value, bound, isMissed: !(value >= bound) };
}

export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

export function column(text: string): string {
  return text.padStart(COLUMN);
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((left, right) => left - right);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

/** A number with its thousands apart. */
export function grouped(count: number, digits = 0): string {
  return count.toLocaleString("en-US", { maximumFractionDigits: digits });
}

/** The figure, its bound, and whether it was missed, as the last columns of a line. */
export function barColumns(
  { value, bound, isMissed }: Bar,
  shown = (ratio: number) => ratio.toFixed(2),
): string {
  const columns = column(shown(value)) + column(grouped(bound, 2));
  return isMissed ? `${columns}  missed` : columns;
}
