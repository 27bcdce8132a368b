import { fromBinary } from "@bufbuild/protobuf";
import { BaseStateSchema, type BaseState } from "../../gen/toolmark/v1/base_state_pb.js";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { storedBodiesOf } from "../domain/record-bodies.js";
import { SHOWN_BODY_BYTES, type BytesOf } from "../projection/acp-body-text.js";
import { serverFaultOf, type ServerLink } from "../server/server-link.js";
import { retried } from "./acp-retry.js";

const KEPT_BODIES = 256;

/** Reads bodies for display, the beginning of large ones. What was read last is kept. */
export class BodyReader {
  readonly #history: ServerLink["history"];
  readonly #signal: AbortSignal;
  readonly #log: (text: string) => void;
  readonly #kept = new Map<string, Promise<Uint8Array | undefined>>();
  /** Calls that are being read. */
  readonly #calls = new Map<string, Promise<void>>();

  constructor(history: ServerLink["history"], signal: AbortSignal, log: (text: string) => void) {
    this.#history = history;
    this.#signal = signal;
    this.#log = log;
  }

  /** The bytes of what a record shows. All bodies of a call come by one request, unless they are large. */
  async readRecord(
    sessionId: string,
    record: EventRecord["record"],
    bodies: readonly Body[],
  ): Promise<BytesOf> {
    if (record.case === "toolCall") {
      const key = JSON.stringify([sessionId, record.value.toolCallId]);
      for (let call = this.#calls.get(key); call !== undefined; call = this.#calls.get(key)) {
        await call;
      }
      if (bodies.some((body) => isStored(body) && !this.#kept.has(keyOf(sessionId, body)))) {
        const reading = this.#readCall(sessionId, record.value.toolCallId);
        this.#calls.set(key, reading);
        await reading.finally(() => this.#calls.delete(key));
      }
    }
    return this.read(sessionId, bodies);
  }

  /** The bytes of these bodies, which are of one session. One that cannot be read is left out, and the log says so. */
  async read(sessionId: string, bodies: readonly Body[]): Promise<BytesOf> {
    const found = new Map<string, Uint8Array>();
    await Promise.all(
      bodies.filter(isStored).map(async (body) => {
        const bytes = await this.#bytes(sessionId, body);
        if (bytes !== undefined) found.set(body.bodyRef, bytes);
      }),
    );
    return ({ data, bodyRef }) => data ?? found.get(bodyRef);
  }

  /** What a fork copied, or an older system kept. */
  async readBase(sessionId: string, { bodyRef }: Body): Promise<BaseState | undefined> {
    const bytes = await retried(() => this.#stream(sessionId, bodyRef, 0n), this.#signal);
    return bytes === undefined ? undefined : fromBinary(BaseStateSchema, bytes);
  }

  #bytes(sessionId: string, body: Body): Promise<Uint8Array | undefined> {
    const key = keyOf(sessionId, body);
    const bytes = this.#kept.get(key) ?? this.#readBeginning(sessionId, body.bodyRef);
    this.#keep(key, bytes);
    return bytes;
  }

  #keep(key: string, bytes: Promise<Uint8Array | undefined>): void {
    // The last one that is asked for is the last to go.
    this.#kept.delete(key);
    this.#kept.set(key, bytes);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > KEPT_BODIES && oldest !== undefined) this.#kept.delete(oldest);
  }

  async #readCall(sessionId: string, toolCallId: string): Promise<void> {
    const signal = this.#signal;
    const ask = () => this.#history.getToolCall({ sessionId, toolCallId }, { signal });
    try {
      const reply = await retried(ask, signal);
      if (reply?.toolCall === undefined) return;
      for (const body of storedBodiesOf({ case: "toolCall", value: reply.toolCall })) {
        const { data } = body;
        if (data !== undefined) this.#keep(keyOf(sessionId, body), Promise.resolve(data));
      }
    } catch (thrown) {
      // Its bodies may be read all the same.
      const { reason, message } = serverFaultOf(thrown);
      this.#log(`the call ${toolCallId} cannot be read: ${reason} ${message}`);
    }
  }

  async #readBeginning(sessionId: string, bodyRef: string): Promise<Uint8Array | undefined> {
    const limit = BigInt(SHOWN_BODY_BYTES);
    try {
      return await retried(() => this.#stream(sessionId, bodyRef, limit), this.#signal);
    } catch (thrown) {
      const { reason, message } = serverFaultOf(thrown);
      this.#log(`a body of ${sessionId} cannot be read: ${reason} ${message}`);
      return undefined;
    }
  }

  async #stream(sessionId: string, bodyRef: string, limitBytes: bigint): Promise<Uint8Array> {
    const request = { sessionId, bodyRef, limitBytes };
    const chunks: Uint8Array[] = [];
    for await (const { chunk } of this.#history.readBody(request, { signal: this.#signal })) {
      chunks.push(chunk);
    }
    return Buffer.concat(chunks);
  }
}

function keyOf(sessionId: string, { bodyRef }: Body): string {
  return JSON.stringify([sessionId, bodyRef]);
}

function isStored({ data, bodyRef, sizeBytes }: Body): boolean {
  return data === undefined && bodyRef !== "" && sizeBytes > 0n;
}
