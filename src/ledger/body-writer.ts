import type { WriteBodyRequest } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import { equalBytes } from "../domain/bytes.js";
import type { KnownBody } from "../domain/decide/draft.js";
import { bodyOf, describeBody } from "../domain/decide/intake-body.js";
import { refuseClosed } from "../domain/decide/session.js";
import type { Limits } from "../domain/limits.js";
import type { Caller } from "../domain/principal.js";
import { isRefusal, refuseField, type Refusal } from "../domain/refusal.js";
import type { Waiting } from "./batch-context.js";
import { findBody } from "./body-reader.js";
import type { BodyUploads, Upload } from "./body-uploads.js";
import type { SessionRef, Store } from "./store-port.js";
import { findVisible } from "./visibility.js";

export interface BodyWriterOptions {
  readonly store: Store;
  readonly uploads: BodyUploads;
  readonly limits: Limits;
}

/** What the first message of an upload says of the body. */
export type BodyHead = Pick<WriteBodyRequest, "sessionId" | "mediaType" | "sha256" | "private">;

/** The bytes of a body in order; a refusal ends them. */
export type BodyParts = AsyncIterable<Uint8Array | Refusal>;

/** Takes up bodies that commands will name. Nothing is stored before a command does. */
export class BodyWriter {
  readonly #options: BodyWriterOptions;

  constructor(options: BodyWriterOptions) {
    this.#options = options;
  }

  async write(
    caller: Caller,
    head: BodyHead,
    parts: BodyParts,
    waiting: Waiting,
  ): Promise<Body | Refusal> {
    const session = await this.#openSession(caller, head.sessionId);
    if (isRefusal(session)) return session;
    const { uploads, limits } = this.#options;
    const upload = uploads.begin(limits.bodyBytes);
    try {
      for await (const part of parts) {
        const refusal = isRefusal(part) ? part : uploads.append(upload, part);
        if (refusal !== undefined) return refusal;
      }
      if (waiting.aborted !== undefined) return waiting.aborted;
      const known = await this.#takeUp(caller, session, head, upload);
      return isRefusal(known) ? known : describeBody(known, head.mediaType);
    } finally {
      uploads.end(upload);
    }
  }

  /** Keeps the bytes, unless the session has them already. */
  async #takeUp(
    caller: Caller,
    session: SessionRef,
    { sha256: expected, sessionId, private: isPrivate }: BodyHead,
    upload: Upload,
  ): Promise<KnownBody | Refusal> {
    const { uploads, store } = this.#options;
    const body = bodyOf(sessionId, uploads.whole(upload));
    if (expected.length > 0 && !equalBytes(expected, body.sha256)) {
      return refuseField("sha256", "is not the digest of the bytes");
    }
    const stored = isPrivate ? undefined : await findBody(store, session, body.bodyRef);
    if (isRefusal(stored)) return stored;
    if (stored === undefined) {
      uploads.end(upload);
      const refusal = isPrivate ? uploads.keepPrivate(session, body) : uploads.keep(session, body);
      if (refusal !== undefined) return refusal;
    }
    // Looked at again once it is kept: a session that was closed meanwhile holds no bytes.
    const after = await this.#openSession(caller, sessionId);
    if (!isRefusal(after)) return stored ?? body;
    uploads.forgetSession(session);
    return after;
  }

  async #openSession(caller: Caller, sessionId: string): Promise<SessionRef | Refusal> {
    const row = await findVisible(this.#options.store, caller, sessionId);
    if (isRefusal(row)) return row;
    const { tenant } = row;
    return refuseClosed({ session: row }, "writeBody") ?? { tenant, sessionId };
  }
}
