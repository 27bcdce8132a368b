import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { runProcess } from "../support/run-process.js";

const ROOT = resolve(import.meta.dirname, "../..");
const CONFIG = join(ROOT, ".dependency-cruiser.mjs");

interface Plant {
  readonly rule: string;
  readonly file: string;
  readonly imports: string;
}

function plant(rule: string, file: string, imports: string): Plant {
  return { rule, file, imports };
}

/** One forbidden import for each rule. Targets that no plant makes are made by SOUND. */
const PLANTS: readonly Plant[] = [
  plant("arrows-of-domain", "src/domain/a.ts", "../ledger/sound.js"),
  plant("arrows-of-ledger", "src/ledger/a.ts", "../rpc/sound.js"),
  plant("arrows-of-store", "src/store/a.ts", "../ledger/sound.js"),
  plant("arrows-of-watch", "src/watch/a.ts", "../rpc/sound.js"),
  plant("arrows-of-provider", "src/provider/a.ts", "../ledger/sound.js"),
  plant("arrows-of-legacy", "src/legacy/a.ts", "../ledger/sound.js"),
  plant("arrows-of-projection", "src/projection/a.ts", "../ledger/sound.js"),
  plant("arrows-of-rpc", "src/rpc/a.ts", "../server/sound.js"),
  plant("arrows-of-server", "src/server/a.ts", "../client/sound.js"),
  plant("arrows-of-client", "src/client/a.ts", "../domain/sound.js"),
  plant("arrows-of-inspector", "src/inspector/a.ts", "../domain/sound.js"),
  plant("arrows-of-cli", "src/cli/a.ts", "../rpc/sound.js"),
  plant("arrows-of-demo", "src/demo/a.ts", "../server/sound.js"),
  plant("confined-better-sqlite3", "src/store/sqlite/b.ts", "better-sqlite3"),
  plant("confined-grpc-grpc-js-grpc-health-check", "src/rpc/b.ts", "@grpc/grpc-js"),
  plant("confined-connectrpc", "src/rpc/c.ts", "@connectrpc/connect"),
  plant("confined-pino", "src/rpc/d.ts", "pino"),
  plant("confined-prom-client", "src/rpc/g.ts", "prom-client"),
  plant("confined-jsonc-parser", "src/rpc/h.ts", "jsonc-parser"),
  plant("confined-agentclientprotocol", "src/rpc/i.ts", "@agentclientprotocol/sdk"),
  plant("folder-without-arrows", "src/misplaced/a.ts", "../domain/sound.js"),
  plant("store-used-by-server-only", "src/ledger/b.ts", "../store/sound.js"),
  plant("stores-apart", "src/store/memory/a.ts", "../sqlite/sound.js"),
  plant("domain-without-platform", "src/domain/b.ts", "node:crypto"),
  plant("sha256-from-crypto-only", "src/domain/sha256.ts", "node:zlib"),
  plant("ledger-without-io", "src/ledger/c.ts", "node:fs/promises"),
  plant("rpc-without-machine", "src/rpc/e.ts", "node:fs"),
  plant("pure-without-packages", "src/domain/c.ts", "pino"),
  plant("sources-stand-alone", "src/server/b.ts", "../../test/sound.js"),
  plant("gen-stands-alone", "gen/a.ts", "../src/domain/sound.js"),
  plant("no-development-package", "src/server/c.ts", "vitest"),
  plant("no-unresolvable", "src/server/d.ts", "./missing.js"),
  plant("no-cycle", "src/domain/d.ts", "./e.js"),
  plant("no-orphan", "src/domain/alone.ts", ""),
];

