import { create, type Message } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { GetServerInfoResponseSchema, InfoService } from "../../gen/toolmark/v1/info_service_pb.js";
import { InvariantError } from "../../src/domain/invariant.js";
import { refuse } from "../../src/domain/refusal.js";
import { capTimeout } from "../../src/rpc/cap-timeout.js";
import { traceOf } from "../../src/rpc/fault-trace.js";
import { OpenCall, type CallEnvironment } from "../../src/rpc/open-call.js";

class TestCall extends OpenCall {
  readonly peer = "test";

  constructor(
    environment: CallEnvironment,
    readonly leftMs = Infinity,
  ) {
    super(InfoService.method.getServerInfo, environment);
  }

  header(): undefined {
    return undefined;
  }

  protected remainingMs(): number {
    return this.leftMs;
  }
}

function callLeft(leftMs?: number): TestCall {
  let minted = 0;
  return new TestCall(
    {
      nowMs: () => 0,
      monotonicMs: () => 0,
      mintCorrelationId: () => `cor_${(minted += 1)}`,
      draining: new AbortController().signal,
    },
    leftMs,
  );
}

describe("a call", () => {
  test("that was cut off before anyone asked has an aborted signal with the refusal", () => {
    const call = callLeft();
    call.callerLeft();
    expect(call.signal.aborted).toBe(true);
    expect(call.signal.reason).toBe(call.aborted);
    expect(call.aborted?.reason).toBe(ErrorReason.CALLER_GONE);
  });

  test("whose caller hangs up when the time is over has passed its deadline", () => {
    const call = callLeft(1);
    const { signal } = call;
    call.callerLeft();
    expect(signal.reason).toMatchObject({ reason: ErrorReason.DEADLINE_PASSED });
  });

  test("keeps the first reason", () => {
    const call = callLeft();
    call.callerLeft();
    call.abort(refuse(ErrorReason.DRAINING, "late"));
    expect(call.aborted?.reason).toBe(ErrorReason.CALLER_GONE);
  });

  test("cannot be cut off once it is answered", () => {
    const call = callLeft();
    call.finish();
    call.callerLeft();
    expect(call.signal.aborted).toBe(false);
    expect(call.aborted).toBeUndefined();
  });

  test("has one correlation id", () => {
    const call = callLeft();
    expect([call.correlationId, call.correlationId]).toEqual(["cor_1", "cor_1"]);
  });

  test("does not tell a caller before it is verified", () => {
    const call = callLeft();
    expect(call.identified).toBeUndefined();
    expect(() => call.principal).toThrow(InvariantError);
  });

  test("encodes a reply once, and the next one again", () => {
    const call = callLeft();
    const reply = (version: string): Message => create(GetServerInfoResponseSchema, { version });
    const first = reply("1");
    expect(call.encode(first)).toBe(call.encode(first));
    expect(call.encode(reply("2"))).not.toEqual(call.encode(first));
  });
});

describe("a timeout", () => {
  const capped = (headers: Record<string, string>) => {
    capTimeout(headers);
    return headers;
  };

  test.each([
    ["connect-timeout-ms", "2147483647", "2147483647"],
    ["connect-timeout-ms", "2147483648", "2147483647"],
    ["connect-timeout-ms", "soon", "soon"],
    ["grpc-timeout", "2147483S", "2147483S"],
    ["grpc-timeout", "2147484S", "2147483S"],
    ["grpc-timeout", "99999999H", "2147483S"],
    ["grpc-timeout", "50m", "50m"],
    ["grpc-timeout", "99999999n", "99999999n"],
    ["grpc-timeout", "1x", "1x"],
  ])("%s: %s is taken as %s", (name, given, taken) => {
    expect(capped({ [name]: given })).toEqual({ [name]: taken });
  });
});

describe("what is logged of a fault", () => {
  test("leaves out its message and those of its causes, which may quote data", () => {
    const cause = Object.assign(new TypeError("secret-cause"), { code: "ERR_X" });
    const trace = traceOf(new Error("secret\n    at secret-line", { cause }));
    expect(trace).toMatchObject({ name: "Error", cause: { name: "TypeError", code: "ERR_X" } });
    expect(trace.frames.length).toBeGreaterThan(0);
    expect(JSON.stringify(trace)).not.toContain("secret");
  });

  test("names the invariant that broke", () => {
    expect(traceOf(new InvariantError("never so"))).toMatchObject({ invariant: "never so" });
  });

  test("is only the type of what is no error", () => {
    expect(traceOf("secret")).toEqual({ name: "string", frames: [] });
  });
});
