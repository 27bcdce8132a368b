import type { Session } from "../../gen/toolmark/v1/session_pb.js";
import type { SessionRow, SessionTree } from "./store-port.js";

/** Where a session stands below others, as its row says it. Never changes. */
export function standingOf({
  sessionId,
  delegationPath,
}: Session): Pick<SessionRow, "parentSessionId" | "rootSessionId"> {
  return {
    parentSessionId: delegationPath.at(-1)?.sessionId,
    rootSessionId: delegationPath[0]?.sessionId ?? sessionId,
  };
}

/** The session with every one below it. */
export function treeOf({ sessionId, rootSessionId }: SessionRow): SessionTree {
  return { sessionId, rootSessionId };
}
