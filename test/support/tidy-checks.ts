import { basename, extname } from "node:path";
import type { SourceFile } from "./source-tree.js";

/** A rule that no linter here checks. */
export interface TidyCheck {
  readonly name: string;
  /** The files that the rule is about. */
  readonly covers: (path: string) => boolean;
  /** What is wrong with a file, one line each. */
  readonly problems: (file: SourceFile) => string[];
  /** A file that breaks the rule, to show that the check can fail. */
  readonly bad: SourceFile;
}

const CODE = new Set([".ts", ".js", ".mjs", ".c", ".sql", ".sh", ".yaml"]);
// The formatter keeps code to 100; comments and what cannot be broken may take some more.
const LINE_LENGTH_MAX = 120;
const PROTO_LINE_LENGTH_MAX = 120;
const PROTO_LINES_MAX = 600;

const isCode = (path: string): boolean => CODE.has(extname(path)) || path === ".ci/run";
const isFixture = (path: string): boolean => path.startsWith("test/fixtures/");
const isTest = (path: string): boolean => path.startsWith("test/") && extname(path) === ".ts";
const isProto = (path: string): boolean => extname(path) === ".proto";
const within = (...folders: string[]) => {
  return (path: string): boolean => folders.some((folder) => path.startsWith(folder));
};

/** `path:line: what` for each line that a test finds at fault. */
function linesThat(isWrong: (line: string) => boolean, what: string) {
  return ({ path, text }: SourceFile): string[] =>
    text
      .split("\n")
      .flatMap((line, index) => (isWrong(line) ? [`${path}:${index + 1}: ${what}`] : []));
}

function longerThan(limit: number) {
  return linesThat((line) => line.length > limit, `longer than ${limit} characters`);
}

function pathThat(isWrong: (path: string) => boolean, what: string) {
  return ({ path }: SourceFile): string[] => (isWrong(path) ? [`${path}: ${what}`] : []);
}

// Put together here so that this file does not report itself.
const MARK = ["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"];
const UNNUMBERED_MARK = new RegExp(`\\b(${MARK.join("|")})\\b(?!\\(#\\d+\\))`);
const MERGE_MARKER = new RegExp("^(<{7}|>{7}|[|]{7})( |$)|^={7}$");
const MACHINE_PATH = new RegExp(
  "(^|[\\s\"'`(=:])(/(home|root|work|Users|mnt|opt|workspace)/\\w|[A-Z]:\\\\\\w)",
);
const SQL =
  /\b(SELECT\s+[\w*]|INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|PRAGMA\s+\w)/;
