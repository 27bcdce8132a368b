import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { invariant } from "../domain/invariant.js";
import { LogBeside } from "./log-beside.js";
import { LogHistory } from "./log-history.js";
import type { OldLog, OldRelationship, OldSnapshot, OldSources } from "./old-session.js";
import { sessionKind } from "./old-words.js";
import { translateLog } from "./translate-log.js";
import { translateSnapshot } from "./translate-snapshot.js";
import { TranslationDraft } from "./translation-draft.js";
import type { Translation } from "./translation.js";

/** An old session in the terms of this service. A snapshot that is there is the account of its calls. */
export function translateSession({ sessionId, snapshot, log }: OldSources): Translation {
  invariant(
    snapshot === undefined || snapshot.sessionId === sessionId,
    "a snapshot must be that of the session",
  );
  const draft = new TranslationDraft(sessionId);
  if (snapshot !== undefined) translateSnapshot(draft, snapshot);
  if (log !== undefined) {
    const account = snapshot === undefined ? new LogHistory(draft) : new LogBeside(draft);
    translateLog(draft, log, account);
  }
  return draft.finish(snapshot === undefined ? toldByLog(log) : toldBySnapshot(snapshot));
}

type Told = Pick<Translation, "kind" | "title" | "createTimeMs" | "relationship">;

function toldBySnapshot({ kind, title, createTimeMs, relationship }: OldSnapshot): Told {
  return { kind: sessionKind(kind), title, createTimeMs, relationship };
}

/** A log does not say what kind of session it is of, when that began, or what it works for. */
function toldByLog(log: OldLog | undefined): Told {
  const titles = (log?.records ?? []).flatMap(({ entry }) =>
    entry.kind === "event" && entry.payload.of === "title" ? [entry.payload.title] : [],
  );
  return {
    ...{ kind: SessionKind.UNSPECIFIED, title: titles.at(-1) ?? "", createTimeMs: undefined },
    relationship: NOTHING_KNOWN,
  };
}

const NOTHING_KNOWN: OldRelationship = {
  parentSessionId: undefined,
  providerCallId: undefined,
  branchIndex: undefined,
  teamId: undefined,
  memberName: undefined,
};
