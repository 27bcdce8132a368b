import { access, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { CallService } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { EvidenceService } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { RunService } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { ApprovalService } from "../../gen/toolmark/v1/approval_service_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { SessionService } from "../../gen/toolmark/v1/session_service_pb.js";
import { BUF } from "../support/any-clients.js";
import { runProcess } from "../support/run-process.js";
import { startServerProcess, type ServerProcess } from "../support/server-process.js";
import { clientsOf, transportOf } from "../support/service.js";
import { ROOT } from "../support/source-tree.js";

const SERVICES = [
  ...[CallService, EvidenceService, RunService],
  ...[ApprovalService, HistoryService, SessionService],
];
const FIRST_CALL_LINES_MAX = 10;
const PROCESS_TIMEOUT_MS = 60_000;

let folder = "";
let server: ServerProcess;
let readme = "";
let blocks: readonly { readonly language: string; readonly text: string }[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "readme-"));
  server = await startServerProcess(folder, `sqlite:${join(folder, "toolmark.db")}`);
  readme = await readFile(join(ROOT, "README.md"), "utf8");
  const fenced = [...readme.matchAll(/^```(\w+)\n(.*?)^```$/gms)];
  blocks = fenced.map(([, language = "", text = ""]) => ({ language, text }));
});

afterAll(async () => {
  await server.stop("SIGTERM");
  await rm(folder, { recursive: true });
});

/** The first block in a language that holds a text, with the addresses of this test's server. */
function block(language: string, holding: string): string {
  const found = blocks.find((one) => one.language === language && one.text.includes(holding));
  if (found === undefined) throw new Error(`no ${language} block of README.md holds ${holding}`);
  return found.text
    .replaceAll("127.0.0.1:7070", server.grpcAddress)
    .replaceAll("127.0.0.1:7071", server.httpAddress);
}

function linesOf(text: string): string[] {
  return text.split("\n").filter((line) => line.trim() !== "");
}

/** Variables under which `npx buf` is buf itself: starting npx takes longer than what it runs. */
async function withQuickNpx(): Promise<NodeJS.ProcessEnv> {
  const npx = join(folder, "npx");
  await writeFile(npx, `#!/bin/sh\nshift\nexec "${BUF}" "$@"\n`, { mode: 0o755 });
  return { ...process.env, PATH: `${folder}:${process.env["PATH"] ?? ""}` };
}

const TOOL_CALL_ID = /\btc_\w+/g;

async function recordedToolCallIds(): Promise<string[]> {
  const clients = clientsOf(transportOf("connect-json", server.grpcAddress, server.httpAddress));
  const { sessions } = await clients.sessions.listSessions({});
  const lists = await Promise.all(
    sessions.map(({ sessionId }) => clients.history.listToolCalls({ sessionId })),
  );
  return lists.flatMap(({ toolCalls }) => toolCalls.map(({ toolCallId }) => toolCallId));
}

