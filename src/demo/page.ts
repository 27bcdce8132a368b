const BOLD = ["\u001b[1m", "\u001b[22m"] as const;
const DIM = ["\u001b[2m", "\u001b[22m"] as const;
const INDENT = "  ";
const GAP = "  ";
const WIDTH = 96;

/** Lays out what is told: headings, paragraphs and tables, for a terminal or for a file. */
export class Page {
  #chapters = 0;

  constructor(
    readonly write: (text: string) => void,
    /** Whether bold and dim may be used. */
    readonly isTerminal: boolean,
  ) {}

  title(text: string): void {
    this.write(`${this.#styled(BOLD, text)}\n`);
  }

  chapter(text: string): void {
    this.#chapters += 1;
    this.write(`\n${this.#styled(BOLD, `${this.#chapters}. ${text}`)}\n`);
  }

  /** A paragraph, broken where the line is full. */
  say(text: string): void {
    for (const line of wrapped(text)) this.write(`${INDENT}${line}\n`);
  }

  /** Columns as wide as their widest cell. */
  table(headings: readonly string[], rows: readonly (readonly string[])[]): void {
    const widths = headings.map((heading, column) =>
      Math.max(...[heading, ...rows.map((row) => row[column] ?? "")].map((cell) => cell.length)),
    );
    const lineOf = (cells: readonly string[]) =>
      widths.map((width, column) => (cells[column] ?? "").padEnd(width)).join(GAP);
    this.write("\n");
    this.write(`${INDENT}${this.#styled(DIM, lineOf(headings).trimEnd())}\n`);
    for (const row of rows) this.write(`${INDENT}${lineOf(row).trimEnd()}\n`);
    this.write("\n");
  }

  #styled([begin, end]: readonly [string, string], text: string): string {
    return this.isTerminal ? `${begin}${text}${end}` : text;
  }
}

function wrapped(text: string): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > WIDTH) {
      lines.push(line);
      line = word;
    } else {
      line = line === "" ? word : `${line} ${word}`;
    }
  }
  return [...lines, line];
}
