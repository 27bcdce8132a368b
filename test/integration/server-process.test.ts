import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { connect as connectTcp, type Socket } from "node:net";
import { access, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { runProcess } from "../support/run-process.js";
import { ROOT } from "../support/source-tree.js";

const MAIN = join(ROOT, "dist/bin/server.js");
const CLI = join(ROOT, "dist/bin/toolmark.js");
const FREE_PORTS = ["--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"];

let folder = "";
let children: ChildProcess[] = [];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "server-process-"));
  children = [];
});

afterEach(async () => {
  for (const child of children) child.kill("SIGKILL");
  await rm(folder, { recursive: true });
});

interface Ready {
  readonly grpcAddress: string;
  readonly httpAddress: string;
}

/** Starts the server and waits until its ready file says that it listens. */
async function startProcess(...flags: string[]) {
  const readyFile = join(folder, "ready.json");
  const args = [MAIN, ...FREE_PORTS, "--store", "memory:", "--ready-file", readyFile, ...flags];
  const child = spawn(process.execPath, args, { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
  children.push(child);
  const output = Promise.all([text(child.stdout), text(child.stderr)]);
  const exited = once(child, "exit").then(([code]) => code as number | null);
  let ready: Ready | undefined;
  const look = async (): Promise<void> => {
    const content = await readFile(readyFile, "utf8").catch(() => undefined);
    if (content !== undefined) ready = JSON.parse(content) as Ready;
  };
  while (ready === undefined && child.exitCode === null) {
    await delay(5);
    await look();
  }
  if (ready === undefined) throw new Error((await output).join("\n"));
  return { child, ready, exited, output, readyFile };
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

describe("the server process", () => {
  test("writes the ready file once both listeners accept, and exits 0", async () => {
    const { child, ready, exited, output, readyFile } = await startProcess();
    const reply = await fetch(`http://${ready.httpAddress}/healthz`);
    expect(reply.status).toBe(200);
    child.kill("SIGTERM");
    expect(await exited).toBe(0);
    const [stdout] = await output;
    expect(stdout).toContain(`gRPC on ${ready.grpcAddress}, HTTP on ${ready.httpAddress}`);
    expect(await exists(readyFile)).toBe(false);
  });

  test("drains at SIGINT as at SIGTERM", async () => {
    const { child, exited } = await startProcess();
    child.kill("SIGINT");
    expect(await exited).toBe(0);
  });

  test("exits at once at a second signal", async () => {
    const { child, ready, exited } = await startProcess();
    const hanging = await hangingRequest(ready);
    child.kill("SIGTERM");
    await once(child.stderr, "data");
    child.kill("SIGINT");
    expect(await exited).toBe(130);
    hanging.destroy();
  });

  test.each([
    ["an unknown flag", ["--no-such-flag"], {}, "--no-such-flag"],
    ["a bad value", ["--log-level", "loud"], {}, "--log-level"],
    ["an unknown variable", [], { TOOLMARK_GRPC_ADRESS: "x" }, "TOOLMARK_GRPC_ADRESS"],
    [
      "limits that contradict each other",
      ["--limit-outgoing-message-bytes", "4096"],
      {},
      "--limit-outgoing-message-bytes",
    ],
    ["an address that others reach", ["--http-address", "0.0.0.0:0"], {}, "0.0.0.0:0"],
  ])("exits 2 for %s and names it", async (_what, flags, variables, named) => {
    const env = { ...process.env, ...variables };
    const { code, stderr } = await runProcess(process.execPath, [MAIN, ...flags], { env });
    expect(code).toBe(2);
    expect(stderr).toContain(named);
  });

  test("exits 69 for an address that is taken", async () => {
    const { ready } = await startProcess();
    const flags = [...FREE_PORTS, "--store", "memory:", "--grpc-address", ready.grpcAddress];
    const { code, stderr } = await runProcess(process.execPath, [MAIN, ...flags]);
    expect(code).toBe(69);
    expect(stderr).toContain(ready.grpcAddress);
  });
});

describe("the command", () => {
  const run = (...args: string[]) => runProcess(process.execPath, [CLI, ...args]);

  test("prints the version of its package", async () => {
    const manifest = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as {
      version: string;
    };
    expect(await run("version")).toMatchObject({ code: 0, stdout: `${manifest.version}\n` });
  });

  test("prints every setting of serve", async () => {
    const { code, stdout } = await run("serve", "--help");
    expect(code).toBe(0);
    expect(stdout).toContain("--grpc-address");
    expect(stdout).toContain("TOOLMARK_LIMIT_PAGE_SIZE");
  });

  test.each([[[]], [["no-such-command"]]])("explains itself and exits 2 for %j", async (args) => {
    const { code, stderr } = await run(...args);
    expect(code).toBe(2);
    expect(stderr).toContain("toolmark <command>");
  });
});

/**
 * A request whose body never comes: it keeps its connection, and with it the server, for the grace
 * time.
 */
async function hangingRequest({ httpAddress }: Ready): Promise<Socket> {
  const [host, port] = httpAddress.split(":");
  const socket = connectTcp(Number(port), host);
  const path = "/toolmark.v1.InfoService/GetServerInfo";
  socket.write(`POST ${path} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n`);
  socket.write("content-type: application/json\r\ncontent-length: 2\r\n\r\n");
  await once(socket, "data");
  return socket;
}
