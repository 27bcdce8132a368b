import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import * as client from "../../src/client/index.js";
import { ROOT } from "../support/source-tree.js";

test("docs/client.md imports what the client gives", async () => {
  const page = await readFile(join(ROOT, "docs/client.md"), "utf8");
  const [, names = ""] =
    /import \{([^}]+)\} from ".\/dist\/src\/client\/index.js"/.exec(page) ?? [];
  const imported = names.split(",").map((name) => name.trim());
  expect(imported).toContain("Conversation");
  for (const name of imported) expect(Object.keys(client)).toContain(name);
});
