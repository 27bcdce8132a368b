import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { editorOf } from "../support/acp-editor.js";
import { acceptCall, openRun } from "../support/conversation.js";
import { startServerProcess, type ServerProcess } from "../support/server-process.js";
import { clientsOf, transportOf } from "../support/service.js";
import { ROOT } from "../support/source-tree.js";
import { toolmark } from "../support/toolmark-command.js";

let folder = "";
let server: ServerProcess;
let page = "";
let lines: readonly string[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "acp-docs-"));
  server = await startServerProcess(folder, `sqlite:${join(folder, "toolmark.db")}`);
  page = await readFile(join(ROOT, "docs/acp.md"), "utf8");
  const blocks = [...page.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, text = ""]) => text);
  lines = blocks.join("").trim().split("\n");
});

afterAll(async () => {
  await server.stop("SIGTERM");
  await rm(folder, { recursive: true });
});

describe("docs/acp.md", () => {
  test("has two commands, and installs the version that the package asks for", async () => {
    const manifest = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as {
      peerDependencies: Record<string, string>;
    };
    const [[name, version] = []] = Object.entries(manifest.peerDependencies);
    expect(lines).toEqual([
      `npm install ${name}@${version}`,
      'node dist/bin/toolmark.js acp "$session"',
    ]);
  });

  test("shows a session by a command that works as it stands", async () => {
    const wire = transportOf("grpc", server.grpcAddress, server.httpAddress);
    const run = await openRun(clientsOf(wire));
    const { toolCallId } = await acceptCall(clientsOf(wire), run);
    const command = `exec ${lines[1]} --to http://${server.grpcAddress}`;
    const env = { ...process.env, session: run.sessionId };
    const child = spawn("sh", ["-euc", command], { cwd: ROOT, env, stdio: "pipe" });
    const { editor, hangUp } = editorOf(child);
    await editor.initialize();
    await editor.load(run.sessionId);
    expect(editor.shownCard(toolCallId).status).toBe("pending");
    expect((await hangUp()).code).toBe(0);
  });

  test("names the server that is taken without --to", async () => {
    const [, url = "none"] = /without it, `([^`]+)`/.exec(page.replaceAll("\n", " ")) ?? [];
    const { stdout } = await toolmark("acp", "--help");
    expect(stdout).toContain(url);
  });
});
