import { once } from "node:events";
import {
  connect,
  createServer,
  type Http2Server,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import { createConnection, type AddressInfo, type Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { HttpSessions } from "../../src/server/http-sessions.js";

let server: Http2Server;
let sessions: HttpSessions;
let socket: Socket | undefined;

beforeEach(async () => {
  server = createServer();
  sessions = new HttpSessions(server);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
});

afterEach(() => {
  vi.useRealTimers();
  socket?.destroy();
  sessions.destroy();
  server.close();
});

/** A peer that asks for something large and takes nothing of it; the server's session of it. */
async function stalledSession(): Promise<{
  session: ServerHttp2Session;
  closed: Promise<unknown>;
}> {
  const { port } = server.address() as AddressInfo;
  const peer = createConnection(port, "127.0.0.1");
  socket = peer;
  const accepted = once(server, "connection") as Promise<[Socket]>;
  const client = connect(`http://127.0.0.1:${port}`, {
    createConnection: () => peer,
    settings: { initialWindowSize: 2 ** 30 },
  });
  client.on("error", () => undefined);
  const streamed = once(server, "stream");
  client.request({ ":path": "/" }).on("error", () => undefined);
  const [stream] = (await streamed) as [ServerHttp2Stream];
  stream.on("error", () => undefined);
  peer.pause();
  peer.removeAllListeners("data");
  stream.respond();
  for (let count = 0; count < 64; count += 1) stream.write(Buffer.alloc(1024 * 1024));
  const [accepting] = await accepted;
  const session = stream.session as ServerHttp2Session;
  session.close();
  stream.destroy();
  return { session, closed: once(accepting, "close") };
}

describe("a session whose peer takes nothing", () => {
  test("is ended with the others, also when it was destroyed before", async () => {
    const { session, closed } = await stalledSession();
    session.destroy();
    sessions.destroy();
    await closed;
    expect(session.destroyed).toBe(true);
  });

  test("is given up when it answers no ping, and a destroyed one is not pinged", async () => {
    vi.useFakeTimers({ toFake: ["setInterval", "setTimeout", "clearInterval", "clearTimeout"] });
    const { session, closed } = await stalledSession();
    session.destroy();
    await vi.advanceTimersByTimeAsync(45_000);
    await closed;
    expect(session.destroyed).toBe(true);
  });
});
