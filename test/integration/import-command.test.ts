import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Code } from "@connectrpc/connect";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { LegacySourceFormat } from "../../gen/toolmark/v1/legacy_pb.js";
import { importCommand } from "../../src/cli/import.js";
import { ProgressBar } from "../../src/cli/progress-bar.js";
import { stemsOf } from "../../src/legacy/file-names.js";
import { EXIT_CODE } from "../../src/server/exit-code.js";
import { openServerLink } from "../../src/server/server-link.js";
import { importSessions, type ImportReport } from "../../src/server/import-sessions.js";
import { openLegacyPaths } from "../../src/server/legacy-paths.js";
import {
  refusedAs,
  startFakeImportServer,
  type FakeImportOptions,
  type FakeImportServer,
} from "../support/fake-import-server.js";
import { startTestService } from "../support/service.js";
import { ROOT } from "../support/source-tree.js";
import { toolmark } from "../support/toolmark-command.js";

const MIB = 1024 * 1024;
const { SNAPSHOT, EVENT_LOG } = LegacySourceFormat;

let folder: string;
const servers: FakeImportServer[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "toolmark-import-"));
});

afterEach(async () => {
  vi.restoreAllMocks();
  await Promise.all(servers.splice(0).map((server) => server.close()));
  rmSync(folder, { recursive: true, force: true });
});

async function serve(options: FakeImportOptions = {}): Promise<FakeImportServer> {
  const server = await startFakeImportServer(options);
  servers.push(server);
  return server;
}

const inFolder = (name: string): string => join(folder, name);

function write(name: string, text: string): string {
  writeFileSync(inFolder(name), text);
  return inFolder(name);
}

/** A snapshot of about this size. */
function writeSnapshot(id: string, sizeBytes = 0, stem = id): string {
  const text = `${id} `.repeat(Math.ceil(sizeBytes / (id.length + 1)));
  const messages = [{ role: "user", text }];
  return write(`${stem}.session.json`, JSON.stringify({ id, messages }));
}

