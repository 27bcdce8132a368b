import { create, toBinary } from "@bufbuild/protobuf";
import {
  ApplyRequestSchema,
  BeginRunRequestSchema,
  type ApplyRequest,
  type BeginRunRequest,
} from "../../gen/toolmark/engine/v1/run_service_pb.js";
import {
  AnswerAskRequestSchema,
  type AnswerAskRequest,
} from "../../gen/toolmark/v1/approval_service_pb.js";
import {
  CompactSessionRequestSchema,
  CreateSessionRequestSchema,
  EndSessionRequestSchema,
  ForkSessionRequestSchema,
  ImportSessionRequestSchema,
  type CompactSessionRequest,
  type CreateSessionRequest,
  type EndSessionRequest,
  type ForkSessionRequest,
  type ImportSessionRequest,
} from "../../gen/toolmark/v1/session_service_pb.js";
import type { ForkBase } from "../domain/decide/fork-session.js";
import { digestOf } from "../domain/sha256.js";
import type { PreparedAdoption } from "./prepare-adoption.js";
import type { BodyCopy, InheritedRecord, PairingRow, SessionRef } from "./store-port.js";

/** A request that changes an existing session. */
export type SessionMutation =
  | { readonly kind: "apply"; readonly request: ApplyRequest }
  | { readonly kind: "beginRun"; readonly request: BeginRunRequest }
  | { readonly kind: "endSession"; readonly request: EndSessionRequest }
  | Compaction
  | Cancellation
  | { readonly kind: "answerAsk"; readonly request: AnswerAskRequest };

interface CompactionRequest {
  readonly kind: "compactSession";
  readonly request: CompactSessionRequest;
}

/** A request to archive events, with the last one that can be. */
export interface Compaction extends CompactionRequest {
  readonly throughSequence: bigint;
}

interface ForkRequest {
  readonly kind: "forkSession";
  readonly request: ForkSessionRequest;
}

/** A request to copy a session, with the copy. */
export interface Fork extends ForkRequest {
  readonly copy: SessionCopy;
}

/** A request about an existing session, without what has to be made ready for it. */
export type SessionRequest =
  Exclude<SessionMutation, Compaction> | CompactionRequest | ForkRequest | ImportRequest;

/** A session as it stood after an event, made ready to begin another one. */
export interface SessionCopy extends ForkBase {
  readonly newSessionId: string;
  readonly inherited: readonly InheritedRecord[];
  readonly bodyCopies: readonly BodyCopy[];
  readonly pairings: readonly PairingRow[];
}

interface ImportRequest {
  readonly kind: "importSession";
  /** Without parts: retries send others. */
  readonly request: ImportSessionRequest;
}

/** A request to bring in an older session, with that session. */
export interface Import extends ImportRequest {
  readonly adoption: PreparedAdoption;
}

/** Brings in an older session that is only mounted, for a request that reads its log before it is carried out. */
export interface AdoptionOfMounted {
  readonly kind: "adopt";
  readonly session: SessionRef;
}

/** Ends what is unfinished in a session, for a request to end one above it. */
export interface Cancellation {
  readonly kind: "cancelUnfinished";
  readonly request: Pick<EndSessionRequest, "sessionId" | "requestId">;
}

/** A request that makes a session. */
export interface Creation {
  readonly kind: "createSession";
  readonly request: CreateSessionRequest;
}

export type Mutation = SessionMutation | Fork | Creation | Import;

/** Whether a request would be taken up now: asked before it is made ready, which takes time or has effects. */
export interface Trial {
  readonly kind: "try";
  readonly tried: SessionRequest;
}

/** The service's own doing: what has waited long enough expires. It has no request and is not remembered. */
export interface Expiration {
  readonly kind: "expire";
  readonly session: SessionRef;
  /** Records that are due whatever the clock says. */
  readonly dueIds: ReadonlySet<string>;
}

function encodeWithoutRequestId(mutation: SessionRequest | Creation): Uint8Array {
  switch (mutation.kind) {
    case "apply":
      return toBinary(ApplyRequestSchema, { ...mutation.request, requestId: "" });
    case "beginRun":
      return toBinary(BeginRunRequestSchema, { ...mutation.request, requestId: "" });
    case "endSession":
      return toBinary(EndSessionRequestSchema, { ...mutation.request, requestId: "" });
    case "compactSession":
      return toBinary(CompactSessionRequestSchema, { ...mutation.request, requestId: "" });
    case "forkSession":
      return toBinary(ForkSessionRequestSchema, { ...mutation.request, requestId: "" });
    case "importSession":
      return toBinary(ImportSessionRequestSchema, {
        ...mutation.request,
        requestId: "",
        parts: [],
      });
    case "cancelUnfinished":
      return new Uint8Array(0);
    case "answerAsk":
      return toBinary(AnswerAskRequestSchema, { ...mutation.request, requestId: "" });
    case "createSession":
      return toBinary(CreateSessionRequestSchema, { ...mutation.request, requestId: "" });
  }
}

/** What makes two requests with one id the same request: equal after decoding, whatever their encoding was. */
export function mutationDigest(mutation: SessionRequest | Creation): Uint8Array {
  return digestOf([mutation.kind, encodeWithoutRequestId(mutation)]);
}

/** A unary command request as the Apply of one command that it is. */
export function applyOfOne(
  request: Pick<ApplyRequest, "sessionId" | "runId" | "requestId">,
  command: ApplyRequest["commands"][number]["command"],
): SessionMutation {
  const { sessionId, runId, requestId } = request;
  const apply = { sessionId, runId, requestId, commands: [{ command }] };
  return { kind: "apply", request: create(ApplyRequestSchema, apply) };
}