describe("README.md", () => {
  test("sets everything up by two command lines whose scripts are there", async () => {
    const manifest = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as {
      scripts: Record<string, string>;
    };
    for (const script of ["start", "test"]) {
      expect(block("sh", `npm ci && npm ${script}`)).toBe(`npm ci && npm ${script}\n`);
      expect(manifest.scripts).toHaveProperty(script);
      expect(manifest.scripts[`pre${script}`]).toBe("npm run build");
    }
    // npm hands signals to the shell that it starts: the server takes that one's place.
    expect(manifest.scripts["start"]).toMatch(/^exec node /);
  });

  test(
    "shows a first call by buf curl that works as it stands, also twice",
    async () => {
      const script = block("sh", "buf curl");
      expect(linesOf(script).length).toBeLessThanOrEqual(FIRST_CALL_LINES_MAX);
      const run = (env?: NodeJS.ProcessEnv) =>
        runProcess(
          "sh",
          ["-eu", "-c", script],
          env === undefined ? { cwd: ROOT } : { cwd: ROOT, env },
        );
      const first = await run();
      expect(first).toMatchObject({ code: 0, stderr: "" });
      const ids = new Set(first.stdout.match(TOOL_CALL_ID));
      expect(await recordedToolCallIds()).toEqual(expect.arrayContaining([...ids]));
      expect(ids.size).toBe(1);
      expect(await run(await withQuickNpx())).toEqual(first);
    },
    PROCESS_TIMEOUT_MS,
  );

  test(
    "shows how a person is asked, by lines that work after those of the first call",
    async () => {
      const script = `${block("sh", "buf curl")}\n${block("sh", "AnswerAsk")}`;
      const env = await withQuickNpx();
      const result = await runProcess("sh", ["-eu", "-c", script], { cwd: ROOT, env });
      expect(result).toMatchObject({ code: 0, stderr: "" });
      expect(result.stdout).toMatch(/"receiptId": "rcp_\w+"/);
      expect(result.stdout).toContain('"verdict": "VERDICT_ALLOW_ONCE"');
      expect(result.stdout).toContain('"spendState": "SPEND_STATE_UNSPENT"');
    },
    PROCESS_TIMEOUT_MS,
  );

  test("shows a first call in TypeScript that works as it stands, also twice", async () => {
    const script = block("ts", "createClient");
    const own = linesOf(script).filter((line) => !line.startsWith("import "));
    expect(own.length).toBeLessThanOrEqual(FIRST_CALL_LINES_MAX);
    await inClone("first-call.mjs", script, async (path) => {
      const run = () => runProcess(process.execPath, [path]);
      const first = await run();
      expect(first).toMatchObject({ code: 0, stderr: "" });
      expect(first.stdout).toMatch(/^tc_\w+ read_file\n$/);
      expect(await recordedToolCallIds()).toContain(first.stdout.split(" ")[0]);
      expect(await run()).toEqual(first);
    });
  });

  test(
    "calls that TypeScript, and it is",
    async () => {
      const flags = ["--ignoreConfig", "--strict", "--module", "nodenext", "--target", "es2023"];
      const tsc = join(ROOT, "node_modules/typescript/bin/tsc");
      const script = block("ts", "createClient");
      const wrong = script.replace("{ requestId:", "{ request:");
      // One run for both: most of its time goes into what both import.
      await inClone("first-call.mts", script, async (path) => {
        await inClone("wrong-call.mts", wrong, async (wrongPath) => {
          const args = [tsc, ...flags, "--noEmit", "--skipLibCheck", path, wrongPath];
          const { stdout } = await runProcess(process.execPath, args);
          expect(stdout).toContain("'request' does not exist");
          expect(linesOf(stdout).filter((line) => !/wrong-call|^ /.test(line))).toEqual([]);
        });
      });
    },
    PROCESS_TIMEOUT_MS,
  );

  test("leads to a page that shows how to read a refusal, and it reads so", async () => {
    const page = await readFile(join(ROOT, "docs/asks.md"), "utf8");
    const [, script = ""] = /^```sh\n(.*?)^```$/ms.exec(page) ?? [];
    const text = script.replaceAll("127.0.0.1:7071", server.httpAddress);
    const { stdout } = await runProcess("sh", ["-eu", "-c", text], { cwd: ROOT });
    expect(stdout).toContain('"reason":"SESSION_NOT_FOUND"');
  });

  test("names exactly the methods that are not offered yet", async () => {
    const clients = clientsOf(transportOf("connect-json", server.grpcAddress, server.httpAddress));
    const offered = new Set((await clients.info.getServerInfo({})).methods);
    const missing = SERVICES.flatMap(({ typeName, methods }) =>
      methods.filter(({ name }) => !offered.has(`${typeName}.${name}`)).map(({ name }) => name),
    );
    const [, limits = ""] = readme.split("## Limits of today");
    const named = [...limits.matchAll(/`([A-Z][a-z]\w+)`/g)].map(([, name]) => name);
    expect(named.toSorted()).toEqual(missing.toSorted());
  });

  test("leads to files that are there", async () => {
    const targets = [...readme.matchAll(/\]\(([^)#]+)(#[^)]*)?\)/g)].map(([, path = ""]) => path);
    expect(targets.length).toBeGreaterThan(0);
    for (const path of targets) await access(join(ROOT, path));
  });
});

/** Writes a script as if it lay beside README.md, where its imports lead to packages and `dist`. */
async function inClone(
  name: string,
  script: string,
  use: (path: string) => Promise<void>,
): Promise<void> {
  const path = join(await mkdtemp(join(ROOT, "dist/readme-")), name);
  await writeFile(path, script.replaceAll('"./dist/', '"../'));
  try {
    await use(path);
  } finally {
    await rm(dirname(path), { recursive: true });
  }
}
