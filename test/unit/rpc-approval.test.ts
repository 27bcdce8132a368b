import {
  create,
  toBinary,
  toJsonString,
  type DescMessage,
  type MessageShape,
} from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { WithdrawAskRequestSchema } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import {
  AnswerAskRequestSchema,
  ApprovalService,
  GetAskRequestSchema,
} from "../../gen/toolmark/v1/approval_service_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import type { Principal } from "../../src/domain/principal.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { refuse } from "../../src/domain/refusal.js";
import { viewerOf } from "../../src/rpc/caller.js";
import { accessLog } from "../../src/rpc/middleware/access-log.js";
import { OpenCall } from "../../src/rpc/open-call.js";
import { createLog } from "../../src/server/log.js";
import { startTestService, type TestService } from "../support/service.js";

const ANSWER = {
  requestId: "request 1",
  sessionId: "ses_1",
  askId: "ask_1",
  answerToken: "s3cret-token",
  toolCallId: "tc_1",
  verdict: Verdict.DENY,
  reason: "s3cret-reason",
};

describe("AnswerAsk over HTTP", () => {
  let service: TestService;
  beforeEach(async () => {
    service = await startTestService();
  });
  afterEach(() => service.stop());

  function getUrl<Desc extends DescMessage>(
    method: string,
    desc: Desc,
    message: MessageShape<Desc>,
  ) {
    const url = new URL(`http://${service.httpAddress}/toolmark.v1.ApprovalService/${method}`);
    return {
      json: (): string => {
        url.search = "";
        url.searchParams.set("connect", "v1");
        url.searchParams.set("encoding", "json");
        url.searchParams.set("message", toJsonString(desc, message));
        return url.href;
      },
      binary: (): string => {
        url.search = "";
        url.searchParams.set("connect", "v1");
        url.searchParams.set("encoding", "proto");
        url.searchParams.set("base64", "1");
        const bytes = Buffer.from(toBinary(desc, message)).toString("base64url");
        url.searchParams.set("message", bytes);
        return url.href;
      },
    };
  }

  test("is taken by POST alone", async () => {
    const request = create(AnswerAskRequestSchema, ANSWER);
    const urls = getUrl("AnswerAsk", AnswerAskRequestSchema, request);
    for (const url of [urls.json(), urls.binary()]) {
      for (const method of ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"]) {
        const response = await fetch(url, { method });
        expect(response.status).toBe(405);
        expect(await response.text()).not.toContain("s3cret");
      }
    }
    expect(service.logged()).not.toContain("AnswerAsk");
  });

  test("is what a read beside it need not be", async () => {
    const request = create(GetAskRequestSchema, { sessionId: "ses_1", askId: "ask_1" });
    const urls = getUrl("GetAsk", GetAskRequestSchema, request);
    for (const url of [urls.json(), urls.binary()]) {
      const response = await fetch(url);
      expect(await response.text()).toContain("SESSION_NOT_FOUND");
    }
  });

  test("is not declared to be without side effects", () => {
    const { NO_SIDE_EFFECTS } = MethodOptions_IdempotencyLevel;
    expect(ApprovalService.method.answerAsk.idempotency).not.toBe(NO_SIDE_EFFECTS);
  });
});

class RefusedCall extends OpenCall {
  readonly peer = "test";

  constructor(method: OpenCall["method"], request: NonNullable<OpenCall["request"]>) {
    super(method, {
      nowMs: () => 0,
      monotonicMs: () => 0,
      mintCorrelationId: () => "cor_1",
      draining: new AbortController().signal,
    });
    this.request = request;
  }

  header(): undefined {
    return undefined;
  }

  protected remainingMs(): number {
    return Infinity;
  }
}

function loggedOf(request: NonNullable<OpenCall["request"]>): string {
  const lines: string[] = [];
  const log = createLog("info", { write: (line) => lines.push(line) });
  const call = new RefusedCall(ApprovalService.method.answerAsk, request);
  const refusal = refuse(ErrorReason.ASK_NOT_OPEN, "the ask is settled");
  expect(accessLog(log, () => 0)(call, new Uint8Array(), () => refusal)).toBe(refusal);
  return lines.join("");
}

describe("the audit line of a refused attempt", () => {
  test("names session and ask, and neither token nor reason", () => {
    const line = loggedOf(create(AnswerAskRequestSchema, ANSWER));
    expect(JSON.parse(line)).toMatchObject({ sessionId: "ses_1", askId: "ask_1" });
    expect(line).not.toContain("s3cret");
  });

  test("names the ask of a command", () => {
    const command = { askId: "ask_2", reason: "s3cret-reason" };
    const line = loggedOf(create(WithdrawAskRequestSchema, { sessionId: "ses_1", command }));
    expect(JSON.parse(line)).toMatchObject({ sessionId: "ses_1", askId: "ask_2" });
    expect(line).not.toContain("s3cret");
  });

  test("leaves out what is too long for an id", () => {
    const line = loggedOf(create(AnswerAskRequestSchema, { ...ANSWER, askId: "a".repeat(513) }));
    expect(JSON.parse(line)).not.toHaveProperty("askId");
  });
});

describe("a viewer", () => {
  const viewerWith = (roles: Principal["roles"]) => {
    const principal: Principal = { tenant: "default", subject: "me", roles };
    const method = ApprovalService.method.listAsks;
    return viewerOf({ principal, method });
  };

  test("answers as an approver alone, as far as that role reaches", () => {
    expect(viewerWith({ engine: "tenant" }).approver).toBeUndefined();
    expect(viewerWith({ reader: "own", admin: "tenant" }).approver).toBeUndefined();
    const viewer = viewerWith({ engine: "tenant", approver: "own" });
    expect(viewer.caller.scope).toBe("tenant");
    expect(viewer.approver).toEqual({ tenant: "default", subject: "me", scope: "own" });
  });
});
