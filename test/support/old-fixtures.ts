import { createHash } from "node:crypto";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fromBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { BaseStateSchema, type BaseState } from "../../gen/toolmark/v1/base_state_pb.js";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { LegacySourceFormat, type Adopted } from "../../gen/toolmark/v1/legacy_pb.js";
import type {
  ImportSessionRequestSchema,
  ImportSessionResponse,
} from "../../gen/toolmark/v1/session_service_pb.js";
import { allEvents, freshRequestId, given } from "./conversation.js";
import { readBytes } from "./forking.js";
import { startTestService, type Clients, type TestServiceOptions } from "./service.js";

/** What providers called things in the fixtures: nobody but the harness may ever see one. */
export const PRIVATE = {
  again: "toolu_Again7Q",
  item: "fc_ItemOf7Q",
  done: "toolu_Done4X",
  waiting: "toolu_Waiting9K",
  behind: "toolu_Behind2M",
  twin: "toolu_Twin6P",
  parent: "toolu_Parent3V",
  reasoning: "thought-that-is-private",
} as const;

export const RUN = "run-of-old-7";

export function oldCall(ID: string, Name = "bash", Args: object | null = { of: Name }, item = "") {
  return { ID, Name, Args, ...(item === "" ? {} : { item_id: item }) };
}

export function said(role: string, text: string, more: object = {}) {
  return { role, text, ...more };
}

export function calling(...calls: readonly object[]) {
  return { role: "assistant", tool_calls: calls };
}

export function resultOf(CallID: string, Content: string, IsError = false, more: object = {}) {
  return { role: "tool", tool_result: { CallID, Content, IsError, ...more } };
}

export type Snapshot = Record<string, unknown> & {
  readonly id: string;
  readonly messages: readonly object[];
};

/** A: completed turns; the provider's id of the first call comes again in the second turn. */
export function snapshotA(id: string, more: object = {}): Snapshot {
  return {
    ...{ id, state: "completed", kind: "main", title: `title of ${id}`, run_id: RUN },
    ...{ provider_id: "acme", model_id: "acme-1", created_at: "2026-09-21T12:00:00.5Z" },
    messages: [
      said("user", "what is here?"),
      calling(oldCall(PRIVATE.again, "list", { path: "a" }, PRIVATE.item)),
      resultOf(PRIVATE.again, "two files"),
      calling(oldCall(PRIVATE.again, "list", { path: "b" })),
      resultOf(PRIVATE.again, "no such folder", true),
      said("assistant", "there are two files", { reasoning: PRIVATE.reasoning }),
    ],
    ...more,
  };
}

/** The id of the ask of B. That of the older system's own form would hold the provider's id of the call. */
export function askIdOf(session: string): string {
  return `ask of ${session}`;
}

/** B: a turn of three calls, of which the second waits for an answer. `pending` changes what is asked. */
export function snapshotB(id: string, pending: object = {}, more: object = {}): Snapshot {
  return {
    ...{ id, state: "awaiting", kind: "main", title: "", run_id: RUN },
    messages: [
      said("user", "tidy up"),
      calling(
        oldCall(PRIVATE.done, "read", { path: "a" }),
        oldCall(PRIVATE.waiting, "bash", { command: "rm a" }),
        oldCall(PRIVATE.behind, "bash", { command: "rm b" }),
      ),
      resultOf(PRIVATE.done, "content of a"),
    ],
    pending: {
      ...{ AskID: askIdOf(id), Tool: "bash", Args: { command: "rm a" }, Reason: "may it run?" },
      ...{ call: PRIVATE.waiting, origin: "permission", ...pending },
    },
    ...more,
  };
}

/** What B2 to B5 say of the ask; a key that is undefined is not there. */
export const PENDING = {
  B2: { origin: undefined, plan_originated: true },
  B3: {
    origin: "hook_guardrail",
    guardrail: { ReviewID: "review-1", Kind: "action", GrantDigest: "d", SessionOnly: true },
  },
  B4: {
    ...{ origin: "hook_guardrail", Args: null },
    guardrail: { ReviewID: "review-2", Kind: "result_release", GrantDigest: "" },
  },
  B5: { call: undefined },
} as const;

/** Arguments that no writing of JSON keeps. */
export const EXACT_ARGUMENTS = '{"to" : "<&\u2028>" ,\r\n"n":1e400}';
export const AUTHORIZATION_ID = "authorization-of-mail";

