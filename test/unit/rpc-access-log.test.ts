import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import {
  GetToolCallResponseSchema,
  HistoryService,
  ReadBodyResponseSchema,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { isRefusal } from "../../src/domain/refusal.js";
import { accessLog } from "../../src/rpc/middleware/access-log.js";
import { OpenCall } from "../../src/rpc/open-call.js";
import { everyItem, type Reply } from "../../src/rpc/reply.js";
import { createLog } from "../../src/server/log.js";

class LeftCall extends OpenCall {
  readonly peer = "test";

  constructor(method: OpenCall["method"]) {
    super(method, {
      nowMs: () => 0,
      monotonicMs: () => 0,
      mintCorrelationId: () => "cor_1",
      draining: new AbortController().signal,
    });
  }

  header(): undefined {
    return undefined;
  }

  protected remainingMs(): number {
    return Infinity;
  }
}

/** What is logged of a call whose caller leaves before the reply is through. */
async function loggedOf(method: OpenCall["method"], reply: Reply) {
  const lines: string[] = [];
  const log = createLog("debug", { write: (line) => lines.push(line) });
  const call = new LeftCall(method);
  const logged = accessLog(log, () => 0)(call, new Uint8Array(), () => reply);
  call.callerLeft();
  let given = 0;
  for await (const item of everyItem(logged)) given += isRefusal(item) ? 0 : 1;
  return lines.map((line) => {
    const { msg, reason, status } = JSON.parse(line) as Record<string, unknown>;
    return { msg, reason, status, given };
  });
}

const GONE = { msg: "call refused", reason: "CALLER_GONE", status: "CANCELLED" };
const ANSWERED = { msg: "call answered", reason: undefined, status: "OK" };

test("a message that was decided on is an answer, though its caller left before it was sent", async () => {
  const { getToolCall } = HistoryService.method;
  const reply = Promise.resolve(create(GetToolCallResponseSchema));
  expect(await loggedOf(getToolCall, reply)).toEqual([{ ...ANSWERED, given: 1 }]);
});

test.each([0, 1])("a stream that was left behind %i messages is refused", async (count) => {
  async function* messages() {
    for (let index = 0; index < count; index += 1) {
      yield await Promise.resolve(create(ReadBodyResponseSchema));
    }
  }
  expect(await loggedOf(HistoryService.method.readBody, messages())).toEqual([
    { ...GONE, given: count },
  ]);
});

test("the outcome of a commit that failed may be logged", () => {
  const lines: string[] = [];
  createLog("info", { write: (line) => lines.push(line) }).error("x", { outcome: "unknown" });
  expect(JSON.parse(lines[0] ?? "")).toMatchObject({ outcome: "unknown" });
});
