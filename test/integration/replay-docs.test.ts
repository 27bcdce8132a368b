import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import { RunOutcome } from "../../gen/toolmark/v1/run_pb.js";
import { Ran, ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { toldResult } from "../../src/domain/synthetic-text.js";
import { INVALID_ARGUMENTS } from "../../src/provider/valid-arguments.js";
import { wireOf } from "../../src/provider/wires.js";
import { BUF } from "../support/any-clients.js";
import { bytes, endRun, given, of, openRun } from "../support/conversation.js";
import { acceptResponse, project, RESPONSE } from "../support/replaying.js";
import { runProcess } from "../support/run-process.js";
import { startServerProcess, type ServerProcess } from "../support/server-process.js";
import { clientsOf, transportOf } from "../support/service.js";
import { ROOT } from "../support/source-tree.js";

const PROCESS_TIMEOUT_MS = 60_000;

let folder = "";
let server: ServerProcess;
let page = "";

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "replay-docs-"));
  server = await startServerProcess(folder, `sqlite:${join(folder, "toolmark.db")}`);
  page = await readFile(join(ROOT, "docs/replay.md"), "utf8");
  // Starting npx takes longer than what it runs.
  await writeFile(join(folder, "npx"), `#!/bin/sh\nshift\nexec "${BUF}" "$@"\n`, { mode: 0o755 });
});

afterAll(async () => {
  await server.stop("SIGTERM");
  await rm(folder, { recursive: true });
});

function blocks(language: string): string[] {
  const fenced = [...page.matchAll(/^```(\w+)\n(.*?)^```$/gms)];
  return fenced.flatMap(([, found, text = ""]) => (found === language ? [text] : []));
}

/** The cells of every row whose first cell is a name in code. */
function rows(): ReadonlyMap<string, readonly string[]> {
  const lines = page.matchAll(/^\| `([^`]+)` +\| (.*) \|$/gm);
  return new Map(
    [...lines].map(([, name = "", rest = ""]) => [
      name,
      rest.split("|").map((cell) => cell.trim()),
    ]),
  );
}

/** The states of a call that can be without a result of its own. */
const TOLD = enumValues(ToolCallState).filter(
  ([, state]) => state !== ToolCallState.UNSPECIFIED && state !== ToolCallState.COMPLETED,
);

function enumValues<Value>(
  names: Readonly<Record<string, Value | string>>,
): (readonly [string, Value])[] {
  return Object.entries(names).flatMap(([name, value]) =>
    typeof value === "string" ? [] : [[name, value] as const],
  );
}

describe("docs/replay.md", () => {
  test(
    "shows a turn that comes and goes, by lines that work as they stand, also twice",
    async () => {
      const [script = ""] = blocks("sh");
      const text = script.replaceAll("127.0.0.1:7070", server.grpcAddress);
      const env = { ...process.env, PATH: `${folder}:${process.env["PATH"] ?? ""}` };
      const run = () => runProcess("sh", ["-eu", "-c", text], { cwd: ROOT, env });
      const first = await run();
      expect(first).toMatchObject({ code: 0, stderr: "" });
      expect(first.stdout).toBe(blocks("text").join(""));
      expect(await run()).toEqual(first);
    },
    PROCESS_TIMEOUT_MS,
  );

  test.each(TOLD)("tells what the model is told of a call that is %s", (name, state) => {
    const [text, unproven = text] = rows().get(name) ?? [];
    const textOf = (ran: Ran): string | undefined => {
      const told = toldResult({ state, ran });
      return "text" in told ? told.text : undefined;
    };
    expect(textOf(Ran.NO)).toBe(text);
    expect(textOf(Ran.UNKNOWN)).toBe(unproven);
  });

  test("says of the open states that they are no error, and of the ends that they are", () => {
    const [, open = "", ended = ""] = page.split(/^\| state +\|.*$/m);
    for (const [name, state] of TOLD) {
      const told = toldResult({ state, ran: Ran.NO });
      const isError = "isError" in told && told.isError;
      expect(isError ? ended : open).toContain(`| \`${name}\` `);
    }
  });

  test("names every wire and the media type of its own JSON", () => {
    const known = rows();
    for (const [name, wire] of enumValues(ProviderWire)) {
      if (wire === ProviderWire.UNSPECIFIED) continue;
      expect(known.has(name)).toBe(true);
      expect(known.has(wireOf(wire).nativeMediaType)).toBe(true);
    }
  });

  test("names the member that holds arguments which are none", () => {
    expect(page).toContain(`{"${INVALID_ARGUMENTS}":"…"}`);
  });

  test("is right that what ReconcileToolCall finds out changes nothing", async () => {
    const wire = transportOf("connect-json", server.grpcAddress, server.httpAddress);
    const clients = clientsOf(wire);
    const run = await openRun(clients);
    const { ANTHROPIC_MESSAGES } = ProviderWire;
    const response = RESPONSE[ANTHROPIC_MESSAGES]("Looking.", {});
    const { toolCalls } = await acceptResponse(clients, run, ANTHROPIC_MESSAGES, response);
    await endRun(clients, run, { outcome: RunOutcome.COMPLETED });
    const before = await project(clients, run.sessionId, ANTHROPIC_MESSAGES);
    expect(before.items).toContain("It is not known whether the call ran.");
    const { toolCallId } = given(toolCalls[0], "call");
    const found = { end: ToolCallState.COMPLETED, content: { data: bytes("found") } };
    await clients.calls.reconcileToolCall({ ...of(run), command: { toolCallId, ...found } });
    expect(await project(clients, run.sessionId, ANTHROPIC_MESSAGES)).toEqual(before);
  });
});
