import { connect as connectHttp2, type ClientHttp2Session } from "node:http2";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { connect as connectTcp } from "node:net";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApprovalService } from "../../gen/toolmark/v1/approval_service_pb.js";
import { InfoService } from "../../gen/toolmark/v1/info_service_pb.js";
import { bindService } from "../../src/rpc/call.js";
import { pathOf, startTestServer, testConfig, type TestServer } from "./listeners-fixture.js";

const RPC = pathOf(InfoService.method.getServerInfo);

let server: TestServer;
let port = 0;

beforeAll(async () => {
  const config = testConfig(
    "--http-allowed-hosts",
    "tools.example",
    "--limit-streams-per-connection",
    "7",
  );
  const binding = [bindService(InfoService, {}), bindService(ApprovalService, {})];
  server = await startTestServer({}, { config, binding });
  port = Number(server.httpAddress.split(":")[1]);
});

afterAll(async () => {
  await server.drain();
});

/** A request with exactly these headers, which fetch would not send. */
async function statusOf(
  headers: Readonly<Record<string, string>>,
  path = "/healthz",
  method = "GET",
): Promise<number | undefined> {
  const request = httpRequest({ host: "127.0.0.1", port, path, method, headers, agent: false });
  request.end();
  const [response] = (await once(request, "response")) as [IncomingMessage];
  await text(response);
  return response.statusCode;
}

describe("the HTTP listener", () => {
  test.each(["localhost", "127.0.0.1", "[::1]", "LOCALHOST:1234", "tools.example"])(
    "serves the host %s",
    async (host) => {
      expect(await statusOf({ host })).toBe(200);
    },
  );

  test.each(["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1"])(
    "does not serve the host %s, to which a page's name may have been bound",
    async (host) => {
      expect(await statusOf({ host })).toBe(403);
    },
  );

  test("does not serve another authority over HTTP/2", async () => {
    const session = connectHttp2(`http://${server.httpAddress}`);
    expect(await statusOver(session, { ":authority": "evil.example" })).toBe(403);
    expect(await statusOver(session, { ":authority": "localhost" })).toBe(200);
    session.close();
  });

  test.each(["http://evil.example", "https://localhost", "http://localhost:3000", "null"])(
    "refuses a page of the origin %s",
    async (origin) => {
      expect(await statusOf({ host: "localhost", origin }, RPC, "POST")).toBe(403);
    },
  );

  test("serves a page of its own origin", async () => {
    const host = `localhost:${String(port)}`;
    expect(await statusOf({ host, origin: `http://${host}` })).toBe(200);
  });

  test.each([
    ["cross-site", "no-cors", 403],
    ["same-site", "no-cors", 403],
    ["cross-site", "navigate", 200],
    ["same-origin", "cors", 200],
    ["none", "navigate", 200],
  ])("answers a fetch that is %s and %s with %i", async (site, mode, status) => {
    const headers = { host: "localhost", "sec-fetch-site": site, "sec-fetch-mode": mode };
    expect(await statusOf(headers)).toBe(status);
  });

  test("sends no CORS header", async () => {
    const reply = await fetch(`http://${server.httpAddress}/healthz`);
    const names = [...reply.headers.keys()];
    expect(names.filter((name) => name.startsWith("access-control-"))).toEqual([]);
  });

  test("answers an unknown path with 404", async () => {
    expect(await statusOf({ host: "localhost" }, "/nowhere")).toBe(404);
  });

  test("takes an answer by POST only", async () => {
    const path = `${pathOf(ApprovalService.method.answerAsk)}?encoding=json&message=%7B%7D`;
    expect(await statusOf({ host: "localhost" }, path)).toBe(405);
  });

  test("serves HTTP/2 whose first bytes come one by one", async () => {
    const socket = connectTcp(port, "127.0.0.1");
    await once(socket, "connect");
    socket.setNoDelay(true);
    for (const byte of "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") {
      socket.write(byte, "latin1");
      await delay(1);
    }
    const [settings] = (await once(socket, "data")) as [Buffer];
    expect(settings[3]).toBe(4);
    socket.destroy();
  });

  test("serves HTTP/1.1 whose first bytes come one by one, P as in the preface first", async () => {
    const socket = connectTcp(port, "127.0.0.1");
    await once(socket, "connect");
    socket.setNoDelay(true);
    for (const byte of "POST /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n") {
      socket.write(byte, "latin1");
      await delay(1);
    }
    const [reply] = (await once(socket, "data")) as [Buffer];
    expect(reply.toString("latin1")).toMatch(/^HTTP\/1\.1 200/);
    socket.destroy();
  });

  test("closes a connection that speaks neither", async () => {
    const socket = connectTcp(port, "127.0.0.1");
    socket.end("PRI * HTTP/3.0\r\n\r\n");
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 (400|505)/);
  });

  test.each(["grpcAddress", "httpAddress"] as const)(
    "announces the limit of streams at %s",
    async (name) => {
      const session = connectHttp2(`http://${server[name]}`);
      await once(session, "remoteSettings");
      expect(session.remoteSettings.maxConcurrentStreams).toBe(7);
      session.destroy();
    },
  );
});

async function statusOver(
  session: ClientHttp2Session,
  headers: Readonly<Record<string, string>>,
): Promise<number | undefined> {
  const stream = session.request({ ":path": "/healthz", ...headers });
  const [reply] = (await once(stream, "response")) as [Record<string, number>];
  stream.resume();
  return reply[":status"];
}
