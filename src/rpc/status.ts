import { create, createRegistry, toBinary, toJsonString } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { ErrorInfoSchema, type ErrorInfo } from "../../gen/google/rpc/error_details_pb.js";
import { StatusSchema, type Status } from "../../gen/google/rpc/status_pb.js";
import type { Refusal } from "../domain/refusal.js";
import { reasonName, STATUS_CODE, STATUS_OF_REASON, type StatusName } from "./error-table.js";

const ERROR_DOMAIN = "toolmark";

/** How a refusal goes over the wire, on every listener. */
export interface RefusalStatus {
  readonly name: StatusName;
  readonly message: string;
  readonly errorInfo: ErrorInfo;
}

export function statusOf(refusal: Refusal): RefusalStatus {
  return {
    name: STATUS_OF_REASON[refusal.reason],
    message: wellFormed(refusal.message),
    errorInfo: create(ErrorInfoSchema, {
      reason: reasonName(refusal.reason),
      domain: ERROR_DOMAIN,
      metadata: { ...refusal.metadata },
    }),
  };
}

/** The encoded google.rpc.Status that gRPC carries in `grpc-status-details-bin`. */
export function statusDetailsOf(status: RefusalStatus): Uint8Array {
  return toBinary(StatusSchema, statusMessageOf(status));
}

/** A google.rpc.Status in protobuf's JSON, for plain HTTP. */
export function statusJsonOf(status: RefusalStatus): string {
  return toJsonString(StatusSchema, statusMessageOf(status), { registry: DETAILS });
}

const DETAILS = createRegistry(ErrorInfoSchema);

function statusMessageOf({ name, message, errorInfo }: RefusalStatus): Status {
  const code = STATUS_CODE[name];
  const details = [anyPack(ErrorInfoSchema, errorInfo)];
  return create(StatusSchema, { code, message, details });
}

/**
 * A lone surrogate, which JSON can carry in, makes the percent-encoding of `grpc-message` throw.
 */
function wellFormed(text: string): string {
  return Buffer.from(text, "utf8").toString("utf8");
}
