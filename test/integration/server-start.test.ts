import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { ServerReflection } from "../../gen/grpc/reflection/v1/reflection_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { InfoService } from "../../gen/toolmark/v1/info_service_pb.js";
import { PolicyMissingError } from "../../src/rpc/policy.js";
import { AddressUnavailableError } from "../../src/server/address.js";
import { runProcess } from "../support/run-process.js";
import { ROOT } from "../support/source-tree.js";
import { failureOf, pathOf, startTestServer, testConfig } from "./listeners-fixture.js";

const BUF = join(ROOT, "node_modules/.bin/buf");

describe("the start", () => {
  test("stops if nobody decided who may call a method", async () => {
    const starting = startTestServer({}, { policy: {} });
    await expect(starting).rejects.toThrow(PolicyMissingError);
    await expect(starting).rejects.toThrow("toolmark.v1.InfoService.GetServerInfo");
  });

  test.each(["--grpc-address", "--http-address"])(
    "stops if the address of %s is taken, and leaves nothing listening",
    async (flag) => {
      const first = await startTestServer();
      const taken = flag === "--grpc-address" ? first.grpcAddress : first.httpAddress;
      const starting = startTestServer({}, { config: testConfig(flag, taken) });
      await expect(starting).rejects.toThrow(AddressUnavailableError);
      await first.drain();
      const again = await startTestServer({}, { config: testConfig(flag, taken) });
      await again.drain();
    },
  );

  test("refuses a caller without the role that the method needs", async () => {
    const authenticate = () => ({ tenant: "t", subject: "s", roles: { reader: "own" } as const });
    const policy = new Proxy({}, { get: () => ["admin"] });
    const server = await startTestServer({}, { authenticate, policy });
    const transport = createGrpcTransport({ baseUrl: `http://${server.grpcAddress}` });
    const call = createClient(InfoService, transport).getServerInfo({});
    expect(await failureOf(call)).toMatchObject({
      code: "PermissionDenied",
      errorInfo: { reason: "ROLE_MISSING", metadata: { role: "admin" } },
    });
    await server.drain();
  });
});

describe("reflection", () => {
  test.each([
    ["grpc", "grpcAddress"],
    ["connect", "httpAddress"],
    ["grpcweb", "httpAddress"],
  ] as const)("lets buf call over %s without a schema", async (protocol, address) => {
    const server = await startTestServer();
    const url = `http://${server[address]}${pathOf(InfoService.method.getServerInfo)}`;
    const args = ["curl", "--http2-prior-knowledge", "--protocol", protocol, "-d", "{}", url];
    const { code, stdout, stderr } = await runProcess(BUF, args);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(JSON.parse(stdout)).toMatchObject({ version: "1.2.3" });
    await server.drain();
  });

  test("describes a symbol with all that its file imports", async () => {
    const server = await startTestServer();
    const transport = createGrpcTransport({ baseUrl: `http://${server.grpcAddress}` });
    async function* questions() {
      for (const value of [pathOf(HistoryService.method.getToolCall), "no.such.Thing"]) {
        const symbol = value.replace(/^\//, "").replace("/", ".");
        yield { messageRequest: { case: "fileContainingSymbol" as const, value: symbol } };
      }
    }
    const answers = [];
    const client = createClient(ServerReflection, transport);
    for await (const { messageResponse } of client.serverReflectionInfo(questions())) {
      answers.push(messageResponse);
    }
    expect(answers.map((answer) => answer.case)).toEqual([
      "fileDescriptorResponse",
      "errorResponse",
    ]);
    const [described] = answers;
    const files = described?.case === "fileDescriptorResponse" ? described.value : undefined;
    const names = files?.fileDescriptorProto.map((bytes) => Buffer.from(bytes).toString("latin1"));
    expect(names?.some((file) => file.includes("google/protobuf/timestamp.proto"))).toBe(true);
    await server.drain();
  });
});
