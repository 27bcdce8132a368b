import { sha256 } from "../domain/sha256.js";

/** The files of one session in a folder of the older system's file store, by their common stem. */
export interface FileFamily {
  readonly stem: string;
  readonly snapshot?: string;
  readonly log?: string;
}

type Role = "snapshot" | "log";
interface FileKind {
  readonly suffix: string;
  /** Absent for a file that is of a session and says nothing that is read. */
  readonly role?: Role;
}

/** The first that fits counts. */
const KINDS: readonly FileKind[] = [
  { suffix: ".session.json", role: "snapshot" },
  { suffix: ".events.jsonl", role: "log" },
  { suffix: ".tools.jsonl" },
  { suffix: ".json", role: "snapshot" },
  { suffix: ".jsonl", role: "log" },
];

const SAFE_STEM = /^sid-v1-(?<shown>[A-Za-z0-9_-]{1,40})-(?<digest>[0-9a-f]{32})$/;
const SHOWN_MAX = 40;
const SHOWN_IF_EMPTY = "id";
const DIGEST_CHARACTERS = 32;
const SESSION_ID_MAX_BYTES = 512;
const CONTROL = /\p{Cc}/u;
const toUtf8 = new TextEncoder();

/** Whether a file of this name is one that the older system, or a person, keeps for a session. */
export function isFamilyName(name: string): boolean {
  return kindOf(name) !== undefined;
}

/** The families of a folder's files, sorted by stem. Names that are of no snapshot and no log are passed over. */
export function groupFileNames(names: readonly string[]): FileFamily[] {
  const families = new Map<string, { stem: string; snapshot?: string; log?: string }>();
  // Longer suffixes come last, and so stay.
  for (const name of [...names].sort(shorterSuffixFirst)) {
    const kind = kindOf(name);
    if (kind?.role === undefined) continue;
    const stem = name.slice(0, -kind.suffix.length);
    const family = families.get(stem) ?? { stem };
    family[kind.role] = name;
    families.set(stem, family);
  }
  return [...families.values()].sort((a, b) => (a.stem < b.stem ? -1 : 1));
}

/** The stems under which a session of this id is looked for first: the store's own, then the id as it is. */
export function stemsOf(sessionId: string): string[] {
  const shown = Array.from(sessionId)
    .slice(0, SHOWN_MAX)
    .map((character) => (/[A-Za-z0-9_-]/.test(character) ? character : "_"))
    .join("");
  const stem = `sid-v1-${shown === "" ? SHOWN_IF_EMPTY : shown}-${digestText(sessionId)}`;
  return [stem, sessionId];
}

/**
 * The id that a stem stands for: that of which the store made it, or the stem itself if the store did not. Undefined
 * if the store cut or replaced something of the id, and for what cannot be an id.
 */
export function sessionIdOfStem(stem: string): string | undefined {
  const groups = SAFE_STEM.exec(stem)?.groups;
  const { shown = stem, digest } = groups ?? {};
  if (digest !== undefined && digest !== digestText(shown)) return undefined;
  return isSessionId(shown) ? shown : undefined;
}

/** Whether a text can be the id of an old session. */
export function isSessionId(text: string): boolean {
  const sizeBytes = toUtf8.encode(text).length;
  return sizeBytes >= 1 && sizeBytes <= SESSION_ID_MAX_BYTES && !CONTROL.test(text);
}

/** A name of nothing but a suffix has no stem and is of no session. */
function kindOf(name: string): FileKind | undefined {
  const kind = KINDS.find(({ suffix }) => name.endsWith(suffix));
  return kind?.suffix === name ? undefined : kind;
}

function shorterSuffixFirst(a: string, b: string): number {
  return (kindOf(a)?.suffix.length ?? 0) - (kindOf(b)?.suffix.length ?? 0);
}

function digestText(sessionId: string): string {
  return Buffer.from(sha256(toUtf8.encode(sessionId)))
    .toString("hex")
    .slice(0, DIGEST_CHARACTERS);
}
