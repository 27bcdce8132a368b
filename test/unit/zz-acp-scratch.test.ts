import { test } from "vitest";
import { openServerLink } from "../../src/server/server-link.js";
import { connectEditor } from "../support/acp-editor.js";
import { acceptTurn, allCalls, complete, newCall, openRun } from "../support/conversation.js";
import { startTestService } from "../support/service.js";
test("replay", async () => {
  const service = await startTestService({ flags: ["--log-level", "warn"] });
  const clients = service.clients();
  const run = await openRun(clients);
  for (let turn = 0; turn < 40; turn += 1) {
    const calls = await acceptTurn(clients, run, Array.from({ length: 50 }, (_, i) => newCall(undefined, "bash", `{"n":${turn * 50 + i}}`)));
    await Promise.all(calls.map((c) => complete(clients, run, c.toolCallId, `result ${c.toolCallId}`)));
  }
  const link = await openServerLink(`http://${service.grpcAddress}`);
  const all = await allCalls(clients, run.sessionId);
  let t = performance.now();
  const refs = all.flatMap((c) => [c.effective!.bodyRef, c.result!.content!.bodyRef]);
  const work = refs.values();
  await Promise.all(Array.from({ length: 32 }, async () => {
    for (const bodyRef of work) for await (const _ of link.history.readBody({ sessionId: run.sessionId, bodyRef })) void _;
  }));
  console.log("readBody ms", performance.now() - t, refs.length);
  t = performance.now();
  const again = all.values();
  await Promise.all(Array.from({ length: 32 }, async () => {
    for (const c of again) await link.history.getToolCall({ sessionId: run.sessionId, toolCallId: c.toolCallId });
  }));
  console.log("getToolCall ms", performance.now() - t);
  const fake = { ...link, history: { ...link.history, readBody: async function* () { yield { chunk: new Uint8Array([65]), offsetBytes: 0n, sizeBytes: 1n, sha256: new Uint8Array() }; } } } as unknown as typeof link;
  for (const [name, l] of [["real", link], ["no bodies", fake]] as const) {
    const { editor, hangUp } = connectEditor(l, run.sessionId);
    await editor.initialize();
    const began = performance.now();
    await editor.load(run.sessionId);
    console.log(name, "load ms", performance.now() - began, "updates", editor.updates.length);
    await hangUp();
  }
  link.close(); await service.stop();
});
