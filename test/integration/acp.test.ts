import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { AskKind, AskProvenance } from "../../gen/toolmark/v1/ask_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { DelegationKind, SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { openServerLink, type ServerLink } from "../../src/server/server-link.js";
import {
  ConnectedEditors,
  connectEditor,
  spawnEditor,
  type AcpEditor,
} from "../support/acp-editor.js";
import {
  acceptCall,
  beginRun,
  bytes,
  complete,
  freshRequestId,
  given,
  newCall,
  of,
  openRun,
  type OpenRun,
} from "../support/conversation.js";
import { allReceipts, answer, openAsk, startCall, withdraw } from "../support/asking.js";
import { runProcess } from "../support/run-process.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { ROOT } from "../support/source-tree.js";
import { toolmark } from "../support/toolmark-command.js";

const PROVIDER_ID = "call_provider_9f3a";

let service: TestService;
let clients: Clients;
let link: ServerLink;
let run: OpenRun;
const editors = new ConnectedEditors();

beforeEach(async () => {
  service = await startTestService();
  clients = service.clients();
  link = await openServerLink(`http://${service.grpcAddress}`);
  run = await openRun(clients, StartGate.REQUIRED);
});

afterEach(async () => {
  await editors.hangUp();
  link.close();
  await service.stop();
});

/** An editor that has the session open. */
async function openEditor(): Promise<AcpEditor> {
  const editor = editors.connect(link, run.sessionId);
  expect(await editor.open()).toBe(run.sessionId);
  return editor;
}

async function block(toolCallId: string): Promise<void> {
  const hook = {
    phase: "pre_tool_use",
    hookName: "policy",
    decision: HookDecision.BLOCKED,
    text: "rm is not for agents",
    toolCallId,
  };
  const published = await clients.evidence.publishHook({ ...of(run), command: hook });
  const value = {
    content: { data: bytes("The call was not made.") },
    end: ToolCallState.BLOCKED,
    blockedByHookId: given(published.hook, "hook").hookId,
  };
  const command = { toolCallId, result: { case: "canonical" as const, value } };
  await clients.calls.recordResult({ ...of(run), command });
}

