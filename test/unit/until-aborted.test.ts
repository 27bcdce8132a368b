import { create } from "@bufbuild/protobuf";
import { StringValueSchema } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { refuse } from "../../src/domain/refusal.js";
import type { Item } from "../../src/rpc/call.js";
import { OpenCall } from "../../src/rpc/open-call.js";
import { UntilAborted } from "../../src/rpc/until-aborted.js";

const ITEM = create(StringValueSchema, { value: "an item" });
const GONE = refuse(ErrorReason.CALLER_GONE, "gone");
const FAULT = new Error("broken");
const DONE = { done: true, value: undefined };

class TestCall extends OpenCall {
  readonly peer = "test";

  constructor() {
    super(HistoryService.method.watchEvents, {
      nowMs: () => 0,
      monotonicMs: () => 0,
      mintCorrelationId: () => "cor",
      draining: new AbortController().signal,
    });
  }

  header(): undefined {
    return undefined;
  }

  protected remainingMs(): number {
    return Infinity;
  }
}

/** An item, then a wait that the test ends. */
function stuckAfterOne() {
  const wait: { resolve: () => void; reject: (fault: Error) => void } = {
    resolve: () => undefined,
    reject: () => undefined,
  };
  const waited = new Promise<void>((resolve, reject) => {
    Object.assign(wait, { resolve, reject });
  });
  const source = { isLeft: false };
  async function* items(): AsyncGenerator<Item> {
    try {
      yield ITEM;
      await waited;
    } finally {
      source.isLeft = true;
    }
  }
  const late: unknown[] = [];
  const call = new TestCall();
  const stream = new UntilAborted(call, items(), (_, fault) => {
    late.push(fault);
    return GONE;
  });
  return { wait, source, late, call, stream };
}

describe("a stream until its call is aborted", () => {
  test("gives the refusal at once to who waits for the next item, and then ends", async () => {
    const { call, stream, source, wait } = stuckAfterOne();
    expect((await stream.next()).value).toBe(ITEM);
    const next = stream.next();
    call.abort(GONE);
    expect(await next).toEqual({ done: false, value: GONE });
    expect(await stream.next()).toEqual(DONE);
    expect(source.isLeft).toBe(false);
    wait.resolve();
    await expect.poll(() => source.isLeft).toBe(true);
  });

  test("gives the refusal in place of the next item, and leaves its source after it", async () => {
    const { call, stream, source } = stuckAfterOne();
    await stream.next();
    call.abort(GONE);
    expect(await stream.next()).toEqual({ done: false, value: GONE });
    expect(source.isLeft).toBe(false);
    expect(await stream.return()).toEqual(DONE);
    expect(source.isLeft).toBe(true);
  });

  test("tells of a fault that comes after the refusal", async () => {
    const { call, stream, late, wait } = stuckAfterOne();
    await stream.next();
    const next = stream.next();
    call.abort(GONE);
    await next;
    wait.reject(FAULT);
    await expect.poll(() => late).toEqual([FAULT]);
    expect(await stream.next()).toEqual(DONE);
  });

  test("passes a fault on while the call goes on", async () => {
    const { stream, late, wait } = stuckAfterOne();
    await stream.next();
    wait.reject(FAULT);
    await expect(stream.next()).rejects.toBe(FAULT);
    expect(await stream.next()).toEqual(DONE);
    expect(late).toEqual([]);
  });

  test("ends with its source, and can be left twice", async () => {
    const { stream, source, wait } = stuckAfterOne();
    wait.resolve();
    await stream.next();
    expect(await stream.next()).toEqual(DONE);
    expect(source.isLeft).toBe(true);
    expect(await stream.return()).toEqual(DONE);
  });
});
