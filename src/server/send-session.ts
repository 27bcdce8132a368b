import { setTimeout as delay } from "node:timers/promises";
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorInfoSchema, type ErrorInfo } from "../../gen/google/rpc/error_details_pb.js";
import { LegacySourceFormat, type LegacySummary } from "../../gen/toolmark/v1/legacy_pb.js";
import type { ImportSessionResponse } from "../../gen/toolmark/v1/session_service_pb.js";
import { digestOf, sha256 } from "../domain/sha256.js";
import type { ServerLink } from "./server-link.js";
import type { LegacySources } from "./legacy-dir.js";

/** How often the same is tried without any progress, and how long the first wait is; each next one is twice as long. */
export interface Patience {
  readonly attempts: number;
  readonly firstWaitMs: number;
}
export const PATIENCE: Patience = { attempts: 6, firstWaitMs: 250 };

export interface SessionToSend {
  readonly sessionId: string;
  /** Empty: nobody's. */
  readonly owner: string;
  readonly sources: LegacySources;
}

export interface SentSession {
  readonly isNew: boolean;
  readonly summary: LegacySummary;
}

interface Source {
  readonly format: LegacySourceFormat;
  readonly bytes: Uint8Array;
  readonly sizeBytes: bigint;
  readonly sha256: Uint8Array;
}

/** Reasons behind which the same request may succeed a little later. */
const TRANSIENT_REASONS = new Set([
  ...["DRAINING", "STORE_BUSY", "COMMIT_UNCERTAIN", "STORE_UNREADABLE", "DEADLINE_PASSED"],
  // The server has dropped what it had of the source: it is sent again.
  "SOURCE_MISMATCH",
]);
const MIB = 1024 * 1024;
/** What a request has beside the bytes of its parts, at most. */
const BESIDE_PARTS_BYTES = 16 * 1024;
const PART_BYTES_MIN = 4 * 1024;
/** What a connection that broke, or could not be made, looks like when no server says a reason. */
const CONNECTION_CODES = new Set([Code.Unavailable, Code.Aborted, Code.Internal, Code.Canceled]);

/**
 * Brings one session to the server: in one request if it fits, else in parts, and on from what is there already if it
 * was cut off. Sent again, it is the same request. Throws ConnectError when the session is refused, and that or
 * NothingKeptError when nothing went on in spite of all patience.
 */
export async function sendSession(
  link: ServerLink,
  session: SessionToSend,
  signal: AbortSignal,
  { attempts, firstWaitMs }: Patience = PATIENCE,
): Promise<SentSession> {
  const sending = new Sending(link, session, signal);
  let failures = 0;
  for (;;) {
    const before = sending.highestBytes;
    try {
      return await sending.run();
    } catch (error) {
      if (signal.aborted || !isTransient(error)) throw error;
      failures = sending.highestBytes > before ? 1 : failures + 1;
      if (failures >= attempts) throw error;
      await delay(firstWaitMs * 2 ** (failures - 1), undefined, { signal });
    }
  }
}

/** The server took a part of a session and has no more of it than before. */
export class NothingKeptError extends Error {
  override readonly name = "NothingKeptError";

  constructor() {
    super("the server keeps nothing of what is sent");
  }
}

/** One session on its way. */
class Sending {
  readonly #sources: readonly Source[];
  readonly #totalBytes: number;
  readonly #requestId: string;
  /** Bytes of sources that one request may carry. */
  readonly #partBytes: number;
  #highestBytes = 0;

  constructor(
    private readonly link: ServerLink,
    private readonly session: SessionToSend,
    private readonly signal: AbortSignal,
  ) {
    this.#sources = sourcesOf(session.sources);
    this.#totalBytes = this.#sources.reduce((sum, { bytes }) => sum + bytes.length, 0);
    this.#requestId = requestIdOf(session, this.#sources);
    this.#partBytes = partBytesFor(link.messageBytes);
  }

  /** The most that the server ever had of the sources. */
  get highestBytes(): number {
    return this.#highestBytes;
  }

