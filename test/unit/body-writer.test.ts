import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { ApplyRequestSchema } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import { EndSessionRequestSchema } from "../../gen/toolmark/v1/session_service_pb.js";
import { isRefusal, refuse } from "../../src/domain/refusal.js";
import { BodyWriter } from "../../src/ledger/body-writer.js";
import { AskingLedger, type AskingRun } from "../support/asking-ledger.js";
import { WAITING } from "../support/outside-world.js";

const GONE = refuse(ErrorReason.CALLER_GONE, "the caller went away");
const DATA = new Uint8Array(100_000).fill(1);

async function* partsOf(...parts: Uint8Array[]): AsyncGenerator<Uint8Array> {
  for (const part of parts) yield await Promise.resolve(part);
}

async function opened(): Promise<{ asking: AskingLedger; writer: BodyWriter; run: AskingRun }> {
  const asking = new AskingLedger();
  const { store, ledger, options } = asking;
  const writer = new BodyWriter({ store, uploads: ledger.uploads, limits: options.limits });
  return { asking, writer, run: await asking.run() };
}

function headOf({ sessionId }: AskingRun) {
  return { sessionId, mediaType: "", sha256: new Uint8Array(), private: false };
}

async function uploaded(writer: BodyWriter, run: AskingRun, data = DATA): Promise<string> {
  const body = await writer.write(run.caller, headOf(run), partsOf(data), WAITING);
  if (isRefusal(body)) throw new Error(body.message);
  return body.bodyRef;
}

describe("what an upload takes in memory", () => {
  test("is given back when its caller leaves in the middle", async () => {
    const { asking, writer, run } = await opened();
    async function* breaking(): AsyncGenerator<Uint8Array> {
      yield await Promise.resolve(DATA);
      expect(asking.ledger.uploads.sizeBytes).toBeGreaterThan(0);
      throw new Error("cut off");
    }
    const writing = writer.write(run.caller, headOf(run), breaking(), WAITING);
    await expect(writing).rejects.toThrow("cut off");
    expect(asking.ledger.uploads.sizeBytes).toBe(0);
  });

  test("is given back when its caller left at the end", async () => {
    const { asking, writer, run } = await opened();
    const left = { aborted: GONE };
    expect(await writer.write(run.caller, headOf(run), partsOf(DATA), left)).toBe(GONE);
    expect(asking.ledger.uploads.sizeBytes).toBe(0);
  });

  test("is given back when a command that names the body is committed", async () => {
    const { asking, writer, run } = await opened();
    const bodyRef = await uploaded(writer, run);
    expect(asking.ledger.uploads.sizeBytes).toBe(DATA.length);
    const value = { role: MessageRole.USER, content: { bodyRef } };
    const request = create(ApplyRequestSchema, {
      ...{ sessionId: run.sessionId, runId: run.runId, requestId: "names it" },
      commands: [{ command: { case: "recordMessage", value } }],
    });
    const replies = await asking.ledger.submit(run.caller, { kind: "apply", request }, WAITING);
    expect(isRefusal(replies)).toBe(false);
    expect(asking.ledger.uploads.sizeBytes).toBe(0);
    expect((await asking.store.readBody(refOf(run), bodyRef))?.data).toEqual(DATA);
    await uploaded(writer, run);
    expect(asking.ledger.uploads.sizeBytes).toBe(0);
  });

  test("is given back when its session ends, also if that is in the middle", async () => {
    const { asking, writer, run } = await opened();
    await uploaded(writer, run);
    const end = async (): Promise<void> => {
      const { sessionId } = run;
      const request = create(EndSessionRequestSchema, { sessionId, requestId: "end" });
      await asking.ledger.submit(run.caller, { kind: "endSession", request }, WAITING);
    };
    async function* parts(): AsyncGenerator<Uint8Array> {
      yield new Uint8Array(10);
      await end();
    }
    const refusal = await writer.write(run.caller, headOf(run), parts(), WAITING);
    expect(refusal).toMatchObject({ reason: ErrorReason.SESSION_ENDED });
    expect(asking.ledger.uploads.sizeBytes).toBe(0);
  });
});

function refOf({ caller, sessionId }: AskingRun) {
  return { tenant: caller.tenant, sessionId };
}