interface Said {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the command in this process. */
async function run(...args: readonly string[]): Promise<Said> {
  const stdout: string[] = [];
  const stderr: string[] = [];
  const into = (lines: string[]) => (text: unknown) => {
    lines.push(String(text));
    return true;
  };
  const spies = [
    vi.spyOn(process.stdout, "write").mockImplementation(into(stdout)),
    vi.spyOn(process.stderr, "write").mockImplementation(into(stderr)),
  ];
  try {
    const code = await importCommand(args);
    return { code, stdout: stdout.join(""), stderr: stderr.join("") };
  } finally {
    for (const spy of spies) spy.mockRestore();
  }
}

async function runJson(...args: readonly string[]): Promise<ImportReport> {
  return JSON.parse((await run(...args, "--json")).stdout) as ImportReport;
}

function sent(server: FakeImportServer, id: string, format: LegacySourceFormat): string {
  return server.sessions.get(id)?.get(format)?.toString() ?? "nothing";
}

describe("toolmark import", () => {
  test("brings the sessions of a folder and tells what became of them", async () => {
    mkdirSync(inFolder("sid-v1"));
    const [stem = ""] = stemsOf("a/b");
    writeSnapshot("a/b", 0, `sid-v1/${stem}`);
    write(`sid-v1/${stem}.events.jsonl`, "{}\n");
    write(`sid-v1/${stem}.tools.jsonl`, "not read");
    writeSnapshot("s-2");
    write("s-3.events.jsonl", "");
    const server = await serve();
    const { code, stdout, stderr } = await run(folder, "--to", server.url, "--owner", "anna");
    expect({ code, stderr }).toEqual({ code: EXIT_CODE.ok, stderr: "" });
    expect(stdout.replace(/in [\d.]+ s/, "in 0.0 s")).toBe(
      [
        "Imported 3 of 3 sessions in 0.0 s",
        "  imported    3",
        "  unchanged   0",
        "  refused     0",
        "9 messages and 3,000 tool calls; 2,700 of the calls were joined with their result, 6 can go on",
        "3 asks can be answered, 0 authorizations pending",
        "0 hook records: 0 joined with a call, 0 standalone",
        "0 other pieces of evidence: 0 joined with a call, 0 standalone",
        "",
      ].join("\n"),
    );
    expect([...server.sessions.keys()].sort()).toEqual(["a/b", "s-2", "s-3"]);
    const file = (name: string): string => readFileSync(inFolder(name), "utf8");
    expect(sent(server, "a/b", SNAPSHOT)).toBe(file(`sid-v1/${stem}.session.json`));
    expect(sent(server, "a/b", EVENT_LOG)).toBe("{}\n");
    expect(sent(server, "s-3", EVENT_LOG)).toBe("");
    // One request each, with the owner.
    expect(server.requests.map(({ ownerSubject }) => ownerSubject)).toEqual(Array(3).fill("anna"));
  });

  test("is the same request when it is run again, and another for other bytes or owner", async () => {
    writeSnapshot("s-1");
    const server = await serve();
    await run(inFolder("s-1.session.json"), "--to", server.url);
    expect(await runJson(folder, `--to=${server.url}`)).toMatchObject({
      imported: 0,
      unchanged: 1,
    });
    await run(folder, "--to", server.url, "--owner", "anna");
    writeSnapshot("s-1", 1);
    await run(folder, "--to", server.url);
    const [first, again, owned, changed] = server.requests.map(({ requestId }) => requestId);
    expect(first).toMatch(/^import-[0-9a-f]{64}$/);
    expect(again).toBe(first);
    expect(new Set([first, owned, changed]).size).toBe(3);
  });

  test("sends large sources in parts of 1 MiB, several sessions at a time", async () => {
    for (const id of ["a", "b", "c", "d"]) writeSnapshot(id, 2.5 * MIB);
    write("a.events.jsonl", "x".repeat(1.7 * MIB));
    const server = await serve({ onRequest: () => delay(5) });
    const report = await runJson(folder, "--to", server.url, "--concurrency", "3");
    expect(report).toMatchObject({ imported: 4, refused: [] });
    const sizes = server.requests.map(({ parts }) => {
      return parts.reduce((sum, { data }) => sum + data.length, 0);
    });
    expect(Math.max(...sizes)).toBe(MIB);
    expect(sent(server, "a", SNAPSHOT)).toBe(readFileSync(inFolder("a.session.json"), "utf8"));
    expect(sent(server, "a", EVENT_LOG)).toBe("x".repeat(1.7 * MIB));
    expect(server.busiest).toBe(3);
    // A question and five parts for the one, a question and three parts for each of the others.
    expect(server.requests).toHaveLength(6 + 3 * 4);
  });

  test("sends no more at once than the server takes", async () => {
    writeSnapshot("a", 200_000);
    const server = await serve({ messageBytes: 80_000 });
    expect(await runJson(folder, "--to", server.url)).toMatchObject({ imported: 1 });
    const sizes = server.requests.flatMap(({ parts }) => parts.map(({ data }) => data.length));
    expect(Math.max(...sizes)).toBeLessThan(80_000);
  });

  test("goes on where it was after a connection that broke", async () => {
    writeSnapshot("a", 3.5 * MIB);
    let broken = 0;
    const server = await serve({
      onRequest: (request, { breakConnections }) => {
        if (request.parts.length === 0 || broken === 2) return;
        broken += 1;
        breakConnections();
      },
    });
    expect(await runJson(folder, "--to", server.url)).toMatchObject({ imported: 1, refused: [] });
    const offsets = server.requests.map(({ parts: [part] }) => Number(part?.offsetBytes ?? -1));
    expect(offsets).toEqual([-1, 0, -1, MIB, -1, 2 * MIB, 3 * MIB]);
  });

  test("works over the HTTP port as well", async () => {
    writeSnapshot("a", 1.5 * MIB);
    const server = await serve({ wire: "connect" });
    const report = await runJson(folder, "--to", server.url.replace("http://", ""));
    expect(report).toMatchObject({ imported: 1 });
  });

  test("tries again what may pass", async () => {
    writeSnapshot("a");
    writeSnapshot("b", 1.5 * MIB);
    const failures = new Map<string, number>();
    const server = await serve({
      onRequest: ({ sessionId, parts }) => {
        const count = failures.get(sessionId) ?? 0;
        if (parts.length === 0 || count === 2) return;
        failures.set(sessionId, count + 1);
        throw refusedAs(Code.Unavailable, "STORE_BUSY");
      },
    });
    expect(await runJson(folder, "--to", server.url)).toMatchObject({ imported: 2, refused: [] });
    expect([...failures.values()]).toEqual([2, 2]);
  });
});

describe("a session that cannot be imported keeps no other back", () => {
  test("and is told with file, reason, path and position", async () => {
    for (const id of ["a", "c", "e", "g"]) writeSnapshot(id);
    write("b.session.json", '{"id":"b","messages":[{"role":7}]}');
    write("e.events.jsonl", "{}\n{\n");
    writeSnapshot("a", 5, "f");
    write(`${stemsOf("x/y")[0] ?? ""}.events.jsonl`, "");
    const server = await serve({
      onRequest: ({ sessionId }) => {
        if (sessionId === "c") throw refusedAs(Code.FailedPrecondition, "SESSION_DIVERGED");
        const metadata = { format: "event_log", path: "line 2: $", offset: "4" };
        if (sessionId === "e") throw refusedAs(Code.InvalidArgument, "SOURCE_MALFORMED", metadata);
      },
    });
    const { code, stdout } = await run(folder, "--to", server.url);
    expect(code).toBe(EXIT_CODE.importIncomplete);
    const lines = stdout.trimEnd().split("\n");
    expect(lines.slice(0, 4).map((line) => line.replace(/ in .*/, ""))).toEqual([
      "Imported 2 of 7 sessions",
      "  imported    2",
      "  unchanged   0",
      "  refused     5",
    ]);
    expect(lines.slice(-5).map((line) => line.replace(`${folder}/`, ""))).toEqual([
      "b.session.json: SOURCE_MALFORMED: must be a string (at $.messages[0].role, byte 30)",
      "c.session.json: SESSION_DIVERGED: because of SESSION_DIVERGED",
      "e.events.jsonl: SOURCE_MALFORMED: because of SOURCE_MALFORMED (at line 2: $, byte 4)",
      `f.session.json: SESSION_ID_TAKEN: ${inFolder("a.session.json")} has the same session id`,
      expect.stringMatching(/^sid-v1-x_y-.*: SESSION_ID_UNKNOWN: .*--session$/),
    ]);
    expect([...server.sessions.keys()].sort()).toEqual(["a", "g"]);
  });

  test("and is told in the same words as JSON", async () => {
    writeSnapshot("a");
    const file = write("b.session.json", '{"id":"b","messages":[{"role":7}]}');
    const server = await serve();
    const report = await runJson(folder, "--to", server.url);
    expect(report).toMatchObject({ isDryRun: false, sessions: 2, imported: 1, unfinished: 0 });
    expect(report.summary).toMatchObject({ toolCalls: 1000, joinedResults: 900, messages: 3 });
    const where = { path: "$.messages[0].role", offsetBytes: 30 };
    expect(report.refused).toEqual([
      { file, reason: "SOURCE_MALFORMED", message: "must be a string", ...where },
    ]);
  });
});

describe("what is wrong with the server ends the import", () => {
  async function imported(server: FakeImportServer): Promise<ImportReport> {
    const link = await openServerLink(server.url);
    try {
      return await importSessions({
        directories: await openLegacyPaths([folder]),
        ...{ link, owner: "", concurrency: 1, sessionId: undefined },
        signal: new AbortController().signal,
        patience: { attempts: 3, firstWaitMs: 1 },
      });
    } finally {
      link.close();
    }
  }

  test("when it is lost", async () => {
    for (const id of ["a", "b", "c"]) writeSnapshot(id);
    const server = await serve({
      onRequest: ({ sessionId }, { breakConnections }) => {
        if (sessionId !== "a") breakConnections();
      },
    });
    const report = await imported(server);
    expect(report).toMatchObject({ imported: 1, refused: [], unfinished: 2 });
    expect(report.stopped).toMatch(/^[A-Z_]+: ./);
    expect(server.requests).toHaveLength(1 + 3);
  });

  test.each([
    [Code.Unimplemented, "UNIMPLEMENTED"],
    [Code.PermissionDenied, "ROLE_MISSING"],
    [Code.ResourceExhausted, "STORE_FULL"],
  ])("when it answers all alike (%s, %s)", async (code, reason) => {
    for (const id of ["a", "b"]) writeSnapshot(id);
    const server = await serve({
      onRequest: () => {
        throw refusedAs(code, reason);
      },
    });
    const { code: exitCode, stdout } = await run(folder, "--to", server.url, "--concurrency", "1");
    expect(exitCode).toBe(EXIT_CODE.importIncomplete);
    expect(server.requests).toHaveLength(1);
    const stopped = `Stopped with 2 sessions not done: ${reason}: because of ${reason}.`;
    expect(stdout).toContain(`  not done    2\n${stopped} The same command goes on from here.\n`);
  });

  test("but not when it keeps nothing of one session", async () => {
    writeSnapshot("a", 1.5 * MIB);
    writeSnapshot("b");
    const server = await serve({ forgets: (sessionId) => sessionId === "a" });
    const report = await imported(server);
    expect(report).toMatchObject({ imported: 1, unfinished: 0 });
    expect(report.refused).toMatchObject([{ sessionId: "a", reason: "NOTHING_KEPT" }]);
  });
});

describe("with the real server", () => {
  test.each(["grpcAddress", "httpAddress"] as const)("imports over its %s", async (port) => {
    writeSnapshot("small");
    writeSnapshot("large", 2.5 * MIB);
    write("log.events.jsonl", '{"Type":"session.init","Seq":1}\n');
    writeSnapshot("bad");
    write("bad.events.jsonl", '{"Type":"session.init","Seq":1}\n{\n');
    const service = await startTestService();
    try {
      const address = service[port];
      const report = await runJson(folder, "--to", address, "--owner", "anna");
      expect(report).toMatchObject({ sessions: 4, imported: 3, unchanged: 0, unfinished: 0 });
      const where = { path: "line 2: $", offsetBytes: 33 };
      expect(report.refused).toMatchObject([
        { file: inFolder("bad.events.jsonl"), sessionId: "bad", reason: "SOURCE_MALFORMED" },
      ]);
      expect(report.refused).toMatchObject([where]);
      expect(report.refused[0]?.message).not.toContain("line 2");
      // The owner is of the first import, and another makes another request.
      const again = await runJson(folder, "--to", address);
      expect(again).toMatchObject({ imported: 0, unchanged: 3, unfinished: 0 });
      // The same request gets the same answer.
      const retried = await runJson(folder, "--to", address, "--owner", "anna");
      expect(retried).toMatchObject({ imported: 3, unchanged: 0, summary: report.summary });
    } finally {
      await service.stop();
    }
  });
});

describe("a dry run", () => {
  test("reads all files, logs too, and needs no server", async () => {
    writeSnapshot("a");
    write("b.events.jsonl", "{}\n{\n");
    write("c.session.json", "{");
    const { code, stdout } = await run("--dry-run", folder);
    expect(code).toBe(EXIT_CODE.importIncomplete);
    expect(stdout.replace(/ in [\d.]+ s/, "").replaceAll(`${folder}/`, "")).toMatch(
      new RegExp(
        "^Read 1 of 3 sessions\\n {2}readable {4}1\\n {2}refused {5}2\\nNothing was sent\\.\\n" +
          "b\\.events\\.jsonl: SOURCE_MALFORMED: .* \\(at line 1: \\$.*, byte \\d+\\)\\n" +
          "c\\.session\\.json: SOURCE_MALFORMED: .* \\(at \\$, byte 1\\)\\n$",
      ),
    );
  });
});

describe("a log alone", () => {
  test("gets the id that is given", async () => {
    const file = write(`${stemsOf("x/y")[0] ?? ""}.events.jsonl`, "");
    const server = await serve();
    expect(await runJson(file, "--session", "x/y", "--to", server.url)).toMatchObject({
      imported: 1,
    });
    expect([...server.sessions.keys()]).toEqual(["x/y"]);
  });
});

describe("progress", () => {
  test("fits into the terminal, and tells the rate of the last seconds", () => {
    let ms = 0;
    const bar = new ProgressBar(() => ms);
    ms = 10_000;
    expect(bar.text(5000, 10_000, 54)).toBe(
      "[###########............] 5,000 of 10,000  50%  500/s",
    );
    ms = 14_000;
    const text = "6,120 of 10,000  61%  280/s";
    expect(bar.text(6120, 10_000, 20)).toBe(text.slice(0, 19));
    // A terminal of unknown width.
    expect(bar.text(6120, 10_000, 0)).toMatch(/^\[#{24}\.{16}\] 6,120 of 10,000 {2}61% {2}280\/s$/);
    expect(bar.text(0, 0)).toMatch(/^\[#{40}\] 0 of 0 {2}100%/);
  });

  test("is a bar on a terminal, and gone at the end", async () => {
    for (let at = 0; at < 30; at += 1) writeSnapshot(`s-${at}`);
    const server = await serve();
    const before = Object.getOwnPropertyDescriptor(process.stderr, "isTTY");
    Object.defineProperty(process.stderr, "isTTY", { value: true, configurable: true });
    try {
      const { stderr } = await run(folder, "--to", server.url);
      expect(stderr).toMatch(/\[#*\.+\] \d+ of 30 {2}\d+% {2}[\d,]+\/s/);
      const last = stderr.split("\r\u001b[K").slice(-2);
      expect(last).toEqual([expect.stringMatching(/^\[#+\] 30 of 30 {2}100% {2}[\d,]+\/s$/), ""]);
    } finally {
      if (before === undefined) Reflect.deleteProperty(process.stderr, "isTTY");
      else Object.defineProperty(process.stderr, "isTTY", before);
    }
  });
});

describe("the command line", () => {
  test.each([
    [[], "a folder or files are missing"],
    [["DIR", "--bogus"], "Unknown option '--bogus'"],
    [["DIR", "--to", "ftp://x"], '--to: "ftp://x" is not http://host:port'],
    [["DIR", "--to", "http://127.0.0.1:1"], "http://127.0.0.1:1: no server answers"],
    [
      ["DIR", "--dry-run", "--concurrency", "65"],
      '--concurrency: "65" is not a number from 1 to 64',
    ],
    [["DIR", "--dry-run", "--session", "a"], "--session is for one log without a snapshot"],
    [["DIR/none", "--dry-run"], "there is no such file or folder"],
    [["DIR/empty", "--dry-run"], "there are no sessions in"],
  ])("%j is refused with what is wrong with it", async (args, text) => {
    writeSnapshot("a");
    mkdirSync(inFolder("empty"));
    const filled = args.map((arg) => arg.replace("DIR", folder));
    const { code, stdout, stderr } = await toolmark("import", ...filled);
    expect([code, stdout, stderr]).toEqual([2, "", expect.stringContaining(text)]);
  });

  test("ends the process with the exit code of the import", async () => {
    writeSnapshot("a");
    const server = await serve();
    const good = await toolmark("import", folder, "--to", server.url);
    expect([good.code, good.stderr]).toEqual([0, ""]);
    write("b.json", "{");
    const bad = await toolmark("import", folder, "--to", server.url);
    expect([bad.code, bad.stderr]).toEqual([EXIT_CODE.importIncomplete, ""]);
  });

  test("stops at a signal with what it has", async () => {
    for (const id of ["a", "b", "c", "d"]) writeSnapshot(id);
    const server = await serve({
      onRequest: async ({ sessionId }) => {
        if (sessionId === "a") return;
        // With two at a time it comes after the answer to the first.
        if (sessionId === "c") child.kill("SIGINT");
        await once(child, "close");
      },
    });
    const cli = join(ROOT, "dist/bin/toolmark.js");
    const child = spawn(
      process.execPath,
      [cli, "import", folder, "--to", server.url, "--concurrency", "2"],
      {
        stdio: ["ignore", "pipe", "inherit"],
      },
    );
    let stdout = "";
    child.stdout.on("data", (chunk: Buffer) => (stdout += chunk.toString()));
    const signal = await new Promise((resolve) => {
      child.on("close", (_code, by) => {
        resolve(by);
      });
    });
    expect(signal).toBe("SIGINT");
    expect(stdout).toMatch(/^Imported 1 of 4 sessions in/);
    expect(stdout).toContain("Stopped with 3 sessions not done: it was interrupted.");
  });
});
