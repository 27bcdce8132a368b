import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { createClient, type Transport } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  EvidenceService,
  WriteBodyResponseSchema,
} from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import {
  GetToolCallRequestSchema,
  GetToolCallResponseSchema,
  HistoryService,
  ReadBodyResponseSchema,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { InfoService } from "../../gen/toolmark/v1/info_service_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { InvariantError } from "../../src/domain/invariant.js";
import { refuse } from "../../src/domain/refusal.js";
import { grpcFrame, post } from "../support/wire-answer.js";
import {
  allOf,
  failureOf,
  pathOf,
  RawGrpcClient,
  startTestServer,
  testConfig,
  TRANSPORTS,
  type TestHandlers,
  type TestServer,
} from "./listeners-fixture.js";

const SECRET = "sk-the-cause";
const OUTGOING_LIMIT_BYTES = 512 * 1024;

const handlers: TestHandlers = {
  history: {
    getToolCall: async (context, { sessionId, toolCallId }) => {
      if (toolCallId === "throws") throw new Error(SECRET);
      if (toolCallId === "breaks") throw new InvariantError("never so");
      if (toolCallId === "refused") {
        const metadata = { tool_call_id: toolCallId };
        return refuse(ErrorReason.TOOL_CALL_NOT_FOUND, "no such call", metadata);
      }
      const toolName = toolCallId === "large" ? "x".repeat(OUTGOING_LIMIT_BYTES) : sessionId;
      const runId = context.principal.subject;
      return create(GetToolCallResponseSchema, { toolCall: { toolCallId, toolName, runId } });
    },
    async *readBody(_context, { bodyRef }) {
      for (let part = 0n; part < 3n; part += 1n) {
        yield create(ReadBodyResponseSchema, { offsetBytes: part });
      }
      if (bodyRef === "refused") yield refuse(ErrorReason.DATA_DAMAGED, "damaged");
      if (bodyRef === "throws") throw new Error(SECRET);
    },
  },
  evidence: {
    writeBody: async (_context, requests) => {
      let sizeBytes = 0n;
      for await (const { chunk } of requests) sizeBytes += BigInt(chunk.length);
      return create(WriteBodyResponseSchema, { body: { sizeBytes } });
    },
  },
};

let server: TestServer;

beforeAll(async () => {
  const outgoing = ["--limit-outgoing-message-bytes", String(OUTGOING_LIMIT_BYTES)];
  const config = testConfig("--limit-message-bytes", "8192", ...outgoing);
  server = await startTestServer(handlers, { config });
});

afterAll(async () => {
  await server.drain();
});

describe.each(TRANSPORTS)("%s", (_name, transportTo) => {
  let transport: Transport;

  beforeAll(() => {
    transport = transportTo(server);
  });

  const history = () => createClient(HistoryService, transport);

  test("answers a unary call, as the loopback principal without a credential", async () => {
    const request = { sessionId: "ses_1", toolCallId: "tc_1" };
    const { toolCall } = await history().getToolCall(request);
    expect(toolCall).toMatchObject({ toolCallId: "tc_1", toolName: "ses_1", runId: "loopback" });
  });

  test("streams replies in order", async () => {
    const parts = await allOf(history().readBody({ sessionId: "ses_1" }));
    expect(parts.map(({ offsetBytes }) => offsetBytes)).toEqual([0n, 1n, 2n]);
  });

  test("takes a stream of requests", async () => {
    async function* requests() {
      for (const size of [1, 20, 300]) yield { chunk: new Uint8Array(size) };
    }
    const { body } = await createClient(EvidenceService, transport).writeBody(requests());
    expect(body?.sizeBytes).toBe(321n);
  });

  test("refuses with a code and an ErrorInfo", async () => {
    expect(await failureOf(history().getToolCall({ toolCallId: "refused" }))).toMatchObject({
      code: "NotFound",
      message: "no such call",
      errorInfo: {
        domain: "toolmark",
        reason: "TOOL_CALL_NOT_FOUND",
        metadata: { tool_call_id: "refused" },
      },
    });
  });

  test("ends a stream with a refusal behind what it sent", async () => {
    const parts: bigint[] = [];
    const reading = (async () => {
      const stream = history().readBody({ bodyRef: "refused" });
      for await (const { offsetBytes } of stream) parts.push(offsetBytes);
    })();
    expect(await failureOf(reading)).toMatchObject({
      code: "DataLoss",
      errorInfo: { reason: "DATA_DAMAGED" },
    });
    expect(parts).toEqual([0n, 1n, 2n]);
  });

  test.each(["unary", "stream"] as const)(
    "answers a fault of a %s call with a correlation id, and nothing of its cause",
    async (kind) => {
      const call =
        kind === "unary"
          ? history().getToolCall({ toolCallId: "throws" })
          : allOf(history().readBody({ bodyRef: "throws" }));
      const failure = await failureOf(call);
      expect(failure).toMatchObject({ code: "Internal", errorInfo: { reason: "INTERNAL" } });
      expect(JSON.stringify(failure, bigintAsText)).not.toContain(SECRET);
      const correlationId = failure.errorInfo?.metadata["correlation_id"];
      expect(correlationId).toMatch(/^cor_/);
      const lines = server.logLines().filter((line) => line["correlationId"] === correlationId);
      expect(lines.map(({ level, msg }) => [level, msg])).toEqual([
        ["error", "fault"],
        ["info", "call refused"],
      ]);
    },
  );

  test("answers a method without a handler with UNIMPLEMENTED and its name", async () => {
    const feature = "toolmark.v1.HistoryService.ListHooks";
    expect(await failureOf(history().listHooks({}))).toMatchObject({
      code: "Unimplemented",
      errorInfo: { reason: "UNIMPLEMENTED", metadata: { feature } },
    });
  });

  test("lets no reply above the outgoing limit leave", async () => {
    expect(await failureOf(history().getToolCall({ toolCallId: "large" }))).toMatchObject({
      code: "Internal",
      errorInfo: { reason: "INTERNAL" },
    });
    const names = server
      .logLines()
      .map(({ fault }) => (fault as { name?: string } | undefined)?.name);
    expect(names).toContain("ReplyTooLargeError");
  });

  test("takes no message above the incoming limit", async () => {
    const call = history().getToolCall({ sessionId: "x".repeat(10_000) });
    expect(await failureOf(call)).toMatchObject({ code: "ResourceExhausted" });
  });

  test("tells of a broken invariant, which is to stop the process", async () => {
    const before = server.invariantsBroken();
    expect(await failureOf(history().getToolCall({ toolCallId: "breaks" }))).toMatchObject({
      code: "Internal",
    });
    expect(server.invariantsBroken()).toBe(before + 1);
  });

  test("serves more than one service", async () => {
    const { version, limits } = await createClient(InfoService, transport).getServerInfo({});
    expect({ version, messageBytes: limits?.messageBytes }).toEqual({
      version: "1.2.3",
      messageBytes: 8192n,
    });
  });
});

describe("bytes that are no message", () => {
  const UNDECODABLE = new Uint8Array([0xff, 0xff, 0xff]);

  test("are refused on native gRPC as every malformed request is", async () => {
    const client = new RawGrpcClient(server);
    expect(
      await client.unary(pathOf(HistoryService.method.getToolCall), UNDECODABLE),
    ).toMatchObject({
      code: "InvalidArgument",
      errorInfo: { domain: "toolmark", reason: "REQUEST_UNDECODABLE" },
    });
    client.close();
  });

  test("include strings that are no UTF-8", async () => {
    const client = new RawGrpcClient(server);
    const bytes = new Uint8Array([0x0a, 0x01, 0xff]);
    expect(await client.unary(pathOf(HistoryService.method.getToolCall), bytes)).toMatchObject({
      errorInfo: { reason: "REQUEST_UNDECODABLE" },
    });
    client.close();
  });

  const SECRET_ID = "call_SECRET1";
  const JSON_WITH_SECRET = Buffer.from(`{"sessionId":{"pairing":"${SECRET_ID}"}}`);
  const { getToolCall, readBody } = HistoryService.method;
  const { writeBody } = EvidenceService.method;

  test.each([
    ["application/proto", getToolCall, UNDECODABLE],
    ["application/json", getToolCall, UNDECODABLE],
    ["application/json", getToolCall, JSON_WITH_SECRET],
    ["application/json", getToolCall, Buffer.from(`{"sessionId":${SECRET_ID}}`)],
    ["application/connect+proto", readBody, grpcFrame(UNDECODABLE)],
    ["application/connect+json", readBody, grpcFrame(JSON_WITH_SECRET)],
    ["application/connect+proto", writeBody, grpcFrame(UNDECODABLE)],
    ["application/connect+json", writeBody, grpcFrame(JSON_WITH_SECRET)],
    ["application/grpc-web", getToolCall, grpcFrame(UNDECODABLE)],
    ["application/grpc-web+proto", readBody, grpcFrame(UNDECODABLE)],
    ["application/grpc-web+json", getToolCall, grpcFrame(JSON_WITH_SECRET)],
    ["application/grpc-web+json", readBody, grpcFrame(JSON_WITH_SECRET)],
    ["application/grpc-web+json", writeBody, grpcFrame(JSON_WITH_SECRET)],
  ])("as %s for %s are refused without a word of what they are", async (type, method, sent) => {
    const before = server.logLines().length;
    const answer = await post(server.httpAddress, pathOf(method), { "content-type": type }, sent);
    const text = Buffer.from(answer.body, "hex").toString("latin1");
    const said = `the bytes are no ${method.input.typeName}`;
    const isWeb = type.startsWith("application/grpc-web");
    expect(text).toContain(isWeb ? encodeURIComponent(said) : `"message":"${said}"`);
    expect(text).toContain(isWeb ? "grpc-status: 3" : '"code":"invalid_argument"');
    expect(isWeb ? detailsOf(text) : text).toContain("REQUEST_UNDECODABLE");
    expect(text).not.toContain(SECRET_ID);
    const lines = server.logLines().slice(before);
    expect(lines.map(({ msg, reason }) => [msg, reason])).toEqual([
      ["call refused", "REQUEST_UNDECODABLE"],
    ]);
    expect(JSON.stringify(lines)).not.toContain(SECRET_ID);
  });

  test.each(["proto", "json"])("as %s by GET are refused like any others", async (encoding) => {
    const query = `?encoding=${encoding}&base64=1&message=____`;
    const reply = await fetch(`http://${server.httpAddress}${pathOf(getToolCall)}${query}`);
    expect(reply.status).toBe(400);
    expect(await reply.text()).toContain("REQUEST_UNDECODABLE");
  });
});

describe("the form of a reply over HTTP", () => {
  const { getToolCall, readBody } = HistoryService.method;

  test.each([
    ["application/proto", getToolCall, "application/proto"],
    ["application/json", getToolCall, "application/json"],
    ["application/json; charset=utf-8", getToolCall, "application/json"],
    ["application/connect+proto", readBody, "application/connect+proto"],
    ["application/connect+json", readBody, "application/connect+json"],
    ["application/grpc-web", getToolCall, "application/grpc-web+proto"],
    ["application/grpc-web+proto", getToolCall, "application/grpc-web+proto"],
    ["application/grpc-web+json", getToolCall, "application/grpc-web+json"],
  ])("to %s of %s is declared", async (type, method, declared) => {
    const empty = Buffer.from(type.includes("json") ? "{}" : "");
    const isUnary = type.startsWith("application/proto") || type.startsWith("application/json");
    const sent = isUnary ? empty : grpcFrame(empty);
    const answer = await post(server.httpAddress, pathOf(method), { "content-type": type }, sent);
    expect(answer.headers).toMatchObject({ ":status": 200, "content-type": declared });
  });

  test("is binary to a binary GET, and JSON if it is an error", async () => {
    const byGet = (toolCallId: string) => {
      const request = create(GetToolCallRequestSchema, { toolCallId });
      const message = Buffer.from(toBinary(GetToolCallRequestSchema, request)).toString(
        "base64url",
      );
      const query = `?connect=v1&encoding=proto&base64=1&message=${message}`;
      return fetch(`http://${server.httpAddress}${pathOf(getToolCall)}${query}`);
    };
    const reply = await byGet("tc_1");
    expect(reply.headers.get("content-type")).toBe("application/proto");
    const bytes = new Uint8Array(await reply.arrayBuffer());
    expect(fromBinary(GetToolCallResponseSchema, bytes).toolCall?.toolCallId).toBe("tc_1");
    const refused = await byGet("refused");
    expect(refused.headers.get("content-type")).toBe("application/json");
  });
});

describe("native gRPC", () => {
  test("answers a client of grpc-js", async () => {
    const client = new RawGrpcClient(server);
    const request = create(GetToolCallRequestSchema, { sessionId: "ses_1", toolCallId: "tc_1" });
    const reply = await client.unary(
      pathOf(HistoryService.method.getToolCall),
      toBinary(GetToolCallRequestSchema, request),
    );
    expect(reply).toBeInstanceOf(Buffer);
    client.close();
  });

  test("gives a client of grpc-js the ErrorInfo in the trailer for status details", async () => {
    const client = new RawGrpcClient(server);
    const request = create(GetToolCallRequestSchema, { toolCallId: "refused" });
    const path = pathOf(HistoryService.method.getToolCall);
    expect(await client.unary(path, toBinary(GetToolCallRequestSchema, request))).toMatchObject({
      code: "NotFound",
      errorInfo: { reason: "TOOL_CALL_NOT_FOUND", metadata: { tool_call_id: "refused" } },
    });
    client.close();
  });

  test("answers a method that is in no contract with UNIMPLEMENTED", async () => {
    const client = new RawGrpcClient(server);
    const reply = await client.unary("/toolmark.v1.HistoryService/Rewrite", new Uint8Array());
    expect(reply).toMatchObject({ code: "Unimplemented", errorInfo: undefined });
    client.close();
  });
});

describe("the log", () => {
  test("names method, caller and session of a refused call, not what it carried", async () => {
    const transport = TRANSPORTS[0]![1](server);
    const call = createClient(HistoryService, transport).getToolCall({
      sessionId: "ses_audit",
      toolCallId: "refused",
    });
    await failureOf(call);
    const line = server.logLines().find(({ sessionId }) => sessionId === "ses_audit");
    expect(line).toMatchObject({
      level: "info",
      method: "toolmark.v1.HistoryService.GetToolCall",
      status: "NOT_FOUND",
      reason: "TOOL_CALL_NOT_FOUND",
      tenant: "default",
      subject: "loopback",
    });
    expect(JSON.stringify(line)).not.toContain("no such call");
  });

  test("has nothing of the message of what was thrown", () => {
    expect(server.logLines().some(({ msg }) => msg === "fault")).toBe(true);
    expect(JSON.stringify(server.logLines())).not.toContain(SECRET);
  });
});

function bigintAsText(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? String(value) : value;
}

/** The details of a status in trailers of gRPC-Web. */
function detailsOf(trailers: string): string {
  const [, details = ""] = /grpc-status-details-bin: ?(\S+)/.exec(trailers) ?? [];
  return Buffer.from(details, "base64").toString("latin1");
}
