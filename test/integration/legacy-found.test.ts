import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { LegacySourceFormat } from "../../gen/toolmark/v1/legacy_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { legacyId } from "../../src/domain/identity.js";
import { allAsks, AskWatcher, listedAsks, readAuthorization } from "../support/asking.js";
import { allCalls, allEvents, freshRequestId, given } from "../support/conversation.js";
import {
  askIdOf,
  AUTHORIZATION_ID,
  importOld,
  importRequest,
  OldFolder,
  PRIVATE,
  resultOf,
  snapshotA,
  snapshotB,
  snapshotC,
  type Snapshot,
} from "../support/old-fixtures.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { MovableClock } from "./cases-asks-fixture.js";

// Faults that a user would meet with old sessions.

const FAR = "2126-09-21T12:00:00Z";
const TWO_MIB = 2 * 1024 * 1024;
const PATIENCE_MS = 3000;

let service: TestService;
let clients: Clients;
const clock = new MovableClock();

beforeAll(async () => {
  service = await startTestService({ nowMs: clock.nowMs });
  clients = service.clients();
});

afterAll(() => service.stop());

let sessions = 0;

function freshId(): string {
  sessions += 1;
  return `found-${sessions}`;
}

/** B once its calls were carried out in the older system. */
function snapshotBDone(id: string): Snapshot {
  const { messages, ...before } = snapshotB(id);
  const results = [resultOf(PRIVATE.waiting, "removed a"), resultOf(PRIVATE.behind, "removed b")];
  return { ...before, messages: [...messages, ...results], state: "completed", pending: null };
}

/** What something gives, or that it has not come in time. */
function inTime<T>(coming: Promise<T>): Promise<T | "late"> {
  const late = new Promise<"late">((resolve) => {
    setTimeout(resolve, PATIENCE_MS, "late");
  });
  return Promise.race([coming, late]);
}

/** Whatever a request is answered with, it is no fault of the service. */
async function expectNoFault(request: Promise<unknown>): Promise<void> {
  const outcome = await request.then(
    () => "done",
    (error: unknown) => refused(Promise.reject(error as Error)).then(({ reason }) => reason),
  );
  expect(outcome).not.toMatch(/^(INTERNAL)?$/);
}

describe("what an import brings is told of", () => {
  test("an ask is given to who watches the inbox", async () => {
    const watcher = new AskWatcher(clients, {});
    await watcher.openOnes();
    const id = freshId();
    await importOld(clients, snapshotB(id));
    const shown = await inTime(watcher.nextAsk());
    expect(shown === "late" ? shown : shown.ask.askId).toBe(askIdOf(id));
    watcher.stop();
  });

  test("an ask that newer sources withdraw is given to who watches its session and who awaits it", async () => {
    const id = freshId();
    await importOld(clients, snapshotB(id));
    const watcher = new AskWatcher(clients, { sessionId: id });
    await watcher.openOnes();
    const query = { sessionId: id, askId: askIdOf(id), waitMs: 2000 };
    const awaiting = clients.calls.awaitAsk(query);
    await importOld(clients, snapshotBDone(id));
    const [shown, awaited] = await Promise.all([inTime(watcher.nextAsk()), inTime(awaiting)]);
    expect(shown === "late" ? shown : AskState[shown.ask.state]).toBe("WITHDRAWN");
    expect(awaited === "late" ? awaited : awaited.ask?.state).toBe(AskState.WITHDRAWN);
    watcher.stop();
  });

  test("an ask is given to who watches the inbox when its mounted session is adopted", async () => {
    const folder = await OldFolder.make();
    await folder.put(snapshotB("old B"));
    const mounted = await folder.start();
    const own = mounted.clients();
    const watcher = new AskWatcher(own, {});
    expect(await watcher.openOnes()).toEqual([]);
    await own.sessions.forkSession({ sessionId: "old B", requestId: "fork" });
    const shown = await inTime(watcher.nextAsk());
    expect(shown === "late" ? shown : shown.ask.askId).toBe(askIdOf("old B"));
    watcher.stop();
    await mounted.stop();
    await folder.remove();
  });

  test("an authorization expires when its time is over, though nothing is written", async () => {
    const id = freshId();
    const expiresAt = new Date(clock.nowMs() + 60_000).toISOString();
    await importOld(clients, snapshotC(id, expiresAt));
    clock.aheadMs += 120_000;
    const signal = AbortSignal.timeout(PATIENCE_MS);
    let state = AuthorizationState.PENDING;
    while (state === AuthorizationState.PENDING && !signal.aborted) {
      ({ state } = await readAuthorization(clients, id, AUTHORIZATION_ID));
    }
    expect(AuthorizationState[state]).toBe("EXPIRED");
  });
});

