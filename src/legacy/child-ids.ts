/**
 * Whether an old id of an ask or a review is that of a child session. Both begin with the id of their session, but for
 * ids without a colon, which are of no form and taken to be of the session that has them.
 */
export function isOfChild(sessionId: string, id: string): boolean {
  return id.includes(":") && !id.startsWith(`${sessionId}:`);
}
