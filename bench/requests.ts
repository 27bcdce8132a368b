import { create, type DescMessage, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { type Client, createClient } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { AcceptTurnRequestSchema, CallService } from "../gen/toolmark/engine/v1/call_service_pb.js";
import {
  EvidenceService,
  PublishHookRequestSchema,
} from "../gen/toolmark/engine/v1/evidence_service_pb.js";
import { RunService } from "../gen/toolmark/engine/v1/run_service_pb.js";
import { HookDecision } from "../gen/toolmark/v1/hook_pb.js";
import { StartGate } from "../gen/toolmark/v1/run_pb.js";
import { HistoryService, type WatchEventsResponse } from "../gen/toolmark/v1/history_service_pb.js";
import { SessionKind } from "../gen/toolmark/v1/session_pb.js";
import { SessionService } from "../gen/toolmark/v1/session_service_pb.js";

export const PUBLISH_HOOK_PATH = `/${EvidenceService.typeName}/PublishHook`;
export const ACCEPT_TURN_PATH = `/${CallService.typeName}/AcceptTurn`;
export const WATCH_EVENTS_PATH = `/${HistoryService.typeName}/WatchEvents`;

const ID_PREFIX = "bench-";
const ID_DIGITS = "9999999999";
const REQUEST_ID = ID_PREFIX + ID_DIGITS;
const GRPC_PREFIX_BYTES = 5;

/** Ready frames of equal size, with the place of the digits that make each request id distinct. */
export interface Frames {
  readonly path: string;
  readonly bytes: Buffer;
  readonly frameSize: number;
  readonly idOffset: number;
  readonly idWidth: number;
}

/** A message as gRPC and Connect frame it in a stream. */
export function frame<Desc extends DescMessage>(schema: Desc, message: MessageShape<Desc>): Buffer {
  const body = toBinary(schema, message);
  const prefix = Buffer.alloc(GRPC_PREFIX_BYTES);
  prefix.writeUInt32BE(body.length, 1);
  return Buffer.concat([prefix, body]);
}

function joinFrames(path: string, frames: readonly Buffer[]): Frames {
  const [first] = frames;
  if (first === undefined) throw new Error("no frames");
  const idOffset = first.indexOf(REQUEST_ID) + ID_PREFIX.length;
  for (const other of frames) {
    if (other.length !== first.length || other.indexOf(REQUEST_ID) !== first.indexOf(REQUEST_ID)) {
      throw new Error("frames differ in shape");
    }
  }
  return {
    path,
    bytes: Buffer.concat(frames),
    frameSize: first.length,
    idOffset,
    idWidth: ID_DIGITS.length,
  };
}

/** A session of the service with an active run. */
export interface ActiveRun {
  readonly sessionId: string;
  readonly runId: string;
}

/** What has to exist before the measured requests make sense, made through an ordinary client. */
export class Preparation {
  readonly #connection: Http2SessionManager;
  readonly #sessions: Client<typeof SessionService>;
  readonly #runs: Client<typeof RunService>;
  readonly #calls: Client<typeof CallService>;
  readonly #evidence: Client<typeof EvidenceService>;
  readonly #history: Client<typeof HistoryService>;
  #requests = 0;

  constructor(address: string) {
    const baseUrl = `http://${address}`;
    this.#connection = new Http2SessionManager(baseUrl);
    const transport = createGrpcTransport({ baseUrl, sessionManager: this.#connection });
    this.#sessions = createClient(SessionService, transport);
    this.#runs = createClient(RunService, transport);
    this.#calls = createClient(CallService, transport);
    this.#evidence = createClient(EvidenceService, transport);
    this.#history = createClient(HistoryService, transport);
  }

  async beginRun(): Promise<ActiveRun> {
    const { session } = await this.#sessions.createSession({
      requestId: this.#requestId(),
      kind: SessionKind.MAIN,
    });
    if (session === undefined) throw new Error("CreateSession returned no session");
    const { run } = await this.#runs.beginRun({
      sessionId: session.sessionId,
      requestId: this.#requestId(),
      startGate: StartGate.OFF,
    });
    if (run === undefined) throw new Error("BeginRun returned no run");
    return { sessionId: session.sessionId, runId: run.runId };
  }

  beginRuns(count: number): Promise<ActiveRun[]> {
    return Promise.all(Array.from({ length: count }, () => this.beginRun()));
  }

  async acceptCall(run: ActiveRun): Promise<string> {
    const { toolCalls } = await this.#calls.acceptTurn({
      ...turn(run),
      requestId: this.#requestId(),
    });
    const [call] = toolCalls;
    if (call === undefined) throw new Error("AcceptTurn returned no call");
    return call.toolCallId;
  }

  /** One event about a call. */
  async publishHook(run: ActiveRun, toolCallId: string): Promise<void> {
    await this.#evidence.publishHook({ ...hook(run, toolCallId), requestId: this.#requestId() });
  }

  watchEvents(sessionId: string, cursor = ""): AsyncIterable<WatchEventsResponse> {
    return this.#history.watchEvents({ sessionId, cursor });
  }

  close(): void {
    this.#connection.abort();
  }

  #requestId(): string {
    this.#requests += 1;
    return `prepare-${this.#requests}`;
  }
}

const TEXT = "The command writes below the working folder only; nothing outside it is touched.";
const ARGUMENTS = JSON.stringify({ command: "rg --files src | head -50", timeout_ms: 30_000 });

function turn({ sessionId, runId }: ActiveRun) {
  return {
    sessionId,
    runId,
    requestId: REQUEST_ID,
    command: {
      provider: "anthropic",
      model: "a-model",
      calls: [
        {
          toolName: "bash",
          arguments: { data: new TextEncoder().encode(ARGUMENTS), mediaType: "application/json" },
        },
      ],
    },
  };
}

function hook({ sessionId, runId }: ActiveRun, toolCallId: string) {
  return {
    sessionId,
    runId,
    requestId: REQUEST_ID,
    command: {
      toolCallId,
      phase: "pre_tool_use",
      hookName: "guard-paths",
      toolName: "bash",
      decision: HookDecision.INFO,
      text: TEXT,
    },
  };
}

/** Hook outcomes about one call. */
export function hookFrames(run: ActiveRun, toolCallId: string): Frames {
  const request = create(PublishHookRequestSchema, hook(run, toolCallId));
  return joinFrames(PUBLISH_HOOK_PATH, [frame(PublishHookRequestSchema, request)]);
}

/** Turns of one call each, without a provider id, for each of the sessions in turn. */
export function turnFrames(runs: readonly ActiveRun[]): Frames {
  return joinFrames(
    ACCEPT_TURN_PATH,
    runs.map((run) => frame(AcceptTurnRequestSchema, create(AcceptTurnRequestSchema, turn(run)))),
  );
}
