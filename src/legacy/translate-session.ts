import type { OldSnapshot } from "./old-session.js";
import { sessionKind } from "./old-words.js";
import { translateSnapshot } from "./translate-snapshot.js";
import { TranslationDraft } from "./translation-draft.js";
import type { Translation } from "./translation.js";

/** An old session in the terms of this service, from its snapshot. */
export function translateSession(snapshot: OldSnapshot): Translation {
  const { sessionId, kind, title, createTimeMs, relationship } = snapshot;
  const draft = new TranslationDraft(sessionId);
  translateSnapshot(draft, snapshot);
  return draft.finish({ kind: sessionKind(kind), title, createTimeMs, relationship });
}
