import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { type handleUnaryCall, Server, ServerCredentials } from "@grpc/grpc-js";
import {
  type PublishHookRequest,
  PublishHookRequestSchema,
  type PublishHookResponse,
  PublishHookResponseSchema,
} from "../gen/toolmark/engine/v1/evidence_service_pb.js";
import { PUBLISH_HOOK_PATH } from "./requests.js";

/** The reply that the service would give, with constants for what it mints. */
function echo({ command, sessionId, runId }: PublishHookRequest): PublishHookResponse {
  if (command === undefined) throw new Error("the request has no command");
  return create(PublishHookResponseSchema, {
    hook: {
      hookId: "hk_00000000000000000000000000",
      origin: { sessionId },
      runId,
      revision: 100_000n,
      ...(command.toolCallId === undefined ? {} : { toolCallId: command.toolCallId }),
      phase: command.phase,
      hookName: command.hookName,
      toolName: command.toolName,
      decision: command.decision,
      text: command.text,
      createTime: { seconds: 1_800_000_000n, nanos: 123_000_000 },
    },
  });
}

const answer: handleUnaryCall<PublishHookRequest, PublishHookResponse> = (call, callback) => {
  callback(null, echo(call.request));
};

const { values } = parseArgs({ options: { "ready-file": { type: "string" } } });
const readyFile = values["ready-file"];
if (readyFile === undefined) throw new Error("--ready-file is missing");

const server = new Server();
server.addService(
  {
    publishHook: {
      path: PUBLISH_HOOK_PATH,
      requestStream: false,
      responseStream: false,
      requestSerialize: (request: PublishHookRequest) =>
        Buffer.from(toBinary(PublishHookRequestSchema, request)),
      requestDeserialize: (bytes: Buffer) => fromBinary(PublishHookRequestSchema, bytes),
      responseSerialize: (response: PublishHookResponse) =>
        Buffer.from(toBinary(PublishHookResponseSchema, response)),
      responseDeserialize: (bytes: Buffer) => fromBinary(PublishHookResponseSchema, bytes),
    },
  },
  { publishHook: answer },
);
server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => {
  if (error !== null) throw error;
  writeFileSync(readyFile, JSON.stringify({ grpcAddress: `127.0.0.1:${port}` }));
});
process.once("SIGTERM", () => {
  server.forceShutdown();
});
