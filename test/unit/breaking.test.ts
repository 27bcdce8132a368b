import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { runProcess } from "../support/run-process.js";
import { ROOT } from "../support/source-tree.js";

const BUF = join(ROOT, "node_modules/.bin/buf");
const IMAGE = join(ROOT, "api/toolmark.binpb");
const BREAKING = 100;

const CHANGES = [
  { what: "a removed field", from: "  bool is_error = 2;\n", to: "" },
  { what: "a renumbered field", from: "bool is_error = 2;", to: "bool is_error = 99;" },
  { what: "another type", from: "bool is_error = 2;", to: "string is_error = 2;" },
];

describe("the check for breaking changes", () => {
  let folder = "";

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "breaking-"));
    await cp(join(ROOT, "proto"), join(folder, "proto"), { recursive: true });
    await cp(join(ROOT, "buf.yaml"), join(folder, "buf.yaml"));
  });

  afterEach(async () => {
    await rm(folder, { recursive: true });
  });

  const check = () => runProcess(BUF, ["breaking", "--against", IMAGE], { cwd: folder });

  test("passes the contracts as they are", async () => {
    expect(await check()).toMatchObject({ code: 0, stdout: "" });
  });

  test.each(CHANGES)("reports $what", async ({ from, to }) => {
    const path = join(folder, "proto/toolmark/engine/v1/command.proto");
    const text = await readFile(path, "utf8");
    expect(text).toContain(from);
    await writeFile(path, text.replace(from, to));
    const result = await check();
    expect(result.code).toBe(BREAKING);
    expect(result.stdout).toContain("toolmark/engine/v1/command.proto");
  });
});