describe("an older snapshot after a newer one", () => {
  test("does not open again a call that has ended, or an ask that was withdrawn", async () => {
    const id = freshId();
    await importOld(clients, snapshotB(id));
    await importOld(clients, snapshotBDone(id));
    await expectNoFault(importOld(clients, snapshotB(id)));
    const states = (await allCalls(clients, id)).map(({ state }) => ToolCallState[state]);
    expect(states).toEqual(["COMPLETED", "COMPLETED", "COMPLETED"]);
    expect((await allAsks(clients, id)).map(({ state }) => AskState[state])).toEqual(["WITHDRAWN"]);
  });

  test("or one with another result does not replace the result that a call has", async () => {
    const id = freshId();
    await importOld(clients, snapshotA(id));
    const before = await allCalls(clients, id);
    const messages = snapshotA(id).messages.with(2, resultOf(PRIVATE.again, "other"));
    const refusal = await refused(importOld(clients, { ...snapshotA(id), messages }));
    expect(refusal.reason).toBe("SESSION_DIVERGED");
    expect(await allCalls(clients, id)).toEqual(before);
  });
});

describe("one old session does not keep others from being listed:", () => {
  const strange: readonly (readonly [string, (id: string) => Snapshot])[] = [
    ["a title of 2 MiB", (id) => snapshotA(id, { title: "t".repeat(TWO_MIB) })],
    ["a question of 2 MiB", (id) => snapshotB(id, { Reason: "t".repeat(TWO_MIB) })],
    ["a time before the year 1", (id) => snapshotA(id, { created_at: "0000-01-01T00:00:00Z" })],
    [
      "a time after the year 9999",
      (id) => snapshotA(id, { created_at: "9999-12-31T23:59:59-23:00" }),
    ],
  ];

  test.each(strange)("%s", async (_, make) => {
    const own = await startTestService();
    for (const wire of ["grpc", "connect-json"] as const) {
      const id = `${wire} session`;
      const sending = own.clients(wire);
      await expectNoFault(importOld(sending, make(id)));
      await expectNoFault(sending.sessions.listSessions({}));
      await expectNoFault(listedAsks(sending, {}));
    }
    await own.stop();
  });

  test("an ask with the id that a call gets", async () => {
    const id = freshId();
    const AskID = legacyId("legacyToolCall", id, "snapshot/1/1");
    await expectNoFault(importOld(clients, snapshotB(id, { AskID })));
    const folder = await OldFolder.make();
    await folder.put(snapshotB(id, { AskID }));
    await folder.put(snapshotA("old A"));
    const mounted = await folder.start();
    await expectNoFault(mounted.clients().sessions.getSession({ sessionId: id }));
    const listing = mounted.clients().sessions.listSessions({});
    const listed = await listing.then(
      ({ sessions: all }) => all.map(({ sessionId }) => sessionId),
      () => [],
    );
    expect(listed).toContain("old A");
    await mounted.stop();
    await folder.remove();
  });

  test("an authorization with the id that a call gets", async () => {
    const id = freshId();
    const parked = snapshotC(id, FAR)["pending_authorization"] as object;
    const authorization = {
      ...{ id: legacyId("legacyToolCall", id, "snapshot/2/0"), display_name: "Mail" },
      ...{ binding: "b", expires_at: FAR },
    };
    const pending = { pending_authorization: { ...parked, authorization } };
    await expectNoFault(importOld(clients, snapshotC(id, FAR, pending)));
  });
});

