import { create } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { describe, expect, test } from "vitest";
import {
  Health,
  HealthCheckResponse_ServingStatus as Serving,
} from "../../gen/health/v1/health_pb.js";
import {
  GetToolCallResponseSchema,
  HistoryService,
  ReadBodyResponseSchema,
} from "../../gen/toolmark/v1/history_service_pb.js";
import {
  allOf,
  BOTH_LISTENERS,
  failureOf,
  gate,
  startTestServer,
  testConfig,
  until,
  type TestHandlers,
  type TestServer,
} from "./listeners-fixture.js";

const SERVING = { code: 200, grpc: Serving.SERVING };
const NOT_SERVING = { code: 503, grpc: Serving.NOT_SERVING };

async function healthOf({ grpcAddress, httpAddress }: TestServer) {
  const transport = createGrpcTransport({ baseUrl: `http://${grpcAddress}` });
  const { status } = await createClient(Health, transport).check({});
  const reply = await fetch(`http://${httpAddress}/healthz`);
  return { code: reply.status, grpc: status };
}

/** Handlers that hold their calls: a unary one until a gate opens, streams until they are ended. */
function holdingHandlers() {
  const { opened, open } = gate();
  const held = { unary: 0, streams: 0, drainingSeen: 0 };
  const handlers: TestHandlers = {
    history: {
      getToolCall: async (context) => {
        held.unary += 1;
        context.draining.addEventListener("abort", () => (held.drainingSeen += 1));
        await opened;
        return create(GetToolCallResponseSchema, { toolCall: { toolCallId: "tc_1" } });
      },
      async *readBody() {
        held.streams += 1;
        yield create(ReadBodyResponseSchema);
        await new Promise(() => {
          // Waits for what never comes.
        });
      },
    },
  };
  return { handlers, held, open };
}

describe.each(BOTH_LISTENERS)("draining, over %s", (_name, transportTo) => {
  test("refuses new calls, waits for those in flight, and then ends streams", async () => {
    const { handlers, held, open } = holdingHandlers();
    const server = await startTestServer(handlers);
    const history = createClient(HistoryService, transportTo(server));
    const unary = history.getToolCall({});
    const stream = failureOf(allOf(history.readBody({})));
    let streamEnded = false;
    void stream.then(() => (streamEnded = true));
    await until(() => held.unary === 1 && held.streams === 1);
    expect(await healthOf(server)).toEqual(SERVING);

    const drained = server.drain();
    expect(await healthOf(server)).toEqual(NOT_SERVING);
    expect(held.drainingSeen).toBe(1);
    expect(await failureOf(history.getToolCall({}))).toMatchObject({
      code: "Unavailable",
      errorInfo: { reason: "DRAINING" },
    });
    expect(streamEnded).toBe(false);

    open();
    expect((await unary).toolCall?.toolCallId).toBe("tc_1");
    expect(await stream).toMatchObject({
      code: "Unavailable",
      errorInfo: { reason: "DRAINING" },
    });
    await drained;
    await expect(fetch(`http://${server.httpAddress}/healthz`)).rejects.toThrow();
  });

  test("ends in time, even if a handler never answers and a caller never reads", async () => {
    const config = testConfig("--drain-timeout-ms", "400");
    const { handlers, held } = holdingHandlers();
    const server = await startTestServer(handlers, { config });
    const history = createClient(HistoryService, transportTo(server));
    const unary = failureOf(history.getToolCall({}));
    const unread = history.readBody({})[Symbol.asyncIterator]();
    await unread.next();
    await until(() => held.unary === 1);
    const before = performance.now();
    await server.drain();
    expect(performance.now() - before).toBeLessThan(2000);
    await unary;
  });
});

test("whoever watches health learns of the draining first", async () => {
  const { handlers, held, open } = holdingHandlers();
  const server = await startTestServer(handlers);
  const transport = createGrpcTransport({ baseUrl: `http://${server.grpcAddress}` });
  const watching = createClient(Health, transport).watch({})[Symbol.asyncIterator]();
  const next = async () => ((await watching.next()).value as { status: Serving }).status;
  expect(await next()).toBe(Serving.SERVING);
  const call = createClient(HistoryService, transport).getToolCall({});
  await until(() => held.unary === 1);
  const drained = server.drain();
  expect(await next()).toBe(Serving.NOT_SERVING);
  open();
  await call;
  await drained;
});

test("draining twice is draining once", async () => {
  const server = await startTestServer();
  expect(server.drain()).toBe(server.drain());
  await server.drain();
});
