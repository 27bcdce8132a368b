import { equalBytes } from "../domain/bytes.js";
import { creationChecksum } from "../ledger/checksums.js";
import type { CreationPlace, FileReader } from "../store/sqlite/file-reader.js";
import type { StoreFinding } from "./verify-finding.js";

const PAGE_ROWS = 500;
const START: CreationPlace = { tenant: "", subject: "", requestId: "" };

/** The first remembered creation that is not as it was written. No event tells of them: none is missed once gone. */
export function findDamagedCreation(
  reader: Pick<FileReader, "listCreations">,
): StoreFinding | undefined {
  let after = START;
  for (;;) {
    const page = reader.listCreations(after, PAGE_ROWS);
    if (page.length === 0) return undefined;
    for (const row of page) {
      const { tenant, subject, requestId } = row;
      const key = `${tenant}, ${subject}, ${requestId}`;
      if (!isAfter(row, after)) return { table: "creations", key, fault: "is out of order" };
      after = { tenant, subject, requestId };
      if (equalBytes(creationChecksum(row), row.checksum)) continue;
      return { table: "creations", key, fault: "does not match its checksum" };
    }
  }
}

/** In the order of the texts' UTF-8. */
function isAfter(place: CreationPlace, before: CreationPlace): boolean {
  const byTenant = order(place.tenant, before.tenant);
  const bySubject = byTenant === 0 ? order(place.subject, before.subject) : byTenant;
  return (bySubject === 0 ? order(place.requestId, before.requestId) : bySubject) > 0;
}

function order(left: string, right: string): number {
  return Buffer.compare(Buffer.from(left), Buffer.from(right));
}