const SQL_DEFINITION = /\b(CREATE|DROP|ALTER)\s+(UNIQUE\s+)?(TEMP\s+)?(TABLE|INDEX|TRIGGER|VIEW)\b/;
const SWITCHED_OFF = /\b(describe|it|test|suite)(\.\w+)*\.(skip|only|todo|skipIf|runIf)\b/;
const SKIPPED_INSIDE = /\b(context|ctx|task)\.skip\(|\bx(it|describe|test)\(/;

/** Written by the fault suite, and known by this name. */
const FAULT_REPORT = "test/fault/RESULTS.json";
const KEBAB_FILE = /^[a-z0-9]+(-[a-z0-9]+)*([.](test|config|bench))?[.][a-z0-9]+$/;
const MIGRATION_FILE = /^\d{4}_[a-z0-9]+(_[a-z0-9]+)*[.](up|down)[.]sql$/;
const CATCH_ALL = /^(utils?|helpers?|misc|common|shared|stuff)$/;

export const TIDY_CHECKS: readonly TidyCheck[] = [
  {
    name: "lines of code are short",
    covers: (path) => isCode(path) && !isFixture(path),
    problems: longerThan(LINE_LENGTH_MAX),
    bad: { path: "src/domain/a.ts", text: `// ${"x".repeat(118)}\n` },
  },
  {
    name: "lines of contracts are short",
    covers: isProto,
    problems: longerThan(PROTO_LINE_LENGTH_MAX),
    bad: { path: "proto/toolmark/v1/a.proto", text: `// ${"x".repeat(118)}\n` },
  },
  {
    name: "contract files are short",
    covers: isProto,
    problems: ({ path, text }) =>
      text.split("\n").length - 1 > PROTO_LINES_MAX
        ? [`${path}: more than ${PROTO_LINES_MAX} lines`]
        : [],
    bad: { path: "proto/toolmark/v1/a.proto", text: "// x\n".repeat(601) },
  },
  {
    name: "SQL lies in the SQLite store and the migrations only",
    covers: (path) => within("src/", "bench/")(path) && !within("src/store/sqlite/")(path),
    problems: linesThat((line) => SQL.test(line) || SQL_DEFINITION.test(line), "SQL"),
    bad: { path: "src/ledger/a.ts", text: 'const sql = "SELECT position FROM events";\n' },
  },
  {
    name: "no merge markers",
    covers: (path) => !isFixture(path),
    problems: linesThat((line) => MERGE_MARKER.test(line), "merge marker"),
    bad: { path: "README.md", text: `${">".repeat(7)} theirs\n` },
  },
  {
    name: "what is left to do has an issue number",
    covers: (path) => !isFixture(path),
    problems: linesThat((line) => UNNUMBERED_MARK.test(line), "names no issue as (#number)"),
    bad: { path: "src/ledger/a.ts", text: `// ${MARK.join(" ")}: later\n` },
  },
  {
    name: "no path of one machine",
    covers: (path) => !isFixture(path),
    problems: linesThat((line) => MACHINE_PATH.test(line), "path of one machine"),
    bad: { path: "docs/a.md", text: `see ${["", "home", "me", "x"].join("/")}\n` },
  },
  {
    name: "no test is switched off",
    covers: isTest,
    problems: linesThat(
      (line) => SWITCHED_OFF.test(line) || SKIPPED_INSIDE.test(line),
      "test switched off",
    ),
    bad: { path: "test/unit/a.test.ts", text: ["test", "only"].join(".") + '("x", () => {});\n' },
  },
  {
    name: "file names are kebab-case",
    covers: (path) => within("src/", "test/", "bench/", "docs/")(path) && !isFixture(path),
    problems: pathThat(
      (path) => path !== FAULT_REPORT && !KEBAB_FILE.test(basename(path)),
      "not kebab-case",
    ),
    bad: { path: "src/domain/mergeLaw.ts", text: "" },
  },
  {
    name: "migrations are numbered and have a direction",
    covers: within("migrations/"),
    problems: pathThat((path) => !MIGRATION_FILE.test(basename(path)), "not NNNN_name.up|down.sql"),
    bad: { path: "migrations/first.sql", text: "" },
  },
  {
    name: "no file is a catch-all",
    covers: within("src/", "test/", "bench/"),
    problems: pathThat(
      (path) => path.split(/[/.]/).some((part) => CATCH_ALL.test(part)),
      "say what it holds",
    ),
    bad: { path: "src/rpc/utils.ts", text: "" },
  },
  {
    name: "the changelog has a place for what is next",
    covers: (path) => path === "CHANGELOG.md",
    problems: ({ path, text }) =>
      /^## \[Unreleased\]$/m.test(text) ? [] : [`${path}: no [Unreleased]`],
    bad: { path: "CHANGELOG.md", text: "# Changelog\n\n## 1.0.0\n" },
  },
];

interface Manifest {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
}

/** Direct dependencies that are not pinned or not explained, and explained ones that are none. */
export function dependencyProblems(manifest: Manifest, reasons: string): string[] {
  const versions = { ...manifest.dependencies, ...manifest.devDependencies };
  const explained = new Set(
    [...reasons.matchAll(/^- `([^`]+)`: \S/gm)].map(([, name]) => name ?? ""),
  );
  return [
    ...Object.entries(versions).flatMap(([name, version]) =>
      /^\d+\.\d+\.\d+$/.test(version) ? [] : [`${name}: ${version} is not one exact version`],
    ),
    ...Object.keys(versions).flatMap((name) => (explained.has(name) ? [] : [`${name}: no reason`])),
    ...[...explained].flatMap((name) => (name in versions ? [] : [`${name}: no dependency`])),
  ];
}