/** A tree that keeps every rule, with one file that is used in each folder. */
const SOUND: Readonly<Record<string, string>> = {
  "gen/sound.ts": 'import "@bufbuild/protobuf";\n',
  "src/domain/merge-law.ts": 'import "../../gen/sound.js";\n',
  "src/domain/sound.ts": 'import type { Sound } from "../../gen/sound.js";\n',
  "src/ledger/store-port.ts": 'import "../domain/sound.js";\n',
  "src/ledger/sound.ts": 'import "./store-port.js";\nimport "../domain/sound.js";\n',
  "src/store/sound.ts": 'import "../ledger/store-port.js";\nimport "../domain/sound.js";\n',
  "src/store/sqlite/open.ts": 'import "better-sqlite3";\nimport "node:fs";\n',
  "src/store/sqlite/sound.ts": 'import "./open.js";\nimport "../sound.js";\n',
  "src/store/memory/sound.ts": 'import "../sound.js";\n',
  "src/rpc/grpc-adapter.ts": 'import "@grpc/grpc-js";\nimport "./sound.js";\n',
  "src/rpc/connect-adapter.ts": 'import "@connectrpc/connect";\nimport "./sound.js";\n',
  "src/rpc/sound.ts": 'import "../ledger/sound.js";\nimport "../domain/sound.js";\n',
  "src/server/sound.ts": 'import "pino";\nimport "../rpc/grpc-adapter.js";\nimport "node:http";\n',
  "src/server/main.ts": 'import "./sound.js";\nimport "./stores.js";\n',
  "src/server/stores.ts":
    'import "../store/sqlite/sound.js";\nimport "../store/memory/sound.js";\n',
  "src/client/sound.ts": 'import "@connectrpc/connect";\nimport "../domain/merge-law.js";\n',
  "test/sound.ts": "export {};\n",
};

const RUN_TIME = ["@bufbuild/protobuf", "@connectrpc/connect", "@grpc/grpc-js"];
const MANIFEST = {
  type: "module",
  dependencies: names([...RUN_TIME, "better-sqlite3", "jsonc-parser", "pino", "prom-client"]),
  peerDependencies: names(["@agentclientprotocol/sdk"]),
  devDependencies: names(["vitest"]),
};

function names(packages: readonly string[]): Record<string, string> {
  return Object.fromEntries(packages.map((name) => [name, "1.0.0"]));
}

async function write(root: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
  }
}

async function makeTree(files: Readonly<Record<string, string>>): Promise<string> {
  const root = await mkdtemp(join(tmpdir(), "boundaries-"));
  await write(root, { "package.json": JSON.stringify(MANIFEST), "tsconfig.json": "{}" });
  const { dependencies, peerDependencies, devDependencies } = MANIFEST;
  for (const name of Object.keys({ ...dependencies, ...peerDependencies, ...devDependencies })) {
    await write(join(root, "node_modules", name), {
      "package.json": JSON.stringify({ name, version: "1.0.0", main: "index.js" }),
      "index.js": "",
    });
  }
  await write(root, files);
  return root;
}

interface Report {
  readonly summary: {
    readonly violations: readonly { readonly from: string; readonly rule: { name: string } }[];
  };
}

/** Runs the check on another tree. Violations as `rule: file`. */
async function violationsIn(root: string): Promise<string[]> {
  const run = await runProcess(
    process.execPath,
    [
      join(ROOT, "node_modules/dependency-cruiser/bin/dependency-cruise.mjs"),
      ...["--config", CONFIG, "--output-type", "json", "src"],
    ],
    { cwd: root },
  );
  expect(run.stderr).toBe("");
  const report = JSON.parse(run.stdout) as Report;
  return report.summary.violations.map(({ rule, from }) => `${rule.name}: ${from}`);
}

function plantedFiles(): Record<string, string> {
  const files: Record<string, string> = { ...SOUND };
  for (const { file, imports } of PLANTS) {
    files[file] = imports === "" ? "export {};\n" : `import "${imports}";\n`;
  }
  // The other half of the cycle, and what leads the check into gen/a.ts.
  files["src/domain/e.ts"] = 'import "./d.js";\nimport "../../gen/a.js";\n';
  return files;
}

describe("the boundary check", () => {
  const trees: string[] = [];
  let found: string[] = [];

  beforeAll(async () => {
    const root = await makeTree(plantedFiles());
    trees.push(root);
    found = await violationsIn(root);
  });

  afterAll(async () => {
    for (const root of trees) await rm(root, { recursive: true });
  });

  test("finds nothing in a tree that keeps the rules", async () => {
    const root = await makeTree(SOUND);
    trees.push(root);
    expect(await violationsIn(root)).toEqual([]);
  });

  test.each(PLANTS)("reports $rule in $file", ({ rule, file }) => {
    expect(found).toContain(`${rule}: ${file}`);
  });

  test("has a planted violation for every rule", async () => {
    const config = (await import(CONFIG)) as {
      default: { forbidden: readonly { readonly name: string }[] };
    };
    const rules = config.default.forbidden.map(({ name }) => name);
    expect([...new Set(PLANTS.map(({ rule }) => rule))].sort()).toEqual(rules.sort());
  });
});
