import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { openServerLink, type ServerLink } from "../../src/server/server-link.js";
import { ConnectedEditors, type AcpEditor } from "../support/acp-editor.js";
import { allReceipts, openAsk } from "../support/asking.js";
import {
  acceptCall,
  freshRequestId,
  given,
  openRun,
  recordMessage,
} from "../support/conversation.js";
import { fork } from "../support/forking.js";
import { OldFolder, snapshotA } from "../support/old-fixtures.js";
import type { Clients, TestService } from "../support/service.js";
import { openChild } from "../support/trees.js";

let folder: OldFolder;
let service: TestService;
let clients: Clients;
let link: ServerLink;
const editors = new ConnectedEditors();

beforeEach(async () => {
  folder = await OldFolder.make();
  await folder.put(snapshotA("s-old"));
  service = await folder.start();
  clients = service.clients();
  link = await openServerLink(`http://${service.grpcAddress}`);
});

afterEach(async () => {
  await editors.hangUp();
  link.close();
  await service.stop();
  await folder.remove();
});

async function loadEditor(sessionId: string): Promise<AcpEditor> {
  const editor = editors.connect(link, sessionId);
  await editor.initialize();
  await editor.load(sessionId);
  return editor;
}

async function openRunOf(sessionId: string): Promise<void> {
  const request = { requestId: freshRequestId(), sessionId, startGate: StartGate.OFF };
  given((await clients.runs.beginRun(request)).run, "run");
}

describe("an editor", () => {
  test("whose user answers a child's ask by an always that was not offered sends nothing", async () => {
    const run = await openRun(clients);
    const child = await openChild(clients, run);
    const { toolCallId } = await acceptCall(clients, child.run);
    await openAsk(clients, child.run, toolCallId);
    const editor = await loadEditor(run.sessionId);
    const question = await editor.question();
    const offered = question.request.options.map(({ optionId }) => optionId);
    expect(offered).toEqual(["allow_once", "deny"]);
    question.answer({ outcome: "selected", optionId: "allow_always" });
    await editor.until(() => {
      expect(editor.messages.join()).toContain("allow_always was not offered");
    });
    expect(await allReceipts(clients, child.run.sessionId)).toEqual([]);
  });

  test("of a fork sees the text that stands for what the source had archived", async () => {
    const run = await openRun(clients);
    await recordMessage(clients, run);
    const { sessionId } = run;
    const archive = { requestId: freshRequestId(), sessionId, throughSequence: 3n };
    await clients.sessions.compactSession({ ...archive, summary: "what was before" });
    const editor = await loadEditor((await fork(clients, sessionId)).sessionId);
    const messages = editor.messages.join();
    expect(messages).toContain("What came before was archived. what was before");
    expect(messages.indexOf("hello")).toBeLessThan(messages.indexOf("what was before"));
  });

  test("of an old session without events is told where it can be read, once", async () => {
    const editor = await loadEditor("s-old");
    expect(editor.messages).toHaveLength(1);
    expect(editor.messages.join()).toContain("toolmark transcript");
    await openRunOf("s-old");
    await editor.until(() => {
      expect(editor.messages.join()).toContain("there are two files");
    });
    expect(editor.messages.filter((text) => text.includes("toolmark transcript"))).toHaveLength(1);
  });
});
