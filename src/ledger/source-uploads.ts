import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { LegacySourceFormat, type LegacySource } from "../../gen/toolmark/v1/legacy_pb.js";
import type { LegacySourcePart } from "../../gen/toolmark/v1/session_service_pb.js";
import { equalBytes } from "../domain/bytes.js";
import type { SourceBytes } from "../domain/legacy-session.js";
import { refuse, type Refusal } from "../domain/refusal.js";
import { digestOf, sha256 } from "../domain/sha256.js";

/** Bytes of unfinished imports that are kept at a time. An import above it waits until others end. */
const UPLOAD_BYTES_MAX = 256 * 1024 * 1024;
/** An unfinished import that nobody goes on with is dropped after an hour. */
const UPLOAD_AGE_MAX_MS = 60 * 60 * 1000;

/** One source as far as it has come. */
interface Upload {
  readonly source: LegacySource;
  readonly data: Uint8Array;
  receivedBytes: number;
}

interface Import {
  readonly uploads: readonly Upload[];
  readonly sizeBytes: number;
  touchedMs: number;
}

/** Whose import of which session from which sources: retries and other requests for the same go on with it. */
export interface ImportName {
  readonly tenant: string;
  readonly subject: string;
  readonly sessionId: string;
  readonly sources: readonly LegacySource[];
}

/** Keeps the parts of imports in memory until all of an import is there. */
export class SourceUploads {
  readonly #imports = new Map<string, Import>();
  readonly #nowMs: () => number;
  #sizeBytes = 0;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Takes parts in, and says how much of each source is there. Parts that do not go on from there are passed over. */
  take(name: ImportName, parts: readonly LegacySourcePart[]): readonly number[] | Refusal {
    const found = this.#importOf(name);
    if ("reason" in found) return found;
    found.touchedMs = this.#nowMs();
    for (const part of parts) {
      const upload = found.uploads.find(({ source }) => source.format === part.format);
      if (upload !== undefined) append(upload, part);
    }
    return found.uploads.map(({ receivedBytes }) => receivedBytes);
  }

  /** The sources of an import that is there as a whole, checked by their digests. */
  finish(name: ImportName): SourceBytes[] | Refusal {
    const found = this.#imports.get(keyOf(name));
    const sources: SourceBytes[] = [];
    for (const { source, data } of found?.uploads ?? []) {
      const { format } = source;
      if (!equalBytes(sha256(data), source.sha256)) return refuseMismatch(format);
      sources.push({ format, data });
    }
    return sources;
  }

  drop(name: ImportName): void {
    const key = keyOf(name);
    this.#sizeBytes -= this.#imports.get(key)?.sizeBytes ?? 0;
    this.#imports.delete(key);
  }

  #importOf(name: ImportName): Import | Refusal {
    const key = keyOf(name);
    const known = this.#imports.get(key);
    if (known !== undefined) return known;
    this.#dropOld();
    const sizeBytes = name.sources.reduce((sum, source) => sum + Number(source.sizeBytes), 0);
    if (this.#sizeBytes + sizeBytes > UPLOAD_BYTES_MAX) {
      const message = "too many large imports are unfinished: go on with this one later";
      return refuse(ErrorReason.STORE_BUSY, message);
    }
    const uploads = name.sources.map((source) => ({
      ...{ source, receivedBytes: 0 },
      data: new Uint8Array(Number(source.sizeBytes)),
    }));
    const begun = { uploads, sizeBytes, touchedMs: this.#nowMs() };
    this.#imports.set(key, begun);
    this.#sizeBytes += sizeBytes;
    return begun;
  }

  #dropOld(): void {
    const oldestMs = this.#nowMs() - UPLOAD_AGE_MAX_MS;
    for (const [key, { touchedMs, sizeBytes }] of this.#imports) {
      if (touchedMs >= oldestMs) continue;
      this.#imports.delete(key);
      this.#sizeBytes -= sizeBytes;
    }
  }
}

/** Every byte is written once: what came before is not looked at again. */
function append(upload: Upload, { offsetBytes, data }: LegacySourcePart): void {
  const offset = Number(offsetBytes);
  const { receivedBytes } = upload;
  if (offset > receivedBytes) return;
  const added = data.subarray(receivedBytes - offset);
  const room = upload.data.length - receivedBytes;
  const taken = added.subarray(0, room);
  upload.data.set(taken, receivedBytes);
  upload.receivedBytes += taken.length;
}

function keyOf({ tenant, subject, sessionId, sources }: ImportName): string {
  const named = sources.flatMap(({ format, sizeBytes, sha256: digest }) => [
    BigInt(format),
    sizeBytes,
    digest,
  ]);
  return Buffer.from(digestOf([tenant, subject, sessionId, ...named])).toString("latin1");
}

function refuseMismatch(format: LegacySourceFormat): Refusal {
  const message = "the bytes of a source are not those of its digest";
  const metadata = { format: LegacySourceFormat[format] };
  return refuse(ErrorReason.SOURCE_MISMATCH, message, metadata);
}
