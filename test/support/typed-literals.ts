import { join } from "node:path";
import ts from "typescript";

import { ROOT } from "./source-tree.js";

/** A JSON text and the name of a type that its value should have. */
export interface TypedLiteral {
  readonly type: string;
  readonly json: string;
}

const OPTIONS: ts.CompilerOptions = {
  target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.NodeNext,
  moduleResolution: ts.ModuleResolutionKind.NodeNext,
  strict: true,
  noEmit: true,
  skipLibCheck: true,
  types: ["node"],
};

/** Members with one name: what JSON makes of them is not for a type to say. */
const REPEATED_MEMBER = 1117;

/** Is nowhere on disk: packages are found from where it would be. */
const SOURCE = join(ROOT, "test/support/typed-literals-of-this-run.ts");

/** Checks JSON values against types with the compiler. */
export class TypedLiterals {
  readonly #host = ts.createCompilerHost(OPTIONS);
  readonly #files = new Map<string, ts.SourceFile | undefined>();
  readonly #known = new Map<string, readonly string[]>();
  #program: ts.Program | undefined;
  #source = "";

  /** `preamble` declares the types. */
  constructor(private readonly preamble: string) {
    const { getSourceFile, fileExists } = this.#host;
    this.#host.fileExists = (path) => path === SOURCE || fileExists(path);
    this.#host.getSourceFile = (path, options) => {
      if (path === SOURCE) return ts.createSourceFile(path, this.#source, options, true);
      if (!this.#files.has(path)) this.#files.set(path, getSourceFile(path, options));
      return this.#files.get(path);
    };
  }

  /** What is wrong with each literal. Equal ones are looked at once. */
  faults<T extends TypedLiteral>(literals: readonly T[]): ReadonlyMap<T, readonly string[]> {
    const fresh = new Map(
      literals
        .map((literal) => [keyOf(literal), literal] as const)
        .filter(([key]) => !this.#known.has(key)),
    );
    if (fresh.size > 0) this.#compile([...fresh.values()]);
    return new Map(literals.map((literal) => [literal, this.#known.get(keyOf(literal)) ?? []]));
  }

  #compile(literals: readonly TypedLiteral[]): void {
    const starts: number[] = [];
    this.#source = `${this.preamble}\n`;
    for (const [index, { type, json }] of literals.entries()) {
      starts.push(this.#source.length);
      this.#source += `export const literal${index}: ${type} = ${json};\n`;
    }
    const program = ts.createProgram([SOURCE], OPTIONS, this.#host, this.#program);
    this.#program = program;
    const file = program.getSourceFile(SOURCE);
    if (file === undefined) throw new Error("the compiler has no source");
    const faults = literals.map((): string[] => []);
    const diagnostics = [
      ...program.getOptionsDiagnostics(),
      ...program.getSyntacticDiagnostics(file),
      ...program.getSemanticDiagnostics(file),
    ];
    for (const { start = 0, code, messageText } of diagnostics) {
      if (code === REPEATED_MEMBER) continue;
      const text = ts.flattenDiagnosticMessageText(messageText, "\n");
      const found = faults[starts.findLastIndex((at) => at <= start)];
      if (found === undefined) throw new Error(`the types cannot be compiled: ${text}`);
      found.push(text);
    }
    for (const [index, literal] of literals.entries()) {
      this.#known.set(keyOf(literal), faults[index] ?? []);
    }
  }
}

function keyOf({ type, json }: TypedLiteral): string {
  return `${type} ${json}`;
}