describe("mounted files", () => {
  async function served(
    fill: (folder: OldFolder) => Promise<unknown>,
    look: (clients: Clients, service: TestService, folder: OldFolder) => Promise<void>,
  ): Promise<void> {
    const folder = await OldFolder.make();
    await fill(folder);
    const mounted = await folder.start();
    try {
      await look(mounted.clients(), mounted, folder);
    } finally {
      await mounted.stop();
      await folder.remove();
    }
  }

  const twins = async (folder: OldFolder) => {
    await folder.put(snapshotA("twin"), "a.session.json");
    await folder.put(snapshotB("twin"), "b.session.json");
  };

  test("of one session are listed once, and reading it is not changed by a list", async () => {
    await served(twins, async (own) => {
      const before = await allCalls(own, "twin");
      const listed = (await own.sessions.listSessions({})).sessions;
      expect(await allCalls(own, "twin")).toEqual(before);
      expect(listed.map(({ sessionId }) => sessionId)).toEqual(["twin"]);
    });
  });

  test("that changed since they were read are read again by the first command", async () => {
    await served(
      (folder) => folder.put(snapshotB("moved on")),
      async (own, _service, folder) => {
        const [first] = await listedAsks(own, { sessionId: "moved on" });
        const shown = given(first, "ask of the session");
        expect(shown.ask.askId).toBe(askIdOf("moved on"));
        await folder.put(snapshotBDone("moved on"));
        const { ask } = shown;
        const request = { sessionId: "moved on", askId: ask.askId, requestId: freshRequestId() };
        const answering = own.approvals.answerAsk({
          ...{ ...request, toolCallId: ask.toolCallId, verdict: Verdict.ALLOW_ONCE },
          answerToken: shown.answerToken,
        });
        expect((await refused(answering)).reason).toBe("ASK_NOT_FOUND");
        const states = (await allCalls(own, "moved on")).map(({ state }) => ToolCallState[state]);
        expect(states).toEqual(["COMPLETED", "COMPLETED", "COMPLETED"]);
      },
    );
  });

  test("that cannot be used are named in the log", async () => {
    await served(twins, async (own, { logged }, folder) => {
      await refused(own.sessions.getSession({ sessionId: "not there" }));
      const warning = logged()
        .split("\n")
        .find((line) => line.includes("cannot be used"));
      expect(warning).toContain(`${folder.path}/b.session.json`);
    });
  });

  test("that cannot be read do not keep right bytes of their session from being imported", async () => {
    const bad = (folder: OldFolder) => folder.putBytes("bad.session.json", Buffer.from("{"));
    await served(bad, async (own) => {
      expect((await importOld(own, snapshotA("bad"))).isNew).toBe(true);
    });
  });

  test("are not adopted by a fork or a compaction that is refused", async () => {
    await served(
      (folder) => folder.put(snapshotB("old B")),
      async (own) => {
        const request = { sessionId: "old B", throughSequence: 99n };
        const forking = own.sessions.forkSession({ ...request, requestId: freshRequestId() });
        expect((await refused(forking)).reason).toBe("FIELD_INVALID");
        expect(await allEvents(own, "old B")).toEqual([]);
      },
    );
  });
});

describe("where a source is malformed is told in bytes:", () => {
  const text = (id: string, message: string) =>
    `{"id":"${id}","state":"idle","messages":[{"role":"user"},${message}]}`;

  test.each([
    ["an element that is null", "null"],
    ["a member that is not there", '{"text":"no role"}'],
  ])("%s", async (_, message) => {
    const id = freshId();
    const bytes = Buffer.from(text(id, message));
    const request = importRequest(id, [[LegacySourceFormat.SNAPSHOT, bytes]]);
    const refusal = await refused(clients.sessions.importSession(request));
    expect(refusal.reason).toBe("SOURCE_MALFORMED");
    expect(refusal.metadata["offset"]).toBe(String(bytes.indexOf(message)));
  });
});
