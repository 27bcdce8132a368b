import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { beforeAll, describe, expect, test } from "vitest";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../../gen/google/rpc/status_pb.js";
import { ErrorReason, ErrorReasonSchema } from "../../gen/toolmark/v1/errors_pb.js";
import { refuse } from "../../src/domain/refusal.js";
import { reasonName, STATUS_CODE, STATUS_OF_REASON } from "../../src/rpc/error-table.js";
import { statusDetailsOf, statusOf } from "../../src/rpc/status.js";
import { ROOT } from "../support/source-tree.js";

/**
 * The status that the contract's comment promises for each reason: the first word in capitals above
 * it.
 */
let promised = new Map<string, string>();

beforeAll(async () => {
  const contract = await readFile(join(ROOT, "proto/toolmark/v1/errors.proto"), "utf8");
  const entry = /((?: {2}\/\/.*\n)+) {2}ERROR_REASON_(\w+) = \d+;/g;
  promised = new Map(
    [...contract.matchAll(entry)].map(([, comment, name]) => {
      return [name ?? "", /([A-Z_]+)\./.exec(comment ?? "")?.[1] ?? ""];
    }),
  );
});

describe("the status of a reason", () => {
  const sent = ErrorReasonSchema.values.filter(({ number }) => number !== 0);

  test.each(sent)("is what the contract says: $name", ({ localName }) => {
    const reason = ErrorReason[localName as keyof typeof ErrorReason];
    expect(STATUS_OF_REASON[reason]).toBe(promised.get(localName));
  });

  test("is checked for every reason of the contract", () => {
    expect(sent.length).toBeGreaterThan(50);
    expect(promised.size).toBe(sent.length + 1);
  });

  test("is named without the enum's prefix", () => {
    expect(reasonName(ErrorReason.RUN_ACTIVE)).toBe("RUN_ACTIVE");
  });
});

describe("a refusal on the wire", () => {
  test("carries domain, reason and metadata in google.rpc.ErrorInfo", () => {
    const refusal = refuse(ErrorReason.RUN_ACTIVE, "a run is active", { run_id: "run_1" });
    const status = statusOf(refusal);
    const decoded = fromBinary(StatusSchema, statusDetailsOf(status));
    expect(decoded).toMatchObject({
      code: STATUS_CODE.FAILED_PRECONDITION,
      message: "a run is active",
    });
    const [detail] = decoded.details;
    expect(anyUnpack(detail!, ErrorInfoSchema)).toMatchObject({
      domain: "toolmark",
      reason: "RUN_ACTIVE",
      metadata: { run_id: "run_1" },
    });
  });

  test("has a well-formed message, which percent-encoding needs", () => {
    const { message } = statusOf(refuse(ErrorReason.FIELD_INVALID, "bad \ud800 text"));
    expect(() => encodeURI(message)).not.toThrow();
  });
});
