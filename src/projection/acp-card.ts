import type { SessionUpdate, ToolCallContent, ToolCallUpdate } from "@agentclientprotocol/sdk";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import type { Hook } from "../../gen/toolmark/v1/hook_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { bodyText, shortened, shownObject, type BytesOf } from "./acp-body-text.js";
import { headlineOf, isEnded, statusOf } from "./acp-call-text.js";
import { OutputTail } from "./acp-tail.js";
import { toolKindOf } from "./acp-tool-kind.js";

/** Notes that a card holds. An update carries all of them, so there is an end to it. */
export const CARD_NOTES = 16;
/** Characters of a note. */
export const NOTE_LENGTH = 4096;

/** How a call is named on this wire. */
export interface CardName {
  /** Unique in the ACP session. */
  readonly wireId: string;
  readonly title: string;
}

/** What of a card the editor has. */
interface Sent {
  readonly status: string;
  readonly argumentsKey: string;
  readonly contentKey: string;
}

/** The card of one call: what is known of it, and what of that the editor was sent. */
export class CallCard {
  call: ToolCall;
  readonly #name: CardName;
  readonly #notes = new Map<string, string>();
  #notesVersion = 0;
  #tail = new OutputTail();
  #tailVersion = 0;
  /** Of arguments that are no object. */
  #argumentsText = "";
  #sent: Sent | undefined;

  constructor(call: ToolCall, name: CardName) {
    this.call = call;
    this.#name = name;
  }

  get title(): string {
    return this.#name.title;
  }

  /** Whether output came that is not shown yet. */
  get isBehind(): boolean {
    return this.#tail.isBehind && !isEnded(this.call);
  }

  /** The bodies that `update` shows. */
  bodiesToShow(call: ToolCall = this.call): Body[] {
    const bodies = [call.result?.content, call.lateResult?.content];
    if (keyOf(call.effective) !== this.#sent?.argumentsKey) bodies.push(call.effective);
    return bodies.filter((body) => body !== undefined);
  }

  /** Puts a note on the card, in the place of an earlier one of the same record. False if there is no room. */
  note(recordKey: string, text: string): boolean {
    if (!this.#notes.has(recordKey) && this.#notes.size >= CARD_NOTES) return false;
    const shown = shortened(text, NOTE_LENGTH);
    if (this.#notes.get(recordKey) === shown) return true;
    this.#notes.set(recordKey, shown);
    this.#notesVersion += 1;
    return true;
  }

  /** Takes up a part of the output. Whether an update is due. A part that comes after the end is of no use. */
  output(offsetBytes: bigint, chunk: Uint8Array): boolean {
    if (isEnded(this.call)) return false;
    this.#tail.add(offsetBytes, chunk);
    return this.#tail.isDue;
  }

  /** What the editor does not have yet. Absent if it has all. `blocker` is the hook that blocked the call. */
  update(bytesOf: BytesOf, blocker?: Hook): SessionUpdate | undefined {
    if (isEnded(this.call)) this.#tail = new OutputTail();
    if (this.#tail.isBehind) this.#tailVersion += 1;
    const before = this.#sent;
    const now = this.#keys(blocker);
    this.#sent = now;
    const isOld = before?.status === now.status && before.contentKey === now.contentKey;
    if (isOld && before.argumentsKey === now.argumentsKey) return undefined;
    const input = before?.argumentsKey === now.argumentsKey ? {} : this.#input(bytesOf, before);
    const status = statusOf(this.call);
    const content = this.#content(bytesOf, blocker);
    const { wireId: toolCallId, title } = this.#name;
    if (before === undefined) {
      const kind = toolKindOf(this.call.toolName);
      const shown = content.length === 0 ? {} : { content };
      const head = { sessionUpdate: "tool_call" as const, toolCallId, title, kind, status };
      return { ...head, ...input, ...shown };
    }
    return { sessionUpdate: "tool_call_update", toolCallId, status, ...input, content };
  }

  /** All of the card, for a question about it. */
  whole(bytesOf: BytesOf): ToolCallUpdate {
    const { wireId: toolCallId, title } = this.#name;
    const kind = toolKindOf(this.call.toolName);
    const status = statusOf(this.call);
    return { toolCallId, title, kind, status, content: this.#content(bytesOf, undefined) };
  }

  #keys(blocker: Hook | undefined): Sent {
    const { call } = this;
    const content = [
      headlineOf(call, blocker),
      keyOf(call.result?.content),
      keyOf(call.lateResult?.content),
      this.#notesVersion,
      this.#tailVersion,
      isEnded(call),
    ];
    return {
      status: statusOf(call),
      argumentsKey: keyOf(call.effective),
      contentKey: JSON.stringify(content),
    };
  }

  #input(bytesOf: BytesOf, before: Sent | undefined): { rawInput?: unknown } {
    const { effective } = this.call;
    if (effective === undefined) return {};
    const rawInput = shownObject(effective, bytesOf);
    if (rawInput !== undefined) {
      this.#argumentsText = "";
      return { rawInput };
    }
    this.#argumentsText = shortened(bodyText(effective, bytesOf), NOTE_LENGTH);
    // What was shown before is not what the call has now.
    return before === undefined ? {} : { rawInput: null };
  }

  #content(bytesOf: BytesOf, blocker: Hook | undefined): ToolCallContent[] {
    const { result, lateResult } = this.call;
    const late = lateResult?.content;
    const texts = [
      headlineOf(this.call, blocker),
      this.#argumentsText === "" ? "" : `Arguments: ${this.#argumentsText}`,
      result?.content === undefined ? "" : bodyText(result.content, bytesOf),
      isEnded(this.call) ? "" : this.#tail.show(),
      late === undefined ? "" : `A result came after the end: ${bodyText(late, bytesOf)}`,
      ...this.#notes.values(),
    ];
    return texts.filter((text) => text !== "").map(contentOf);
  }
}

function contentOf(text: string): ToolCallContent {
  return { type: "content", content: { type: "text", text } };
}

/** Tells bodies apart. */
function keyOf(body: Body | undefined): string {
  if (body === undefined) return "";
  return body.bodyRef === "" ? body.sha256.join() : body.bodyRef;
}
