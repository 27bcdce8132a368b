import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fromBinary } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { BaseStateSchema } from "../../gen/toolmark/v1/base_state_pb.js";
import { LegacySourceFormat } from "../../gen/toolmark/v1/legacy_pb.js";
import { given } from "../support/conversation.js";
import { readBytes } from "../support/forking.js";
import { importRequest, readAdopted, recordsIn } from "../support/old-fixtures.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { ROOT } from "../support/source-tree.js";

const FOLDER = join(ROOT, "../shared/real/legacy");
const FILES = existsSync(FOLDER)
  ? readdirSync(FOLDER).filter((name) => name.endsWith(".json"))
  : undefined;
if (FILES === undefined) {
  process.stdout.write(`stored sessions of the old system: not opened, there is no ${FOLDER}\n`);
}

interface Stored {
  readonly snapshot: {
    readonly id: string;
    readonly state: string;
    readonly title?: string;
    readonly messages: readonly { readonly text: string }[];
  };
}

function readFile(name: string): { bytes: Buffer; stored: Stored } {
  const bytes = readFileSync(join(FOLDER, name));
  return { bytes, stored: JSON.parse(bytes.toString("utf8")) as Stored };
}

describe("a stored session of the old system", () => {
  let imported: TestService;
  let mounted: TestService;

  beforeAll(async () => {
    const isThere = FILES !== undefined;
    imported = await startTestService();
    mounted = await startTestService({ flags: isThere ? ["--legacy-dir", FOLDER] : [] });
  });

  afterAll(async () => {
    await Promise.all([imported.stop(), mounted.stop()]);
  });

  /** What was said, as the records of the adopted session have it. */
  async function said(clients: Clients, sessionId: string): Promise<string[]> {
    const { base } = await readAdopted(clients, sessionId);
    const { bodyRef } = given(base, "base");
    const state = fromBinary(BaseStateSchema, await readBytes(clients, sessionId, bodyRef));
    const messages = recordsIn(state, "message");
    return Promise.all(
      messages.map(async ({ content }) => {
        const data = await readBytes(clients, sessionId, given(content, "content").bodyRef);
        return Buffer.from(data).toString();
      }),
    );
  }

  test("is there, or a line says that none is", () => {
    expect(FILES ?? ["none"]).not.toEqual([]);
  });

  for (const name of FILES ?? []) {
    const { bytes, stored } = readFile(name);
    if (!name.endsWith(".session.json")) {
      test(`${name}: is no stored session, and is refused`, async () => {
        const request = importRequest("none", [[LegacySourceFormat.SNAPSHOT, bytes]]);
        const { reason } = await refused(imported.clients().sessions.importSession(request));
        expect(reason).toBe("SOURCE_MALFORMED");
      });
      continue;
    }
    const { id, state, messages, title = "" } = stored.snapshot;
    const label = { key: "legacy_state", value: state };

    test(`${name}: is imported with what was said in it`, async () => {
      const clients = imported.clients();
      const request = importRequest(id, [[LegacySourceFormat.SNAPSHOT, bytes]]);
      const { session } = await clients.sessions.importSession(request);
      expect(session).toMatchObject({ sessionId: id, title, labels: [label] });
      expect(await said(clients, id)).toEqual(messages.map(({ text }) => text));
      await clients.sessions.verifySession({ sessionId: id });
    });

    test(`${name}: is served in place`, async () => {
      const { sessions } = mounted.clients();
      const { session } = await sessions.getSession({ sessionId: id });
      expect(session).toMatchObject({ sessionId: id, title, labels: [label] });
      expect(
        (await sessions.listSessions({})).sessions.map(({ sessionId }) => sessionId),
      ).toContain(id);
    });
  }
});
