import { readdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import type { Hook } from "../../gen/toolmark/v1/hook_pb.js";
import {
  ReviewAssessment,
  ReviewDisposition,
  ReviewInspection,
  ReviewJob,
} from "../../gen/toolmark/v1/review_pb.js";
import { RunOutcome } from "../../gen/toolmark/v1/run_pb.js";
import { publishReview, reviewOf } from "../support/asking.js";
import {
  acceptCall,
  allEvents,
  beginRun,
  endRun,
  given,
  of,
  openRun,
  publishHook,
  type OpenRun,
} from "../support/conversation.js";
import { expectNothingWritten } from "../support/nothing-written.js";
import { refused, type Refused } from "../support/refused.js";
import { startTestService, WIRES, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

const JOBS = [ReviewJob.ACTION, ReviewJob.PERMISSION, ReviewJob.INBOUND] as const;

let folder: StoreFolder;
let service: TestService;
/** What the services of this file logged before the one that runs. */
let loggedBefore = "";

beforeAll(async () => {
  folder = await makeStoreFolder();
  service = await startTestService({ store: folder.store });
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

async function restart(): Promise<void> {
  await service.stop();
  loggedBefore += service.logged();
  service = await startTestService({ store: folder.store });
}

async function readHook({ history }: Clients, sessionId: string, hookId: string): Promise<Hook> {
  return given((await history.getHook({ sessionId, hookId })).hook, "hook");
}

async function openCall(clients: Clients) {
  const run = await openRun(clients);
  const { sessionId } = run;
  const { toolCallId } = await acceptCall(clients, run);
  return { run, sessionId, toolCallId };
}

function emissionsIn(events: readonly Event[], hookId: string): Hook[] {
  return events.flatMap(({ record }) =>
    record?.record.case === "hook" && record.record.value.hookId === hookId
      ? [record.record.value]
      : [],
  );
}

describe("the record of a review", () => {
  test("has the id of its review, the same for the same call and job", async () => {
    const clients = service.clients();
    const { run, toolCallId } = await openCall(clients);
    const first = await publishReview(clients, run, reviewOf(toolCallId, { checker: "one" }));
    const other = reviewOf(toolCallId, { checker: "two", reviewId: first.hookId });
    const second = await publishReview(service.clients("connect-json"), run, other);
    expect(first.hookId).toMatch(/^rv_[0-9a-z]{26}$/);
    expect(first.review?.reviewId).toBe(first.hookId);
    expect(second.hookId).toBe(first.hookId);
    expect(second.review?.reviewId).toBe(first.hookId);
    expect(second.review?.checker).toBe("two");
    expect(second.revision).toBe(given(first.revision, "revision") + 1n);
    expect(second.createTime).toEqual(first.createTime);
    await restart();
    const third = await publishReview(service.clients(), run, reviewOf(toolCallId));
    expect(third.hookId).toBe(first.hookId);
  });

  test("is one of three for the three jobs of a call, and another for another call", async () => {
    const clients = service.clients();
    const { run, sessionId, toolCallId } = await openCall(clients);
    const other = await acceptCall(clients, run);
    const published: Hook[] = [];
    for (const id of [toolCallId, other.toolCallId]) {
      for (const job of JOBS) {
        published.push(await publishReview(clients, run, reviewOf(id, { job })));
      }
    }
    expect(new Set(published.map(({ hookId }) => hookId)).size).toBe(6);
    for (const toolCallOf of [toolCallId, other.toolCallId]) {
      const { hooks } = await clients.history.listHooks({ sessionId, toolCallId: toolCallOf });
      expect(hooks.map(({ review }) => review?.job)).toEqual(JOBS);
      expect(hooks).toEqual(published.filter((hook) => hook.toolCallId === toolCallOf));
    }
  });

  test("shows the last emission, and the log keeps each", async () => {
    const clients = service.clients();
    const { run, sessionId, toolCallId } = await openCall(clients);
    const dispositions = [
      ReviewDisposition.ASK_ACTION,
      ReviewDisposition.DENY,
      ReviewDisposition.EXECUTE,
    ];
    const published: Hook[] = [];
    for (const disposition of dispositions) {
      published.push(await publishReview(clients, run, reviewOf(toolCallId, { disposition })));
    }
    const [{ hookId }] = published as [Hook];
    expect(await readHook(clients, sessionId, hookId)).toEqual(published[2]);
    const { hooks } = await clients.history.listHooks({ sessionId });
    expect(hooks).toEqual([published[2]]);
    expect(emissionsIn(await allEvents(clients, sessionId), hookId)).toEqual(published);
    await restart();
    const after = service.clients();
    expect(emissionsIn(await allEvents(after, sessionId), hookId)).toEqual(published);
    expect(await readHook(after, sessionId, hookId)).toEqual(published[2]);
  });

  test("is found by the same lookup as that of a hook, over every wire", async () => {
    const clients = service.clients();
    const { run, sessionId, toolCallId } = await openCall(clients);
    const review = await publishReview(clients, run, reviewOf(toolCallId));
    const hook = await publishHook(clients, run, toolCallId);
    expect(hook.hookId).toMatch(/^hk_/);
    for (const wire of WIRES) {
      for (const { hookId, revision } of [review, hook]) {
        const read = await readHook(service.clients(wire), sessionId, hookId);
        expect(read).toMatchObject({ hookId, revision, toolCallId });
      }
    }
    for (const hookId of ["rv_00000000000000000000000000", "hk_00000000000000000000000000"]) {
      const refusal = await refused(readHook(clients, sessionId, hookId));
      expect(refusal).toMatchObject({ code: Code.NotFound, reason: "HOOK_NOT_FOUND" });
    }
  });

  test("is that of the ended call too, and changes nothing of it", async () => {
    const clients = service.clients();
    const { run, sessionId, toolCallId } = await openCall(clients);
    const first = await publishReview(clients, run, reviewOf(toolCallId));
    await endRun(clients, run, { outcome: RunOutcome.FAILED });
    const { toolCall } = await clients.history.getToolCall({ sessionId, toolCallId });
    const nextRun = await beginRun(clients, sessionId);
    const again = await publishReview(clients, nextRun, reviewOf(toolCallId));
    expect(again).toMatchObject({ hookId: first.hookId, runId: nextRun.runId });
    const after = await clients.history.getToolCall({ sessionId, toolCallId });
    expect(after.toolCall).toEqual(toolCall);
  });
});

describe("the detail of a review", () => {
  const MARKER = "a rationale that nothing may keep 7f3a91";

  async function detailOf({ history }: Clients, sessionId: string, reviewId: string) {
    return (await history.getReviewDetail({ sessionId, reviewId })).detail;
  }

  /** The files of the store that have the text in their bytes. */
  async function filesWith(text: string): Promise<string[]> {
    const names = await readdir(dirname(folder.path));
    const found: string[] = [];
    for (const name of names) {
      const content = await readFile(join(dirname(folder.path), name));
      if (content.includes(text)) found.push(name);
    }
    return found;
  }

  test("is shown while it is live, is kept by a review that brings none, and is replaced", async () => {
    const clients = service.clients();
    const { run, sessionId, toolCallId } = await openCall(clients);
    const { hookId } = await publishReview(clients, run, reviewOf(toolCallId));
    expect(await detailOf(clients, sessionId, hookId)).toBe("");
    await publishReview(clients, run, reviewOf(toolCallId, {}, { detail: "first" }));
    for (const wire of WIRES) {
      expect(await detailOf(service.clients(wire), sessionId, hookId)).toBe("first");
    }
    await publishReview(clients, run, reviewOf(toolCallId));
    expect(await detailOf(clients, sessionId, hookId)).toBe("first");
    await publishReview(clients, run, reviewOf(toolCallId, {}, { detail: "second" }));
    expect(await detailOf(clients, sessionId, hookId)).toBe("second");
  });

  test("is that of its job alone", async () => {
    const clients = service.clients();
    const { run, sessionId, toolCallId } = await openCall(clients);
    const ids: string[] = [];
    for (const job of JOBS) {
      const review = reviewOf(toolCallId, { job }, { detail: ReviewJob[job] });
      ids.push((await publishReview(clients, run, review)).hookId);
    }
    const details = await Promise.all(ids.map((id) => detailOf(clients, sessionId, id)));
    expect(details).toEqual(["ACTION", "PERMISSION", "INBOUND"]);
  });

  test("is in no file and no line of the log, and gone after a restart", async () => {
    const clients = service.clients();
    const { run, sessionId, toolCallId } = await openCall(clients);
    const text = "a text that is kept 5c20de";
    const review = reviewOf(toolCallId, {}, { detail: MARKER, text });
    const { hookId } = await publishReview(clients, run, review);
    const inApply = { case: "publishReview" as const, value: review };
    await clients.runs.apply({ ...of(run), commands: [{ command: inApply }] });
    expect(await detailOf(clients, sessionId, hookId)).toBe(MARKER);
    expect(await filesWith(MARKER)).toEqual([]);
    // The same look finds what is stored.
    expect((await filesWith(text)).length).toBeGreaterThan(0);
    await restart();
    expect(await detailOf(service.clients(), sessionId, hookId)).toBe("");
    expect(await filesWith(MARKER)).toEqual([]);
    expect(loggedBefore + service.logged()).not.toContain(MARKER);
    expect((await readHook(service.clients(), sessionId, hookId)).text).toBe(text);
  });

  test("is not shown of a review that was refused", async () => {
    const clients = service.clients();
    const { run, sessionId, toolCallId } = await openCall(clients);
    const { hookId } = await publishReview(clients, run, reviewOf(toolCallId));
    const wrong = reviewOf(toolCallId, { reviewId: "rv_1" }, { detail: MARKER });
    await refused(publishReview(clients, run, wrong));
    expect(await detailOf(clients, sessionId, hookId)).toBe("");
  });

  test("is asked for by the id of a review of the session", async () => {
    const clients = service.clients();
    const { run, sessionId, toolCallId } = await openCall(clients);
    const hook = await publishHook(clients, run, toolCallId);
    const other = await openCall(clients);
    const foreign = await publishReview(clients, other.run, reviewOf(other.toolCallId));
    for (const id of ["rv_00000000000000000000000000", hook.hookId, foreign.hookId]) {
      const refusal = await refused(detailOf(clients, sessionId, id));
      expect(refusal).toMatchObject({ code: Code.NotFound, reason: "HOOK_NOT_FOUND" });
    }
  });
});

describe("a review that cannot be", () => {
  let run: OpenRun;
  let toolCallId = "";

  beforeAll(async () => {
    ({ run, toolCallId } = await openCall(service.clients()));
  });

  async function expectRefusal(
    command: Parameters<typeof publishReview>[2],
    expected: Omit<Refused, "message">,
  ): Promise<void> {
    const clients = service.clients();
    const refusal = await expectNothingWritten(service, run.sessionId, (requestId) =>
      clients.evidence.publishReview({ ...of(run, requestId), command }),
    );
    expect(refusal).toMatchObject(expected);
  }

  const invalid = (field: string, rule: string) => ({
    ...{ code: Code.InvalidArgument, reason: "FIELD_INVALID", metadata: { field, rule } },
  });

  test.each(["rv_00000000000000000000000000", "hk_00000000000000000000000000", "other"])(
    "has the id %s: REVIEW_ID_MISMATCH",
    async (reviewId) => {
      await expectRefusal(reviewOf(toolCallId, { reviewId }), {
        ...{ code: Code.InvalidArgument, reason: "REVIEW_ID_MISMATCH" },
        metadata: { field: "command.review.review_id" },
      });
    },
  );

  test("has the id of another job or of another call: REVIEW_ID_MISMATCH", async () => {
    const clients = service.clients();
    const inbound = await publishReview(
      ...([clients, run, reviewOf(toolCallId, { job: ReviewJob.INBOUND })] as const),
    );
    const other = await acceptCall(clients, run);
    const ofOther = await publishReview(clients, run, reviewOf(other.toolCallId));
    for (const { hookId: reviewId } of [inbound, ofOther]) {
      await expectRefusal(reviewOf(toolCallId, { reviewId }), {
        ...{ code: Code.InvalidArgument, reason: "REVIEW_ID_MISMATCH" },
        metadata: { field: "command.review.review_id" },
      });
    }
  });

  test("was born in another session: ORIGIN_MISMATCH", async () => {
    const { sessionId } = await openRun(service.clients());
    await expectRefusal(reviewOf(toolCallId, {}, { origin: { sessionId } }), {
      ...{ code: Code.InvalidArgument, reason: "ORIGIN_MISMATCH" },
      metadata: { field: "command.origin" },
    });
  });

  test.each([ReviewAssessment.ACCEPTABLE, ReviewAssessment.PROHIBITED])(
    "finds something (%i) though the inspection failed",
    async (assessment) => {
      const inspection = ReviewInspection.OPERATIONAL_FAILURE;
      const rule = "must be UNRESOLVED if inspection is OPERATIONAL_FAILURE";
      const review = reviewOf(toolCallId, { inspection, assessment });
      await expectRefusal(review, invalid("command.review.assessment", rule));
    },
  );

  test("while a failed one that is UNRESOLVED is kept as it is", async () => {
    const clients = service.clients();
    const inspection = ReviewInspection.OPERATIONAL_FAILURE;
    const assessment = ReviewAssessment.UNRESOLVED;
    const disposition = ReviewDisposition.CONTINUE_WARNING;
    const failed = reviewOf(toolCallId, { inspection, assessment, disposition });
    const { hookId } = await publishReview(clients, run, failed);
    const { review } = await readHook(clients, run.sessionId, hookId);
    expect(review).toMatchObject({ inspection, assessment, disposition, reviewId: hookId });
  });

  test("has a disposition of another job", async () => {
    const disposition = ReviewDisposition.WITHHOLD_RESULT;
    const review = reviewOf(toolCallId, { disposition });
    await expectRefusal(
      review,
      invalid("command.review.disposition", "must be one of the job ACTION"),
    );
  });

  test("is of a call of another session: TOOL_CALL_NOT_FOUND", async () => {
    const other = await openCall(service.clients());
    await expectRefusal(reviewOf(other.toolCallId), {
      ...{ code: Code.NotFound, reason: "TOOL_CALL_NOT_FOUND", metadata: {} },
    });
  });
});
