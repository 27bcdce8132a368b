import { request as httpRequest, type IncomingMessage } from "node:http";
import { once } from "node:events";
import { afterEach, beforeEach, expect, test } from "vitest";
import { StoreFault } from "../../src/ledger/store-port.js";
import { createSession } from "../support/conversation.js";
import { FaultyStore } from "../support/faulty-store.js";
import { refused } from "../support/refused.js";
import { startTestService, type TestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

let folder: StoreFolder;
let service: TestService;
let store: FaultyStore;

beforeEach(async () => {
  folder = await makeStoreFolder();
  service = await startTestService({
    store: folder.store,
    wrapStore: (inner) => (store = new FaultyStore(inner)),
  });
});

afterEach(async () => {
  await service.stop();
  await folder.remove();
});

async function scrape({ httpAddress }: TestService): Promise<Map<string, string>> {
  const reply = await fetch(`http://${httpAddress}/metrics`);
  expect(reply.status).toBe(200);
  expect(reply.headers.get("content-type")).toMatch(/^text\/plain; version=0\.0\.4/);
  const lines = (await reply.text()).split("\n");
  const values = lines.filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(values.map((line) => line.split(" ") as [string, string]));
}

test("the page of metrics says what the store does, and names nobody", async () => {
  const clients = service.clients();
  await createSession(clients);
  store.failNext = "before";
  await refused(createSession(clients));
  const found = await scrape(service);
  expect([...found.keys()]).toEqual([
    'toolmark_commits_total{outcome="committed"}',
    ...["command_failed", "full", "busy", "damaged", "lost", "other"].map(
      (outcome) => `toolmark_commits_total{outcome="${outcome}"}`,
    ),
    "toolmark_store_last_position",
    "toolmark_store_database_bytes",
    "toolmark_store_wal_bytes",
    "process_resident_memory_bytes",
    "process_cpu_seconds_total",
  ]);
  expect(found.get('toolmark_commits_total{outcome="committed"}')).toBe("1");
  expect(found.get('toolmark_commits_total{outcome="other"}')).toBe("1");
  expect(Number(found.get("toolmark_store_last_position"))).toBe(
    Number(await store.lastPosition()),
  );
  for (const name of [...found.keys()].slice(-4)) {
    expect(Number(found.get(name))).toBeGreaterThan(0);
  }
});

test("what cannot be read is not a number, and the rest is told all the same", async () => {
  store.lastPosition = () => Promise.reject(new StoreFault("unreadable", new Error("x")));
  const found = await scrape(service);
  expect(found.get("toolmark_store_last_position")).toBe("Nan");
  expect(Number(found.get("toolmark_store_wal_bytes"))).toBeGreaterThan(0);
});

test("a store in memory has no files to tell of", async () => {
  const inMemory = await startTestService();
  const names = [...(await scrape(inMemory)).keys()].join();
  expect(names).toContain("toolmark_store_last_position");
  expect(names).not.toContain("bytes,toolmark_store");
  expect(names).not.toContain("toolmark_store_wal_bytes");
  await inMemory.stop();
});

test.each([
  ["POST", "localhost", 405],
  ["GET", "evil.example", 403],
  ["GET", "localhost", 200],
])("%s for the host %s is answered with %i", async (method, host, status) => {
  const [hostname, port] = service.httpAddress.split(":");
  const headers = { host };
  const request = httpRequest({ hostname, port, method, headers, path: "/metrics", agent: false });
  request.end();
  const [response] = (await once(request, "response")) as [IncomingMessage];
  response.resume();
  expect(response.statusCode).toBe(status);
});
