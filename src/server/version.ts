import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { InvariantError } from "../domain/invariant.js";

/**
 * The version in the package that this file belongs to, whether it runs from `src` or from `dist`.
 */
export function readVersion(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  for (;;) {
    const version = versionIn(folder);
    if (version !== undefined) return version;
    const parent = dirname(folder);
    if (parent === folder) throw new InvariantError("the program lies in its package");
    folder = parent;
  }
}

function versionIn(folder: string): string | undefined {
  let text: string;
  try {
    text = readFileSync(join(folder, "package.json"), "utf8");
  } catch (fault) {
    if (fault instanceof Error && "code" in fault && fault.code === "ENOENT") return undefined;
    throw fault;
  }
  const { name, version } = JSON.parse(text) as { name?: unknown; version?: unknown };
  return name === "toolmark" && typeof version === "string" ? version : undefined;
}
