import { ConnectError, type Code } from "@connectrpc/connect";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";

/** What a client sees of a refusal. */
export interface Refused {
  readonly code: Code;
  readonly message: string;
  /** Empty if the error carries no ErrorInfo of this service. */
  readonly reason: string;
  readonly metadata: Readonly<Record<string, string>>;
}

/** The refusal of a call that must be refused. */
export async function refused(call: Promise<unknown>): Promise<Refused> {
  const error = await call.then(
    () => undefined,
    (fault: unknown) => fault,
  );
  if (!(error instanceof ConnectError)) throw new Error(`not refused: ${String(error)}`);
  const [info] = error.findDetails(ErrorInfoSchema);
  const { code, rawMessage: message } = error;
  if (info?.domain !== "toolmark") return { code, message, reason: "", metadata: {} };
  return { code, message, reason: info.reason, metadata: info.metadata };
}