describe("an editor that opens the session", () => {
  test("is told that sessions can be loaded, and that prompts are not taken", async () => {
    const editor = editors.connect(link, run.sessionId);
    const { agentCapabilities, agentInfo } = await editor.initialize();
    expect(agentCapabilities).toMatchObject({ loadSession: true });
    expect(agentInfo).toMatchObject({ name: "toolmark" });
    const prompt = { sessionId: run.sessionId, prompt: [{ type: "text" as const, text: "hi" }] };
    await expect(editor.agent.request("session/prompt", prompt)).rejects.toThrow(
      /does not run one/,
    );
    await expect(editor.load("ses_another")).rejects.toMatchObject({ code: -32002 });
  });

  test("sees a call from its acceptance to its result, under our id alone", async () => {
    const editor = await openEditor();
    const { toolCallId } = await acceptCall(clients, run, newCall(PROVIDER_ID, "bash"));
    await startCall(clients, run, toolCallId);
    await complete(clients, run, toolCallId, "file.txt");
    await editor.until(() => {
      expect(editor.shownCard(toolCallId)).toEqual({ status: "completed", text: "file.txt" });
    });
    const [first, ...later] = editor.card(toolCallId);
    expect(first).toMatchObject({
      sessionUpdate: "tool_call",
      title: "bash",
      kind: "execute",
      status: "pending",
      rawInput: { command: "ls" },
    });
    expect(later.map(({ sessionUpdate }) => sessionUpdate)).not.toContain("tool_call");
    expect(editor.card(toolCallId).map((update) => "status" in update && update.status)).toEqual([
      "pending",
      "in_progress",
      "completed",
    ]);
    expect(editor.wire).toContain(toolCallId);
    expect(editor.wire).not.toContain(PROVIDER_ID);
  });

  test("sees a blocked call as failed on its own card, with the hook's reason", async () => {
    const editor = await openEditor();
    const other = await acceptCall(clients, run);
    const { toolCallId } = await acceptCall(clients, run, newCall(PROVIDER_ID, "bash"));
    await block(toolCallId);
    await editor.until(() => {
      expect(editor.shownCard(toolCallId).status).toBe("failed");
    });
    const { text } = editor.shownCard(toolCallId);
    expect(text).toContain("Blocked by policy: rm is not for agents");
    expect(text).toContain("It did not run.");
    expect(editor.shownCard(other.toolCallId)).toEqual({ status: "pending", text: "" });
    expect(editor.messages).toEqual([]);
    expect(editor.wire).not.toContain(PROVIDER_ID);
  });

  test("is given the history before session/load is answered", async () => {
    const { toolCallId } = await acceptCall(clients, run);
    await startCall(clients, run, toolCallId);
    await complete(clients, run, toolCallId, "x".repeat(100_000));
    const editor = editors.connect(link, run.sessionId);
    await editor.initialize();
    await editor.load(run.sessionId);
    const { status, text } = editor.shownCard(toolCallId);
    expect(status).toBe("completed");
    expect(text).toBe(`${"x".repeat(65_536)}\n(34464 more bytes)`);
  });

  test("sees output in small parts while the tool runs", async () => {
    const editor = await openEditor();
    const { toolCallId } = await acceptCall(clients, run);
    await startCall(clients, run, toolCallId);
    for (const [index, part] of ["one ", "two ", "three"].entries()) {
      const value = { offsetBytes: BigInt(index * 4), chunk: bytes(part) };
      const command = { toolCallId, result: { case: "provisional" as const, value } };
      await clients.calls.recordResult({ ...of(run), command });
    }
    await editor.until(() => {
      expect(editor.shownCard(toolCallId)).toEqual({
        status: "in_progress",
        text: "one two three",
      });
    });
  });

  test("sees the calls of a session below as cards of their own", async () => {
    const editor = await openEditor();
    const parent = await acceptCall(clients, run, newCall(undefined, "task"));
    await startCall(clients, run, parent.toolCallId);
    const { session } = await clients.sessions.createSession({
      requestId: freshRequestId(),
      kind: SessionKind.SUBAGENT,
      title: "helper",
      delegation: {
        parentSessionId: run.sessionId,
        parentToolCallId: parent.toolCallId,
        kind: DelegationKind.SUBAGENT,
      },
    });
    const below = await beginRun(clients, given(session, "session").sessionId);
    const child = await acceptCall(clients, below, newCall(undefined, "read_file"));
    await openAsk(clients, below, child.toolCallId, { prompt: "May it read?" });
    const question = await editor.question();
    expect(question.request.toolCall).toMatchObject({
      toolCallId: `${below.sessionId}/${child.toolCallId}`,
      title: "read_file (in helper)",
    });
    question.answer({ outcome: "selected", optionId: "allow_once" });
    await editor.until(() => {
      expect(editor.shownCard(`${below.sessionId}/${child.toolCallId}`).text).toContain("Allowed");
    });
    expect(editor.shownCard(parent.toolCallId).text).not.toContain("May it read?");
  });
});