/** C: a call that waits for a consent with two behind it, one of which has an id of an earlier turn. */
export function snapshotC(id: string, expiresAt: string, more: object = {}): Snapshot {
  const parked = (call: string, name: string, args: string) => {
    return { id: call, name, args: Buffer.from(args).toString("base64") };
  };
  return {
    ...{ id, state: "authorizing", kind: "main", run_id: RUN },
    messages: [
      calling(oldCall(PRIVATE.again, "list", { path: "a" })),
      resultOf(PRIVATE.again, "two files"),
      calling(
        oldCall(PRIVATE.waiting, "mail", { to: "original" }),
        oldCall(PRIVATE.again, "list", { path: "b" }),
        oldCall(PRIVATE.behind, "bash", { command: "ls" }),
      ),
    ],
    pending_authorization: {
      authorization: {
        ...{ id: AUTHORIZATION_ID, display_name: "Mail", binding: "binding" },
        expires_at: expiresAt,
      },
      call: parked(PRIVATE.waiting, "mail", EXACT_ARGUMENTS),
      deferred: [
        parked(PRIVATE.again, "list", '{"path": "b"}'),
        parked(PRIVATE.behind, "bash", '{"command":"ls"}'),
      ],
    },
    ...more,
  };
}

/** D: two calls of a turn with one id, and one result. With an ask about that id, if `isAsked`. */
export function snapshotD(id: string, isAsked = false): Snapshot {
  const messages = [
    calling(
      oldCall(PRIVATE.twin, "bash", { command: "one" }),
      oldCall(PRIVATE.twin, "bash", { command: "two" }),
    ),
    ...(isAsked ? [] : [resultOf(PRIVATE.twin, "of one of them")]),
  ];
  const pending = {
    ...{ AskID: askIdOf(id), Tool: "bash", Args: { command: "one" }, Reason: "may it run?" },
    ...{ call: PRIVATE.twin, origin: "permission" },
  };
  return {
    ...{ id, kind: "main", state: isAsked ? "awaiting" : "completed", messages },
    ...(isAsked ? { pending } : {}),
  };
}

/** E: a branch that works for a call of a parent, with an ask that begins with the branch's own id. */
export function snapshotE(id: string, parent: string): Snapshot {
  return {
    ...{ id, kind: "parallel_branch", state: "awaiting", run_id: RUN },
    relationship: { parent_session_id: parent, call_id: PRIVATE.parent, branch_index: 2 },
    messages: [calling(oldCall(PRIVATE.waiting, "bash", { command: "branch" }))],
    pending: {
      ...{ AskID: `${id}:0:first`, Tool: "bash", Args: { command: "branch" }, Reason: "branch?" },
      ...{ call: PRIVATE.waiting, origin: "permission" },
    },
  };
}

const EVENT_KEYS = [
  ...["Title", "ToolCall", "ToolResult", "Ask", "ModelRetry", "RequestManifest"],
  ...["NetworkAttempt", "Authorization", "Result", "TurnEnd", "Hook", "Approval"],
  ...["CompactionArchive", "UserPrompt", "Usage", "Subagent", "Team", "Parallel", "Actor"],
  ...["Schedule", "Steer"],
];

/** A line of a log: an event with every absent payload as null. */
export function oldEvent(Type: string, payload: object = {}, at: object = {}): string {
  const nothing = Object.fromEntries(EVENT_KEYS.map((key) => [key, null]));
  const place = { Seq: 1, Turn: 1, Text: "", RunID: RUN };
  return JSON.stringify({ Type, ...place, ...nothing, ...payload, ...at });
}

/** F: a turn of two calls with hooks, an ask that was allowed in the older system, and a line that is not known. */
export function logF(): string[] {
  const hook = (Decision: string, Phase: string, CallID: string) => ({
    Hook: { Phase, Tool: "bash", Decision, CallID, Guardrail: null },
  });
  const { waiting, done } = PRIVATE;
  return [
    oldEvent("user_prompt", { UserPrompt: { Text: "tidy up", Parts: null } }),
    oldEvent("turn.start"),
    oldEvent("message.delta", {}, { Text: "I shall ", Seq: 2 }),
    oldEvent("message.delta", {}, { Text: "tidy up", Seq: 9 }),
    oldEvent("tool.call", { ToolCall: oldCall(done, "read", { path: "a" }) }),
    oldEvent("tool.call", { ToolCall: oldCall(waiting, "bash", { command: "rm a" }) }),
    oldEvent("hook", hook("modified", "PostToolUse", done), { Text: "cut" }),
    oldEvent("hook", hook("advisory", "PostToolUse", done), { Text: "long" }),
    oldEvent("tool.result", { ToolResult: { CallID: done, Content: "a", IsError: false } }),
    oldEvent("permission.ask", {
      Ask: { AskID: "old ask", Tool: "bash", Args: { command: "rm a" }, Reason: "may it?" },
    }),
    oldEvent("approval", {
      Approval: {
        ...{ AskID: "old ask", Verdict: "allow_once", Tool: "bash", Call: waiting },
        AllowAlways: false,
      },
    }),
    JSON.stringify({ v: "eventlog-gap/1", r: "append failed" }),
    oldEvent("future.event", {}, { Text: "not known" }),
  ];
}

