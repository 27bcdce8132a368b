import {
  connect as connectHttp2,
  type ClientHttp2Session,
  type ClientHttp2Stream,
} from "node:http2";
import { connect as connectTcp } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { EvidenceService } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import {
  GetToolCallRequestSchema,
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
      getToolCall: async (context, { toolCallId }) => {
        if (toolCallId === "waits") return untilCutOff(context);
        await delay(30);
        return context.aborted ?? create(GetToolCallResponseSchema);
      },
      async *readBody(_context, { bodyRef }) {
        running += 1;
        try {
          // Looks at no signal, as a careless handler would.
          if (bodyRef === "stuck") await forever();
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
          for await (const { chunk } of requests) given += 1 + chunk.length;
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
    const stream = history().readBody({ bodyRef: "stuck" }, { timeoutMs: 500 });
    const reading = stream[Symbol.asyncIterator]().next();
    expect(await failureOf(reading)).toMatchObject({ code: "DeadlineExceeded" });
    await until(() => refusedCalls("DEADLINE_PASSED", "ReadBody") > 0);
  });
});

describe("a deadline that the caller leaves to the server", () => {
  const path = pathOf(HistoryService.method.getToolCall);
  const request = toBinary(
    GetToolCallRequestSchema,
    create(GetToolCallRequestSchema, { toolCallId: "waits" }),
  );

  test("aborts a gRPC call with DEADLINE_PASSED", async () => {
    const session = connectHttp2(`http://${server.grpcAddress}`);
    const headers = { "grpc-timeout": "500m" };
    openStream(session, path, "application/grpc+proto", headers).end(framed(request));
    await until(() => cutOff !== undefined);
    expect(reasonOfCutOff()).toBe("DEADLINE_PASSED");
    session.destroy();
  });

  test("aborts a Connect call with DEADLINE_PASSED, which it is answered with", async () => {
    const headers = { "content-type": "application/proto", "connect-timeout-ms": "500" };
    const url = `http://${server.httpAddress}${path}`;
    const reply = await fetch(url, { method: "POST", headers, body: request });
    expect(reply.status).toBe(504);
    expect(await reply.json()).toMatchObject({ code: "deadline_exceeded" });
    expect(reasonOfCutOff()).toBe("DEADLINE_PASSED");
  });
});

describe("a connection that breaks while its caller does not read", () => {
  const request = toBinary(ReadBodyRequestSchema, create(ReadBodyRequestSchema));
  const frame = framed(request);
  const path = pathOf(HistoryService.method.readBody);

  test.each([
    ["gRPC", "application/grpc+proto", () => server.grpcAddress],
    ["Connect", "application/connect+proto", () => server.httpAddress],
    ["gRPC-Web", "application/grpc-web+proto", () => server.httpAddress],
  ])("frees every %s stream on it", async (_name, contentType, address) => {
    const session = connectHttp2(`http://${address()}`);
    for (let count = 0; count < 20; count += 1) {
      openStream(session, path, contentType).pause().end(frame);
    }
    await until(() => running === 20);
    await untilStalled();
    session.destroy();
    await until(() => running === 0);
  });

  test.each([
    ["gRPC", "application/grpc+proto", () => server.grpcAddress],
    ["Connect", "application/connect+proto", () => server.httpAddress],
  ])("cuts off the requests of a %s call, which is no fault", async (_name, type, address) => {
    const session = connectHttp2(`http://${address()}`);
    const upload = openStream(session, pathOf(EvidenceService.method.writeBody), type);
    upload.write(Buffer.from([0, 0, 0, 0, 0]));
    await until(() => given === 1);
    upload.destroy();
    await until(() => running === 0);
    expect(reasonOfCutOff()).toBe("CALLER_GONE");
    session.destroy();
    expect(server.logLines().filter(({ level }) => level === "error")).toEqual([]);
  });

  test("takes an upload that is ended and reset in one breath for cut off", async () => {
    const [host, port] = server.grpcAddress.split(":");
    const socket = connectTcp(Number(port), host);
    socket.write(endedAndReset(pathOf(EvidenceService.method.writeBody)));
    await until(() => given === 1 && running === 0);
    expect(reasonOfCutOff()).toBe("CALLER_GONE");
    socket.destroy();
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

function forever(): Promise<never> {
  return new Promise(() => {
    // Never settled.
  });
}

/** A short message as gRPC and Connect streams carry it. */
function framed(message: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from([0, 0, 0, 0, message.length]), message]);
}

/** What Node's client sends for a call that it cancels: a request, an end of them, and a reset. */
function endedAndReset(path: string): Buffer {
  const headers = {
    ":method": "POST",
    ":scheme": "http",
    ":path": path,
    ":authority": "localhost",
    "content-type": "application/grpc+proto",
    te: "trailers",
  };
  const literals = Object.entries(headers).flatMap(([name, value]) => {
    return [Buffer.from([0, name.length]), name, Buffer.from([value.length]), value];
  });
  const frame = (type: number, flags: number, stream: number, payload: Buffer): Buffer =>
    Buffer.concat([Buffer.from([0, 0, payload.length, type, flags, 0, 0, 0, stream]), payload]);
  return Buffer.concat([
    Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    frame(4, 0, 0, Buffer.alloc(0)),
    frame(1, 4, 1, Buffer.concat(literals.map((part) => Buffer.from(part)))),
    frame(0, 1, 1, framed(new Uint8Array())),
    frame(3, 0, 1, Buffer.from([0, 0, 0, 8])),
  ]);
}

/** Opens a stream that is not read, whatever becomes of it. */
function openStream(
  session: ClientHttp2Session,
  path: string,
  contentType: string,
  headers: Readonly<Record<string, string>> = {},
): ClientHttp2Stream {
  const stream = session.request({
    ":method": "POST",
    ":path": path,
    "content-type": contentType,
    te: "trailers",
    ...headers,
  });
  return stream.on("error", () => undefined);
}

/** Waits until the streams give no more: every one is held back by a caller that does not read. */
async function untilStalled(): Promise<void> {
  let before = -1;
  while (before !== given) {
    before = given;
    await delay(100);
  }
}

function refusedCalls(reason: string, method: string): number {
  const lines = server.logLines().filter((line) => line["reason"] === reason);
  return lines.filter((line) => String(line["method"]).endsWith(method)).length;
}
