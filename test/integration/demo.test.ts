import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Page } from "../../src/demo/page.js";
import { runProcess, type ProcessResult } from "../support/run-process.js";
import { ROOT } from "../support/source-tree.js";

const DEMO = join(ROOT, "dist/src/demo/main.js");
const WIDTH_MAX = 100;

let folder = "";
let result: ProcessResult;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "demo-"));
  // A setting that a server would refuse: the demo's own takes none from outside.
  const env = { ...process.env, TMPDIR: folder, TOOLMARK_LOG_LEVEL: "loud" };
  result = await runProcess(process.execPath, [DEMO], { cwd: folder, env });
});

afterAll(async () => {
  await rm(folder, { recursive: true });
});

/** The rows of the table in the chapter with this heading, each as its cells. */
function tableOf(heading: string): string[][] {
  const chapters = result.stdout.split(/^\d+\. /m);
  const chapter = chapters.find((text) => text.startsWith(heading));
  if (chapter === undefined) throw new Error(`no chapter ${heading}: ${result.stdout}`);
  const [, table = ""] = chapter.split("\n\n");
  return table
    .split("\n")
    .slice(1)
    .map((line) => line.trim().split(/ {2,}/));
}

describe("the demo", () => {
  test("ends well and leaves nothing behind", async () => {
    expect(result).toMatchObject({ code: 0, stderr: "" });
    expect(await readdir(folder)).toEqual([]);
  });

  test("leaves nothing behind if its reader goes away, or if it is interrupted", async () => {
    const env = { ...process.env, TMPDIR: folder };
    for (const leave of [
      (demo: ChildProcess) => demo.stdout?.destroy(),
      (demo: ChildProcess) => demo.kill("SIGINT"),
      (demo: ChildProcess) => demo.kill("SIGTERM"),
    ]) {
      const demo = spawn(process.execPath, [DEMO], { env, stdio: ["ignore", "pipe", "inherit"] });
      await once(demo.stdout, "data");
      const ended = once(demo, "exit");
      leave(demo);
      await ended;
      expect(await readdir(folder)).toEqual([]);
    }
  });

  test("writes plain text in short lines if it is not shown on a terminal", () => {
    expect(result.stdout).not.toContain("\u001b");
    expect(result.stdout.split("\n").filter(({ length }) => length > WIDTH_MAX)).toEqual([]);
  });

  test("accepts a parallel turn with an id for each call", () => {
    const rows = tableOf("The model makes three calls");
    expect(rows.map(([tool, , state]) => [tool, state])).toEqual([
      ["read_file", "ACCEPTED"],
      ["search", "ACCEPTED"],
      ["remove_file", "ACCEPTED"],
    ]);
    const ids = rows.map(([, id]) => id);
    expect(new Set(ids).size).toBe(3);
    expect(ids).toEqual(ids.map(() => expect.stringMatching(/^tc_\w+$/) as unknown));
  });

  test("has a repeated provider id refused with its positions, and nothing written", () => {
    const [[, readId] = []] = tableOf("The model makes three calls");
    expect(tableOf("Turns that repeat")).toEqual([
      ["call_3 call_4 call_3", "DUPLICATE_PROVIDER_CALL_ID", "0,2"],
      ["call_0", "PROVIDER_CALL_ID_OUTSTANDING", "0", readId],
    ]);
    expect(result.stdout).toContain("have written 0 events");
  });

  test("links a blocked call to the hook that blocked it", () => {
    const [, , [, , removeId] = []] = tableOf("The server is killed");
    const [[, hookId] = []] = tableOf("A hook blocks a call");
    expect(hookId).toMatch(/^hk_\w+$/);
    expect(tableOf("A hook blocks a call")).toEqual([
      ["hook keep-archive", hookId, "BLOCKED"],
      ["call remove_file", removeId, "BLOCKED", hookId],
    ]);
  });

  test("shows what was proposed and what was used", () => {
    expect(tableOf("The arguments of a call are changed")).toEqual([
      ["read_file", "COMPLETED", '{"path":"notes.md"}', '{"path":"notes.md","max_lines":20}'],
    ]);
  });

  test("accepts the provider id of a completed call as another call", () => {
    const [first = [], second = []] = tableOf("The provider id of a completed call");
    expect([first[0], second[0]]).toEqual(["call_0", "call_0"]);
    expect(first[1]).not.toBe(second[1]);
  });

  test("finds the same ids after a kill, and the run still active", () => {
    const rows = tableOf("The server is killed");
    expect(rows.map(([tool, , , state]) => [tool, state])).toEqual([
      ["read_file", "COMPLETED"],
      ["search", "STARTED"],
      ["remove_file", "BLOCKED"],
      ["read_file", "ACCEPTED"],
      ["send_mail", "AWAITING_ANSWER"],
    ]);
    for (const [, before, after] of rows) expect(after).toBe(before);
    const [, runId = "none"] = /^ {2}run +(run_\w+)$/m.exec(result.stdout) ?? [];
    expect(result.stdout).toContain(`The active run is still ${runId}.`);
  });

  test("takes one answer to an ask, after the restart, and uses it up", () => {
    const [[tool, state, askId, args] = []] = tableOf("A person is asked");
    expect([tool, state, args]).toEqual(["send_mail", "AWAITING_ANSWER", '{"to":"Ada"}']);
    expect(askId).toMatch(/^ask_\w+$/);
    const [allowed = [], denied = []] = tableOf("The person answers");
    expect(allowed).toEqual(["ALLOW_ONCE", "taken", expect.stringMatching(/^rcp_\w+$/), "SPENT"]);
    expect(denied).toEqual(["DENY", "ASK_NOT_OPEN", allowed[2]]);
  });

  test("ends each call with its run, and keeps a late result as evidence", () => {
    expect(tableOf("The run ends").map((row) => row.slice(0, 3))).toEqual([
      ["search", "INTERRUPTED", "YES"],
      ["read_file", "CANCELLED", "NO"],
    ]);
    expect(tableOf("A result comes late")).toEqual([
      ["state", "INTERRUPTED"],
      ["result", expect.stringContaining("was interrupted")],
      ["late result", "2 open invoices"],
    ]);
  });

  test("tells at the end what became of every call", () => {
    const rows = tableOf("What the record says at the end");
    expect(rows.map(([tool, , , state, ran]) => [tool, state, ran])).toEqual([
      ["read_file", "COMPLETED", "YES"],
      ["search", "INTERRUPTED", "YES"],
      ["remove_file", "BLOCKED", "NO"],
      ["read_file", "CANCELLED", "NO"],
      ["send_mail", "COMPLETED", "YES"],
    ]);
  });
});

describe("the demo's page", () => {
  const shown = (isTerminal: boolean) => {
    let text = "";
    const page = new Page((more) => (text += more), isTerminal);
    page.chapter("One");
    page.table(["a", "b"], [["long", "x"]]);
    page.say("word ".repeat(40).trim());
    return text;
  };

  test("aligns columns and breaks long lines", () => {
    const [, heading, , names, row, , ...paragraph] = shown(false).split("\n");
    expect([heading, names, row]).toEqual(["1. One", "  a     b", "  long  x"]);
    expect(paragraph.filter((line) => line !== "").length).toBeGreaterThan(1);
  });

  test("uses bold on a terminal only", () => {
    expect(shown(true)).toContain("\u001b[1m1. One\u001b[22m");
    expect(shown(false)).not.toContain("\u001b");
  });
});