export type Sources = readonly (readonly [format: LegacySourceFormat, data: Buffer])[];

export function bytesOfSnapshot(snapshot: object): Buffer {
  return Buffer.from(JSON.stringify(snapshot));
}

export function bytesOfLog(lines: readonly string[]): Buffer {
  return Buffer.from(lines.map((line) => `${line}\n`).join(""));
}

export function sourcesOf(snapshot: object | undefined, log?: readonly string[]): Sources {
  const { SNAPSHOT, EVENT_LOG } = LegacySourceFormat;
  return [
    ...(snapshot === undefined ? [] : [[SNAPSHOT, bytesOfSnapshot(snapshot)] as const]),
    ...(log === undefined ? [] : [[EVENT_LOG, bytesOfLog(log)] as const]),
  ];
}

export type ImportInit = MessageInitShape<typeof ImportSessionRequestSchema>;

/** The request that imports sources at once. */
export function importRequest(
  sessionId: string,
  sources: Sources,
  requestId = freshRequestId(),
): Exclude<ImportInit, { $typeName: string }> {
  return {
    ...{ requestId, sessionId },
    sources: sources.map(([format, data]) => {
      const sha256 = createHash("sha256").update(data).digest();
      return { format, sizeBytes: BigInt(data.length), sha256 };
    }),
    parts: sources.map(([format, data]) => ({ format, offsetBytes: 0n, data })),
  };
}

/** Imports a session whole. */
export async function importOld(
  { sessions }: Clients,
  snapshot: Snapshot,
  requestId = freshRequestId(),
): Promise<ImportSessionResponse> {
  return sessions.importSession(importRequest(snapshot.id, sourcesOf(snapshot), requestId));
}

/** A folder of the older system, and a service that has it mounted. */
export class OldFolder {
  private constructor(readonly path: string) {}

  static async make(): Promise<OldFolder> {
    return new OldFolder(await mkdtemp(join(tmpdir(), "toolmark-old-")));
  }

  /** Puts a snapshot there, under a name of its own if one is given. */
  async put(snapshot: Snapshot, name = `${snapshot.id}.session.json`): Promise<string> {
    return this.putBytes(name, bytesOfSnapshot(snapshot));
  }

  async putBytes(name: string, data: Buffer): Promise<string> {
    const path = join(this.path, name);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, data);
    return path;
  }

  start(options: TestServiceOptions = {}) {
    const flags = ["--legacy-dir", this.path, ...(options.flags ?? [])];
    return startTestService({ ...options, flags });
  }

  remove(): Promise<void> {
    return rm(this.path, { recursive: true, force: true });
  }
}

/** The event by which a session was brought in: the last one, if there are several. */
export async function readAdopted(clients: Clients, sessionId: string): Promise<Adopted> {
  const adopted = (await allEvents(clients, sessionId)).flatMap(({ record }) =>
    record?.record.case === "adopted" ? [record.record.value] : [],
  );
  return given(adopted.at(-1), "ADOPTED event");
}

/** What the sources of a session say, as its event has it. */
export async function readAdoptedBase(clients: Clients, sessionId: string): Promise<BaseState> {
  const { base } = await readAdopted(clients, sessionId);
  const { bodyRef } = given(base, "base");
  return fromBinary(BaseStateSchema, await readBytes(clients, sessionId, bodyRef));
}

type AnyRecord = EventRecord["record"];
type ValueOf<Case extends AnyRecord["case"]> = Extract<AnyRecord, { case: Case }>["value"];

/** The records of a kind in a base state, in order. */
export function recordsIn<Case extends NonNullable<AnyRecord["case"]>>(
  { records }: BaseState,
  wanted: Case,
): ValueOf<Case>[] {
  return records.flatMap(({ record }) =>
    record?.record.case === wanted ? [record.record.value as ValueOf<Case>] : [],
  );
}

/** The text of a body that a reply has in place. */
export function textOf(body: Body | undefined): string {
  return Buffer.from(given(given(body, "body").data, "data")).toString();
}

/** Those of the private words that stand in a text. */
export function privateWordsIn(text: string): string[] {
  return Object.values(PRIVATE).filter((word) => text.includes(word));
}