  /** From where the server says that it is. What fits into one request needs no question. */
  async run(): Promise<SentSession> {
    let received = this.#sources.map(() => 0);
    if (this.#totalBytes > this.#partBytes) {
      const { sent, progress } = await this.#request([]);
      if (sent !== undefined) return sent;
      received = progress;
    }
    for (;;) {
      const { sent, progress } = await this.#request(this.#partsAfter(received));
      if (sent !== undefined) return sent;
      if (sumOf(progress) <= sumOf(received)) throw new NothingKeptError();
      received = progress;
    }
  }

  async #request(
    parts: readonly Part[],
  ): Promise<{ sent: SentSession | undefined; progress: number[] }> {
    const reply = await this.link.sessions.importSession(
      {
        requestId: this.#requestId,
        sessionId: this.session.sessionId,
        ownerSubject: this.session.owner,
        sources: this.#sources.map(({ format, sizeBytes, sha256: digest }) => {
          return { format, sizeBytes, sha256: digest };
        }),
        parts: [...parts],
      },
      { signal: this.signal },
    );
    const progress = this.#progressOf(reply);
    this.#highestBytes = Math.max(this.#highestBytes, sumOf(progress));
    const { session, summary, isNew } = reply;
    if (session === undefined) return { sent: undefined, progress };
    if (summary === undefined) throw new ConnectError("the reply has no summary", Code.Internal);
    return { sent: { isNew, summary }, progress };
  }

  #progressOf({ progress }: ImportSessionResponse): number[] {
    return this.#sources.map(({ format }) => {
      return Number(progress.find((entry) => entry.format === format)?.receivedBytes ?? 0n);
    });
  }

  /** As much of the rest as one request may carry. An empty source is a part of its own: no parts are a question. */
  #partsAfter(received: readonly number[]): Part[] {
    const parts: Part[] = [];
    let room = this.#partBytes;
    for (const [index, { format, bytes }] of this.#sources.entries()) {
      const offset = received[index] ?? 0;
      const data = bytes.subarray(offset, offset + room);
      if (data.length === 0 && bytes.length > 0) continue;
      parts.push({ format, offsetBytes: BigInt(offset), data });
      room -= data.length;
    }
    return parts;
  }
}

interface Part {
  readonly format: LegacySourceFormat;
  readonly offsetBytes: bigint;
  readonly data: Uint8Array;
}

/** Why the server refused, in its own terms; absent if no server said so. */
export function errorInfoOf(error: ConnectError): ErrorInfo | undefined {
  return error.findDetails(ErrorInfoSchema)[0];
}

/** Whether the connection failed, so that other sessions would fare no better. */
export function isConnectionFault(error: ConnectError): boolean {
  return errorInfoOf(error) === undefined && CONNECTION_CODES.has(error.code);
}

function isTransient(error: unknown): boolean {
  if (error instanceof NothingKeptError) return true;
  if (!(error instanceof ConnectError)) return false;
  const reason = errorInfoOf(error)?.reason;
  return reason === undefined ? isConnectionFault(error) : TRANSIENT_REASONS.has(reason);
}

function sourcesOf({ snapshot, log }: LegacySources): Source[] {
  const source = (format: LegacySourceFormat, bytes: Uint8Array | undefined): Source[] => {
    if (bytes === undefined) return [];
    return [{ format, bytes, sizeBytes: BigInt(bytes.length), sha256: sha256(bytes) }];
  };
  return [
    ...source(LegacySourceFormat.SNAPSHOT, snapshot),
    ...source(LegacySourceFormat.EVENT_LOG, log),
  ];
}

/** The same for the same session, owner and sources: whoever runs the command again sends the same request. */
function requestIdOf({ sessionId, owner }: SessionToSend, sources: readonly Source[]): string {
  const fields = sources.flatMap(({ format, sha256: digest }) => [BigInt(format), digest]);
  return `import-${Buffer.from(digestOf([sessionId, owner, ...fields])).toString("hex")}`;
}

function sumOf(counts: readonly number[]): number {
  return counts.reduce((sum, count) => sum + count, 0);
}

function partBytesFor(messageBytes: number): number {
  const room = messageBytes === 0 ? MIB : messageBytes - BESIDE_PARTS_BYTES;
  return Math.max(PART_BYTES_MIN, Math.min(MIB, room));
}