describe("a permission", () => {
  test("is asked with the options of the ask, and an allow lets the call start", async () => {
    const editor = await openEditor();
    const { toolCallId } = await acceptCall(clients, run, newCall(PROVIDER_ID));
    await openAsk(clients, run, toolCallId, { prompt: "May it list files?" });
    const { request, answer: reply } = await editor.question();
    expect(request).toMatchObject({
      sessionId: run.sessionId,
      toolCall: { toolCallId, rawInput: { command: "ls" } },
      options: [
        { optionId: "allow_once", kind: "allow_once" },
        { optionId: "allow_always", kind: "allow_always" },
        { optionId: "deny", kind: "reject_once" },
      ],
    });
    expect(JSON.stringify(request.toolCall.content)).toContain("May it list files?");
    expect(editor.card(toolCallId).length, "the card came first").toBeGreaterThan(0);
    reply({ outcome: "selected", optionId: "allow_once" });
    await editor.until(() => {
      expect(editor.shownCard(toolCallId).text).toContain("Allowed once by");
    });
    const receipts = await allReceipts(clients, run.sessionId);
    expect(receipts).toMatchObject([{ verdict: Verdict.ALLOW_ONCE, toolCallId }]);
    await startCall(clients, run, toolCallId);
    await editor.until(() => {
      expect(editor.shownCard(toolCallId).status).toBe("in_progress");
    });
    expect(editor.wire).not.toContain(PROVIDER_ID);
  });

  test("that is denied ends the call as failed", async () => {
    const editor = await openEditor();
    const { toolCallId } = await acceptCall(clients, run);
    await openAsk(clients, run, toolCallId);
    (await editor.question()).answer({ outcome: "selected", optionId: "deny" });
    await editor.until(() => {
      expect(editor.shownCard(toolCallId)).toMatchObject({ status: "failed" });
    });
    expect(editor.shownCard(toolCallId).text).toContain("Denied. It did not run.");
  });

  test("to release a result offers to release or to withhold it", async () => {
    const editor = await openEditor();
    const { toolCallId } = await acceptCall(clients, run);
    await startCall(clients, run, toolCallId);
    await clients.calls.openAsk({
      ...of(run),
      command: {
        toolCallId,
        kind: AskKind.RESULT_RELEASE,
        provenance: AskProvenance.HOOK_GUARDRAIL,
        heldSizeBytes: 5n,
        heldSha256: new Uint8Array(32),
      },
    });
    const { request, answer: reply } = await editor.question();
    expect(request.options.map(({ name }) => name)).toEqual([
      "Release the result",
      "Withhold the result",
    ]);
    reply({ outcome: "selected", optionId: "deny" });
    await editor.until(() => {
      expect(editor.shownCard(toolCallId).text).toContain("Denied by");
    });
  });

  test("that is settled elsewhere is taken back, and an answer after that is not sent", async () => {
    const editor = await openEditor();
    const { toolCallId } = await acceptCall(clients, run);
    const ask = await openAsk(clients, run, toolCallId);
    const question = await editor.question();
    await answer(clients, ask, Verdict.DENY);
    await editor.until(() => {
      expect(question.signal.aborted).toBe(true);
    });
    question.answer({ outcome: "selected", optionId: "allow_once" });
    await openAsk(clients, run, (await acceptCall(clients, run)).toolCallId);
    await editor.question(1);
    const receipts = await allReceipts(clients, run.sessionId);
    expect(receipts).toMatchObject([{ askId: ask.askId, verdict: Verdict.DENY }]);
    expect(editor.messages).toEqual([]);
    expect(service.logged()).not.toContain("ASK_NOT_OPEN");
  });

  test("that the user leaves open answers nothing", async () => {
    const editor = await openEditor();
    const { toolCallId } = await acceptCall(clients, run);
    const ask = await openAsk(clients, run, toolCallId);
    (await editor.question()).answer({ outcome: "cancelled" });
    await withdraw(clients, run, ask.askId);
    await editor.until(() => {
      expect(editor.shownCard(toolCallId).text).toContain("Withdrawn");
    });
    expect(await allReceipts(clients, run.sessionId)).toMatchObject([
      { verdict: Verdict.WITHDRAWN },
    ]);
  });

  test("whose answer is refused says so", async () => {
    const refusing = {
      ...link,
      approvals: {
        ...link.approvals,
        answerAsk: (request: Parameters<typeof link.approvals.answerAsk>[0]) =>
          link.approvals.answerAsk({ ...request, answerToken: "forged" }),
      },
    };
    const editor = editors.connect(refusing, run.sessionId);
    await editor.open();
    await openAsk(clients, run, (await acceptCall(clients, run)).toolCallId);
    (await editor.question()).answer({ outcome: "selected", optionId: "allow_once" });
    await editor.until(() => {
      expect(editor.messages.join()).toContain("ANSWER_TOKEN_INVALID");
    });
    expect(await allReceipts(clients, run.sessionId)).toEqual([]);
  });
});

