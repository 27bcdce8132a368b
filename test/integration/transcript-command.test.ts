import { fromJsonString, toJsonString } from "@bufbuild/protobuf";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import {
  TranscriptEntrySchema,
  type TranscriptEntry,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { UsageError } from "../../src/cli/command-line.js";
import { transcriptCommand } from "../../src/cli/transcript.js";
import { EXIT_CODE } from "../../src/server/exit-code.js";
import { answer, askAbout } from "../support/asking.js";
import { acceptCall, openRun, recordMessage, type OpenRun } from "../support/conversation.js";
import { startTestService, type TestService } from "../support/service.js";
import { allEntries } from "../support/transcript-account.js";

let service: TestService;
let run: OpenRun;

beforeAll(async () => {
  service = await startTestService();
  const clients = service.clients();
  run = await openRun(clients);
  await recordMessage(clients, run);
  await answer(clients, await askAbout(clients, run), Verdict.DENY);
  for (let count = 0; count < 60; count += 1) await acceptCall(clients, run);
});

afterAll(() => service.stop());
afterEach(() => {
  vi.restoreAllMocks();
});

/** Runs the command in this process. What it printed. */
async function printed(...args: readonly string[]): Promise<string> {
  const said: string[] = [];
  const write = vi.spyOn(process.stdout, "write").mockImplementation((text, ...rest) => {
    said.push(String(text));
    for (const done of rest) if (typeof done === "function") done();
    return true;
  });
  try {
    expect(await transcriptCommand(args)).toBe(EXIT_CODE.ok);
  } finally {
    write.mockRestore();
  }
  return said.join("");
}

function toldEntries(): Promise<TranscriptEntry[]> {
  const { history } = service.clients();
  const { sessionId } = run;
  return allEntries((pageToken) => history.getTranscript({ sessionId, pageToken }));
}

describe.each(["grpcAddress", "httpAddress"] as const)("toolmark transcript, by %s", (port) => {
  test("prints every entry for people", async () => {
    const text = await printed(run.sessionId, "--to", service[port]);
    expect(text).toContain("User");
    expect(text).toContain("  hello\n");
    expect(text).toContain("  Asked and answered: May bash run with these arguments?\n");
    expect(text).toContain("  Denied by ");
    expect(text).toContain("  Denied. It did not run.\n");
    expect(text.split("\n\n").length).toBe((await toldEntries()).length + 1);
  });

  test("prints one document a line with --json, wherever the flag stands", async () => {
    const text = await printed("--json", "--to", `http://${service[port]}`, run.sessionId);
    const lines = text.trimEnd().split("\n");
    const entries = lines.map((line) => fromJsonString(TranscriptEntrySchema, line));
    const told = await toldEntries();
    expect(entries.map((entry) => toJsonString(TranscriptEntrySchema, entry))).toEqual(
      told.map((entry) => toJsonString(TranscriptEntrySchema, entry)),
    );
    expect(lines.length).toBeGreaterThan(60);
  });
});

describe("toolmark transcript refuses", () => {
  test.each([
    ["no session", [], "the session is missing"],
    ["two sessions", ["a", "b"], "one session at a time"],
    ["an address that is none", ["a", "--to", "http://a/b"], "is not http://host:port"],
    ["a server that is not there", ["a", "--to", "127.0.0.1:1"], "no server answers"],
  ])("%s", async (_, args, message) => {
    const refusal = transcriptCommand(args);
    await expect(refusal).rejects.toThrow(UsageError);
    await expect(transcriptCommand(args)).rejects.toThrow(message);
  });

  test("a session that is not there", async () => {
    const refusal = transcriptCommand(["ses_none", "--to", service.grpcAddress]);
    await expect(refusal).rejects.toThrow("ses_none: SESSION_NOT_FOUND: there is no such session");
  });

  test("nothing when it is asked for help", async () => {
    expect(await printed("--help")).toContain("Usage: toolmark transcript SESSION [flags]");
  });
});
