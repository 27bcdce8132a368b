import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { text } from "node:stream/consumers";
import * as sdk from "@agentclientprotocol/sdk";
import { vi } from "vitest";
import { serveAcp } from "../../src/cli/acp-serve.js";
import type { ServerLink } from "../../src/server/server-link.js";
import { freshRequestId } from "./conversation.js";
import { ROOT } from "./source-tree.js";

const WAIT = { timeout: 20_000, interval: 5 };

/** A question that was put to the editor's user. */
export interface Question {
  readonly request: sdk.RequestPermissionRequest;
  /** Aborts when the agent takes the question back. */
  readonly signal: AbortSignal;
  answer(outcome: sdk.RequestPermissionOutcome): void;
}

export type CardUpdate = Extract<
  sdk.SessionUpdate,
  { sessionUpdate: "tool_call" | "tool_call_update" }
>;

/** An ACP client made with the SDK: it keeps all that it is told. */
export class AcpEditor {
  readonly updates: sdk.SessionUpdate[] = [];
  readonly questions: Question[] = [];
  readonly agent: sdk.ClientContext;
  readonly #connection: sdk.ClientConnection;
  readonly #heard: Uint8Array[];

  constructor(stream: sdk.Stream, heard: Uint8Array[]) {
    this.#heard = heard;
    const { methods } = sdk;
    this.#connection = sdk
      .client({ name: "editor" })
      .onNotification(methods.client.session.update, ({ params }) => {
        this.updates.push(params.update);
      })
      .onRequest(methods.client.session.requestPermission, ({ params, signal }) => {
        return new Promise((resolve) => {
          const answer: Question["answer"] = (outcome) => {
            resolve({ outcome });
          };
          this.questions.push({ request: params, signal, answer });
        });
      })
      .connect(stream);
    this.agent = this.#connection.agent;
  }

  /** Everything that the agent wrote. */
  get wire(): string {
    return Buffer.concat(this.#heard).toString();
  }

  async initialize(): Promise<sdk.InitializeResponse> {
    const protocolVersion = sdk.PROTOCOL_VERSION;
    return this.agent.request(sdk.methods.agent.initialize, { protocolVersion });
  }

  /** Opens the agent's session as a new one. Its id. */
  async open(): Promise<string> {
    await this.initialize();
    const request: sdk.NewSessionRequest = { cwd: "/", mcpServers: [] };
    const { sessionId } = await this.agent.request(sdk.methods.agent.session.new, request);
    return sessionId;
  }

  async load(sessionId: string): Promise<void> {
    const request: sdk.LoadSessionRequest = { sessionId, cwd: "/", mcpServers: [] };
    await this.agent.request(sdk.methods.agent.session.load, request);
  }

  /** The updates of one card, in order. */
  card(toolCallId: string): CardUpdate[] {
    return this.updates.filter(
      (update): update is CardUpdate =>
        (update.sessionUpdate === "tool_call" || update.sessionUpdate === "tool_call_update") &&
        update.toolCallId === toolCallId,
    );
  }

  /** What the card shows in the end: its status, and all of its text. */
  shownCard(toolCallId: string): { status: unknown; text: string } {
    const updates = this.card(toolCallId);
    const status = updates.findLast((update) => "status" in update)?.status;
    const content = updates.findLast((update) => "content" in update)?.content;
    return { status, text: textOf(content) };
  }

  /** Every message so far, with its kind. */
  get messages(): string[] {
    return this.updates.flatMap((update) =>
      update.sessionUpdate === "agent_message_chunk" ||
      update.sessionUpdate === "user_message_chunk"
        ? [`${update.sessionUpdate}: ${textOf([update])}`]
        : [],
    );
  }

  async until(check: () => void): Promise<void> {
    await vi.waitFor(check, WAIT);
  }

  /** Waits for a question about a call that was not looked at yet. */
  async question(number = 0): Promise<Question> {
    return vi.waitFor(() => {
      const question = this.questions[number];
      if (question === undefined) throw new Error("nothing was asked yet");
      return question;
    }, WAIT);
  }

  close(): void {
    this.#connection.close();
  }
}

function textOf(content: unknown): string {
  const list = Array.isArray(content) ? (content as { content?: { text?: string } }[]) : [];
  return list.map((part) => part.content?.text ?? "").join("\n");
}

/** An editor and the bridge in this process, with bytes between them as on standard input and output. */
export function connectEditor(
  link: ServerLink,
  sessionId: string,
  log: (text: string) => void = () => undefined,
): { editor: AcpEditor; hangUp: () => Promise<void>; served: Promise<void> } {
  const toAgent = new TransformStream<Uint8Array, Uint8Array>();
  const toEditor = new TransformStream<Uint8Array, Uint8Array>();
  const heard: Uint8Array[] = [];
  const served = serveAcp({
    sdk,
    link,
    sessionId,
    stream: sdk.ndJsonStream(toEditor.writable, toAgent.readable),
    version: "0.0.0-test",
    mintRequestId: freshRequestId,
    log,
  });
  const stream = sdk.ndJsonStream(toAgent.writable, toEditor.readable.pipeThrough(kept(heard)));
  const editor = new AcpEditor(stream, heard);
  const hangUp = async (): Promise<void> => {
    await toAgent.writable.close();
    await served;
    editor.close();
  };
  return { editor, hangUp, served };
}

/** The editors of a test, each with a session open in a bridge of its own. */
export class ConnectedEditors {
  readonly #hangUps: (() => Promise<void>)[] = [];

  connect(link: ServerLink, sessionId: string): AcpEditor {
    const { editor, hangUp } = connectEditor(link, sessionId);
    this.#hangUps.push(hangUp);
    return editor;
  }

  async hangUp(): Promise<void> {
    await Promise.all(this.#hangUps.splice(0).map((hangUp) => hangUp()));
  }
}

/** An editor that runs the built command. */
export function spawnEditor(args: readonly string[]): SpawnedEditor {
  const command = join(ROOT, "dist/bin/toolmark.js");
  return editorOf(spawn(process.execPath, [command, "acp", ...args], { stdio: "pipe" }));
}

export interface SpawnedEditor {
  readonly editor: AcpEditor;
  /** Closes standard input. The exit code, and what was written to standard error. */
  readonly hangUp: () => Promise<{ code: number | null; stderr: string }>;
}

/** An editor over the standard input and output of a command. */
export function editorOf(child: ChildProcessWithoutNullStreams): SpawnedEditor {
  const exited = once(child, "exit").then(([code]) => code as number | null);
  const stderr = text(child.stderr);
  const heard: Uint8Array[] = [];
  const input = Readable.toWeb(child.stdout) as ReadableStream<Uint8Array>;
  const output = Writable.toWeb(child.stdin) as WritableStream<Uint8Array>;
  const editor = new AcpEditor(sdk.ndJsonStream(output, input.pipeThrough(kept(heard))), heard);
  return {
    editor,
    hangUp: async () => {
      await output.close();
      return { code: await exited, stderr: await stderr };
    },
  };
}

function kept(heard: Uint8Array[]): TransformStream<Uint8Array, Uint8Array> {
  return new TransformStream({
    transform(chunk, controller) {
      heard.push(chunk);
      controller.enqueue(chunk);
    },
  });
}
