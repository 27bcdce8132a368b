import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { SessionState } from "../../gen/toolmark/v1/session_pb.js";
import type { NewBody } from "../domain/decide/draft.js";
import { refuse, type Refusal } from "../domain/refusal.js";
import { GrowingBytes } from "./growing-bytes.js";
import { sessionKey } from "./live-session.js";
import type { CommandWrite, SessionRef } from "./store-port.js";

/** Bytes of uploads that are kept at a time, those still to be completed included. */
const UPLOAD_BYTES_MAX = 256 * 1024 * 1024;
/** Uploads that are kept at a time: bounds what small ones take besides their bytes. */
const UPLOADS_MAX = 10_000;
/** An upload that nobody uses, or goes on with, is dropped after an hour. */
const UPLOAD_AGE_MAX_MS = 60 * 60 * 1000;

/** A body as far as it has come. */
export interface Upload {
  readonly bytes: GrowingBytes;
  touchedMs: number;
}

interface Kept {
  readonly session: string;
  readonly body: NewBody;
  readonly sinceMs: number;
}

/** Keeps uploaded bodies in memory until a command that uses them is committed. */
export class BodyUploads {
  readonly #nowMs: () => number;
  /** Oldest first. */
  readonly #kept = new Map<string, Kept>();
  readonly #unfinished = new Set<Upload>();
  #sizeBytes = 0;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Bytes that are kept, unfinished ones included. */
  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** Begins an upload of at most so many bytes. It counts until it is ended. */
  begin(maxBytes: number): Upload {
    this.#dropStalled();
    const upload = { bytes: new GrowingBytes(maxBytes), touchedMs: this.#nowMs() };
    this.#unfinished.add(upload);
    return upload;
  }

  /** Takes the next bytes. Refusals: BODY_TOO_LARGE, QUOTA_EXCEEDED. */
  append(upload: Upload, chunk: Uint8Array): Refusal | undefined {
    const { bytes } = upload;
    if (bytes.sizeBytes + chunk.length > bytes.maxBytes) return refuseTooLarge(bytes.maxBytes);
    const growth = bytes.growthFor(chunk.length);
    this.#dropOld();
    if (!this.#unfinished.has(upload)) return refuseStalled();
    if (this.#sizeBytes + growth > UPLOAD_BYTES_MAX) return refuseFull();
    bytes.append(chunk);
    this.#sizeBytes += growth;
    upload.touchedMs = this.#nowMs();
    return undefined;
  }

  /** All bytes of an upload. They count until it is ended. */
  whole(upload: Upload): Uint8Array {
    const before = upload.bytes.capacityBytes;
    const data = upload.bytes.whole();
    if (this.#unfinished.has(upload)) this.#sizeBytes += data.length - before;
    return data;
  }

  /** Ends an upload, whatever became of it. */
  end(upload: Upload): void {
    if (this.#unfinished.delete(upload)) this.#sizeBytes -= upload.bytes.capacityBytes;
  }

  /** Keeps a body for commands of the session, for an hour from now. Refusal: QUOTA_EXCEEDED. */
  keep(session: SessionRef, body: NewBody): Refusal | undefined {
    return this.#keep(keyOf(session, body.bodyRef), session, body);
  }

  /** The same for the one command that takes what is private. */
  keepPrivate(session: SessionRef, body: NewBody): Refusal | undefined {
    return this.#keep(privateKeyOf(session, body.bodyRef), session, body);
  }

  #keep(key: string, session: SessionRef, body: NewBody): Refusal | undefined {
    this.#dropOld();
    this.#drop(key);
    if (this.#sizeBytes + body.sizeBytes > UPLOAD_BYTES_MAX) return refuseFull();
    if (this.#kept.size >= UPLOADS_MAX) return refuseTooMany();
    this.#kept.set(key, { session: sessionKey(session), body, sinceMs: this.#nowMs() });
    this.#sizeBytes += body.sizeBytes;
    return undefined;
  }

  find(session: SessionRef, bodyRef: string): NewBody | undefined {
    this.#dropOld();
    return this.#kept.get(keyOf(session, bodyRef))?.body;
  }

  findPrivate(session: SessionRef, bodyRef: string): NewBody | undefined {
    this.#dropOld();
    return this.#kept.get(privateKeyOf(session, bodyRef))?.body;
  }

  forgetPrivate(session: SessionRef, bodyRef: string): void {
    this.#drop(privateKeyOf(session, bodyRef));
  }

  /** Forgets what a commit has stored, and what nothing can use any more. */
  forgetCommitted(writes: readonly CommandWrite[]): void {
    if (this.#kept.size === 0) return;
    for (const write of writes) {
      for (const { bodyRef } of write.bodies) this.#drop(keyOf(write, bodyRef));
      if (write.session.state !== SessionState.OPEN) this.forgetSession(write);
    }
  }

  /** Forgets what was uploaded for a session. */
  forgetSession(session: SessionRef): void {
    const closed = sessionKey(session);
    for (const [key, kept] of this.#kept) if (kept.session === closed) this.#drop(key);
  }

  #drop(key: string): void {
    this.#sizeBytes -= this.#kept.get(key)?.body.sizeBytes ?? 0;
    this.#kept.delete(key);
  }

  #dropOld(): void {
    if (this.#kept.size === 0) return;
    const oldestMs = this.#nowMs() - UPLOAD_AGE_MAX_MS;
    for (const [key, { sinceMs }] of this.#kept) {
      if (sinceMs >= oldestMs) return;
      this.#drop(key);
    }
  }

  /** A caller that sends nothing for so long does not hold what others need. */
  #dropStalled(): void {
    const oldestMs = this.#nowMs() - UPLOAD_AGE_MAX_MS;
    for (const upload of this.#unfinished) if (upload.touchedMs < oldestMs) this.end(upload);
  }
}

function keyOf(session: SessionRef, bodyRef: string): string {
  return `${sessionKey(session)}\n${bodyRef}`;
}

/** Kept apart from the others: equal bytes may be uploaded both ways. */
function privateKeyOf(session: SessionRef, bodyRef: string): string {
  return `${keyOf(session, bodyRef)}\nprivate`;
}

function refuseTooLarge(maxBytes: number): Refusal {
  const metadata = { field: "chunk", limit: String(maxBytes) };
  return refuse(ErrorReason.BODY_TOO_LARGE, `the body has more than ${maxBytes} bytes`, metadata);
}

function refuseFull(): Refusal {
  const message = `more than ${UPLOAD_BYTES_MAX} bytes would be uploaded and not used yet`;
  const metadata = { field: "chunk", limit: String(UPLOAD_BYTES_MAX) };
  return refuse(ErrorReason.QUOTA_EXCEEDED, message, metadata);
}

function refuseTooMany(): Refusal {
  const message = `more than ${UPLOADS_MAX} bodies would be uploaded and not used yet`;
  const metadata = { field: "body", limit: String(UPLOADS_MAX) };
  return refuse(ErrorReason.QUOTA_EXCEEDED, message, metadata);
}

function refuseStalled(): Refusal {
  const message = `the upload was dropped: nothing of it came for ${UPLOAD_AGE_MAX_MS} ms`;
  const metadata = { field: "chunk", limit: String(UPLOAD_AGE_MAX_MS) };
  return refuse(ErrorReason.QUOTA_EXCEEDED, message, metadata);
}
