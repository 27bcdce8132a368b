import { connect as connectHttp2, type ClientHttp2Session } from "node:http2";
import { connect as connectTcp } from "node:net";
import { create, toBinary } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { EvidenceService } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import {
  GetToolCallResponseSchema,
  HistoryService,
  ReadBodyRequestSchema,
  ReadBodyResponseSchema,
} from "../../gen/toolmark/v1/history_service_pb.js";
import type { CallContext } from "../../src/rpc/call.js";
import { isRefusal, refuse, type Refusal } from "../../src/domain/refusal.js";
import {
  BOTH_LISTENERS,
  failureOf,
  pathOf,
  startTestServer,
  until,
  type TestServer,
} from "./listeners-fixture.js";

const CHUNK = new Uint8Array(64 * 1024);

let server: TestServer;
/** Generators of streams that are running. */
let running = 0;
/** Items that the streams gave. */
let given = 0;
/** Why the last call was cut off. */
let cutOff: Refusal | undefined;

async function untilCutOff({ signal }: CallContext): Promise<Refusal> {
  running += 1;
  await new Promise((resolve) => {
    signal.addEventListener("abort", resolve);
  });
  running -= 1;
  cutOff = isRefusal(signal.reason) ? signal.reason : undefined;
  return cutOff ?? refuse(ErrorReason.INTERNAL, "the signal has no refusal as its reason");
}

beforeAll(async () => {
  server = await startTestServer({
    history: {
      getToolCall: async (context, { toolCallId }) =>
        toolCallId === "waits" ? untilCutOff(context) : create(GetToolCallResponseSchema),
      async *readBody(_context, { bodyRef }) {
        running += 1;
        try {
          // Looks at no signal, as a careless handler would.
          if (bodyRef === "stuck") await new Promise(() => undefined);
          for (;;) {
            given += 1;
            yield create(ReadBodyResponseSchema, { chunk: CHUNK });
          }
        } finally {
          running -= 1;
        }
      },
    },
    evidence: {
      writeBody: async (context, requests) => {
        running += 1;
        try {
          for await (const { sessionId } of requests) expect(sessionId).toBe("ses_1");
        } finally {
          running -= 1;
          cutOff = context.aborted;
        }
        return refuse(ErrorReason.SESSION_ENDED, "read to the end");
      },
    },
  });
});

beforeEach(() => {
  running = 0;
  given = 0;
  cutOff = undefined;
});

afterAll(async () => {
  await server.drain();
});

const reasonOfCutOff = () => (cutOff === undefined ? undefined : ErrorReason[cutOff.reason]);

describe.each(BOTH_LISTENERS)("over %s", (_name, transportTo) => {
  const history = () => createClient(HistoryService, transportTo(server));

  test("a deadline aborts the call with DEADLINE_PASSED", async () => {
    const call = history().getToolCall({ toolCallId: "waits" }, { timeoutMs: 50 });
    expect(await failureOf(call)).toMatchObject({ code: "DeadlineExceeded" });
    await until(() => cutOff !== undefined);
    expect(reasonOfCutOff()).toBe("DEADLINE_PASSED");
  });

  test("a caller that cancels aborts the call with CALLER_GONE", async () => {
    const canceller = new AbortController();
    const { signal } = canceller;
    const call = history().getToolCall({ toolCallId: "waits" }, { signal, timeoutMs: 60_000 });
    const failure = failureOf(call);
    await until(() => running === 1);
    canceller.abort();
    expect(await failure).toMatchObject({ code: "Canceled" });
    await until(() => cutOff !== undefined);
    expect(reasonOfCutOff()).toBe("CALLER_GONE");
  });

  test("a caller that cancels while it does not read frees the stream", async () => {
    const canceller = new AbortController();
    const stream = history().readBody({}, { signal: canceller.signal });
    const iterator = stream[Symbol.asyncIterator]();
    await iterator.next();
    await untilStalled();
    expect(running).toBe(1);
    canceller.abort();
    await until(() => running === 0);
  });

  test("a deadline ends a stream whose handler looks at no signal", async () => {
    const stream = history().readBody({ bodyRef: "stuck" }, { timeoutMs: 50 });
    const reading = stream[Symbol.asyncIterator]().next();
    expect(await failureOf(reading)).toMatchObject({ code: "DeadlineExceeded" });
    await until(() => refusedCalls("DEADLINE_PASSED", "ReadBody") > 0);
  });

  test("requests that stop because the caller left are no fault", async () => {
    const canceller = new AbortController();
    async function* requests() {
      yield { sessionId: "ses_1" };
      await new Promise(() => undefined);
    }
    const { signal } = canceller;
    const evidence = createClient(EvidenceService, transportTo(server));
    const failure = failureOf(evidence.writeBody(requests(), { signal }));
    await until(() => running === 1);
    canceller.abort();
    await failure;
    await until(() => running === 0);
    expect(reasonOfCutOff()).toBe("CALLER_GONE");
    await until(() => refusedCalls("CALLER_GONE", "WriteBody") > 0);
    expect(server.logLines().filter(({ level }) => level === "error")).toEqual([]);
  });
});

