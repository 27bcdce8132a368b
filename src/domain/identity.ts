import { digestOf, type DigestField } from "./sha256.js";

/** Prefixes of the ids that the service mints, one for each kind of thing. */
export const ID_PREFIX = {
  session: "ses",
  run: "run",
  turn: "trn",
  message: "msg",
  toolCall: "tc",
  hook: "hk",
  ask: "ask",
  receipt: "rcp",
  authorization: "aut",
  store: "sto",
} as const;
export type IdKind = keyof typeof ID_PREFIX;

/** Mints a new id of a kind: UUIDv7 in TypeID form. Comes from outside, as clock and randomness do. */
export type MintId = (kind: IdKind) => string;

const ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz";
const ID_BYTES = 16;
const BITS_PER_CHARACTER = 5;
/** 26 characters hold 130 bits; the first two are always zero. */
const PADDING_BITS = 2;

/** 16 bytes as 26 characters of lower-case base32 in Crockford's alphabet, most significant bits first. */
export function encodeIdBody(bytes: Uint8Array): string {
  let text = "";
  let pending = 0;
  let pendingBits = PADDING_BITS;
  for (let index = 0; index < ID_BYTES; index += 1) {
    pending = (pending << 8) | (bytes[index] ?? 0);
    pendingBits += 8;
    while (pendingBits >= BITS_PER_CHARACTER) {
      pendingBits -= BITS_PER_CHARACTER;
      text += ALPHABET.charAt((pending >> pendingBits) & 31);
    }
    pending &= (1 << pendingBits) - 1;
  }
  return text;
}

/** An id of a kind from 16 random or time-ordered bytes. */
export function formatId(kind: IdKind, bytes: Uint8Array): string {
  return `${ID_PREFIX[kind]}_${encodeIdBody(bytes)}`;
}

/** Each use of a derived id has a domain of its own, so that equal inputs never give equal ids across uses. */
const DERIVED = {
  review: { prefix: "rv", domain: "toolmark/review/v1" },
  legacyToolCall: { prefix: "tcl", domain: "toolmark/legacy-tool-call/v1" },
  legacyTurn: { prefix: "trnl", domain: "toolmark/legacy-turn/v1" },
  legacyMessage: { prefix: "msgl", domain: "toolmark/legacy-message/v1" },
  legacyHook: { prefix: "hkl", domain: "toolmark/legacy-hook/v1" },
  legacyEvidence: { prefix: "lev", domain: "toolmark/legacy-evidence/v1" },
  body: { prefix: "body", domain: "toolmark/body/v1" },
  archive: { prefix: "arc", domain: "toolmark/archive/v1" },
} as const;

function deriveId(use: keyof typeof DERIVED, parts: readonly DigestField[]): string {
  const { prefix, domain } = DERIVED[use];
  return `${prefix}_${encodeIdBody(digestOf([domain, ...parts]))}`;
}

/** The id of the review of one call for one job; also the hook_id of its envelope. `job` is the enum's name. */
export function reviewId(toolCallId: string, job: string): string {
  return deriveId("review", [toolCallId, job]);
}

/** Records of older systems that get a derived id. */
export type LegacyIdUse = Extract<keyof typeof DERIVED, `legacy${string}`>;

/** The id of a record of an older system, from its place in the source: an ordered occurrence, never its content. */
export function legacyId(use: LegacyIdUse, sessionId: string, occurrence: string): string {
  return deriveId(use, [sessionId, occurrence]);
}

const PROJECTED_CALL_DOMAIN = "toolmark/projected-call/v1";

/**
 * What an id of a call for a provider is made from, where the provider's own cannot be used. `attempt` counts the ids
 * of the call that were taken already. Nobody can tell the call's own id from it.
 */
export function projectedCallDigest(toolCallId: string, attempt: bigint): Uint8Array {
  return digestOf([PROJECTED_CALL_DOMAIN, toolCallId, attempt]);
}

const DERIVED_PREFIXES = Object.values(DERIVED).map(({ prefix }) => `${prefix}_`);

/** Whether an id has the form of one that is derived here: an id from elsewhere that has could be taken for one. */
export function isDerivedId(id: string): boolean {
  return DERIVED_PREFIXES.some((prefix) => id.startsWith(prefix));
}

/** The reference of a body within a session. Equal bytes of one session have one reference. */
export function bodyRef(sessionId: string, bodySha256: Uint8Array): string {
  return deriveId("body", [sessionId, bodySha256]);
}

/** The reference of a source of an older session, which is kept and never served. */
export function archiveRef(sessionId: string, sha256: Uint8Array): string {
  return deriveId("archive", [sessionId, sha256]);
}

export function isArchiveRef(ref: string): boolean {
  return ref.startsWith(`${DERIVED.archive.prefix}_`);
}