describe("toolmark acp", () => {
  const url = (): string => `http://${service.grpcAddress}`;

  test("bridges an editor on standard input and output, and ends with 0 when it hangs up", async () => {
    const { editor, hangUp } = spawnEditor([run.sessionId, "--to", url()]);
    expect(await editor.open()).toBe(run.sessionId);
    const { toolCallId } = await acceptCall(clients, run, newCall(PROVIDER_ID));
    await openAsk(clients, run, toolCallId);
    (await editor.question()).answer({ outcome: "selected", optionId: "allow_once" });
    await editor.until(() => {
      expect(editor.shownCard(toolCallId).text).toContain("Allowed once by");
    });
    await startCall(clients, run, toolCallId);
    await complete(clients, run, toolCallId, "done");
    const blocked = await acceptCall(clients, run);
    await block(blocked.toolCallId);
    await editor.until(() => {
      expect(editor.shownCard(toolCallId).status).toBe("completed");
      expect(editor.shownCard(blocked.toolCallId).status).toBe("failed");
    });
    expect(editor.shownCard(blocked.toolCallId).text).toContain("rm is not for agents");
    for (const line of editor.wire.trimEnd().split("\n")) {
      expect(JSON.parse(line)).toMatchObject({ jsonrpc: "2.0" });
    }
    expect(editor.wire).not.toContain(PROVIDER_ID);
    expect(await hangUp()).toEqual({ code: 0, stderr: "" });
  });

  test("refuses what it cannot serve with exit code 2 and a text", async () => {
    const unknown = await toolmark("acp", "ses_unknown", "--to", url());
    expect(unknown).toMatchObject({ code: 2, stdout: "" });
    expect(unknown.stderr).toContain("SESSION_NOT_FOUND");
    const nobody = await toolmark("acp", run.sessionId, "--to", "http://127.0.0.1:1");
    expect(nobody).toMatchObject({ code: 2, stdout: "" });
    expect(nobody.stderr).toContain("no server answers");
    expect(await toolmark("acp")).toMatchObject({ code: 2, stdout: "" });
    expect((await toolmark("acp", "--help")).stdout).toContain("Agent Client Protocol");
  });

  test("without its package says what to install; the other commands do without", async () => {
    const without = join(ROOT, "test/support/without-acp-sdk.mjs");
    const command = ["--import", without, join(ROOT, "dist/bin/toolmark.js")];
    const missing = await runProcess(process.execPath, [...command, "acp", run.sessionId]);
    expect(missing).toMatchObject({ code: 2, stdout: "" });
    expect(missing.stderr).toContain("npm install @agentclientprotocol/sdk");
    expect(await runProcess(process.execPath, [...command, "version"])).toMatchObject({ code: 0 });
  });
});

describe("after a restart of the server", () => {
  test("the editor sees what follows, nothing twice, and is asked what is open once", async () => {
    const folder = mkdtempSync(join(tmpdir(), "toolmark-acp-"));
    const store = `sqlite:${join(folder, "toolmark.db")}`;
    const first = await startTestService({ store });
    const flags = ["--grpc-address", first.grpcAddress, "--http-address", first.httpAddress];
    const steady = await openServerLink(`http://${first.grpcAddress}`);
    const before = first.clients();
    const early = await openRun(before, StartGate.REQUIRED);
    const { editor, hangUp } = connectEditor(steady, early.sessionId);
    await editor.open();
    const { toolCallId } = await acceptCall(before, early);
    await openAsk(before, early, toolCallId);
    const question = await editor.question();
    await first.stop();
    const second = await startTestService({ store, flags });
    try {
      const after = second.clients();
      const later = await acceptCall(after, early);
      question.answer({ outcome: "selected", optionId: "allow_once" });
      await editor.until(() => {
        expect(editor.shownCard(toolCallId).text).toContain("Allowed once by");
        expect(editor.card(later.toolCallId)).toHaveLength(1);
      });
      await startCall(after, early, toolCallId);
      await complete(after, early, toolCallId, "done");
      await editor.until(() => {
        expect(editor.shownCard(toolCallId).status).toBe("completed");
      });
      const made = editor.card(toolCallId).filter((update) => {
        return update.sessionUpdate === "tool_call";
      });
      expect(made).toHaveLength(1);
      const sent = editor.card(toolCallId).map((update) => JSON.stringify(update));
      expect(new Set(sent).size).toBe(sent.length);
      expect(editor.questions).toHaveLength(1);
    } finally {
      await hangUp();
      steady.close();
      await second.stop();
      rmSync(folder, { recursive: true, force: true });
    }
  });
});

test("what a fork copied is shown before what it adds", async () => {
  const { toolCallId } = await acceptCall(clients, run);
  await startCall(clients, run, toolCallId);
  await complete(clients, run, toolCallId, "copied");
  const request = { requestId: freshRequestId(), sessionId: run.sessionId };
  const { session } = await clients.sessions.forkSession(request);
  const editor = editors.connect(link, given(session, "session").sessionId);
  await editor.initialize();
  await editor.load(given(session, "session").sessionId);
  expect(editor.shownCard(toolCallId)).toEqual({ status: "completed", text: "copied" });
  expect(editor.messages.join()).toContain(run.sessionId);
});