describe("a connection that breaks while its caller does not read", () => {
  const request = toBinary(ReadBodyRequestSchema, create(ReadBodyRequestSchema));
  const frame = Buffer.concat([Buffer.from([0, 0, 0, 0, request.length]), request]);
  const path = pathOf(HistoryService.method.readBody);

  test.each([
    ["gRPC", "application/grpc+proto", () => server.grpcAddress],
    ["Connect", "application/connect+proto", () => server.httpAddress],
    ["gRPC-Web", "application/grpc-web+proto", () => server.httpAddress],
  ])("frees every %s stream on it", async (_name, contentType, address) => {
    const session = connectHttp2(`http://${address()}`);
    for (let count = 0; count < 20; count += 1) openStalled(session, path, contentType, frame);
    const t = setInterval(() => (globalThis as any).console.log("r", running, given, server.logLines().length, JSON.stringify(server.logLines().map(l=>[l["msg"],l["reason"],(l["fault"] as any)?.name, (l["fault"] as any)?.code,(l["fault"] as any)?.cause?.code].join()))), 1000); t.unref();
    await until(() => running === 20);
    await untilStalled();
    session.destroy();
    await until(() => running === 0);
  });

  test("frees a stream over HTTP/1.1", async () => {
    const [host, port] = server.httpAddress.split(":");
    const socket = connectTcp(Number(port), host);
    socket.pause();
    socket.write(
      `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/connect+proto\r\n` +
        `content-length: ${String(frame.length)}\r\n\r\n`,
    );
    socket.write(frame);
    await until(() => running === 1);
    await untilStalled();
    socket.destroy();
    await until(() => running === 0);
  });
});

describe("a deadline longer than a timer can wait", () => {
  const url = () => `http://${server.httpAddress}${pathOf(HistoryService.method.getToolCall)}`;

  test("is lowered, not refused, on Connect", async () => {
    const headers = { "content-type": "application/json", "connect-timeout-ms": "9999999999" };
    const reply = await fetch(url(), { method: "POST", headers, body: "{}" });
    expect(reply.status).toBe(200);
  });

  test("is lowered, not refused, on gRPC-Web", async () => {
    const headers = { "content-type": "application/grpc-web+proto", "grpc-timeout": "99999999H" };
    const reply = await fetch(url(), { method: "POST", headers, body: new Uint8Array(5) });
    expect(await reply.text()).toContain("grpc-status: 0");
  });
});

/** Opens a stream whose reply is never read. */
function openStalled(
  session: ClientHttp2Session,
  path: string,
  contentType: string,
  body: Buffer,
): void {
  const stream = session.request({
    ":method": "POST",
    ":path": path,
    "content-type": contentType,
    te: "trailers",
  });
  stream.on("error", () => undefined);
  stream.pause();
  stream.end(body);
}

/** Waits until the streams give no more: every one is held back by a caller that does not read. */
async function untilStalled(): Promise<void> {
  let before = -1;
  while (before !== given) {
    before = given;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

function refusedCalls(reason: string, method: string): number {
  const lines = server.logLines().filter((line) => line["reason"] === reason);
  return lines.filter((line) => String(line["method"]).endsWith(method)).length;
}
