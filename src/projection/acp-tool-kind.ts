import type { ToolKind } from "@agentclientprotocol/sdk";

const WORDS: Readonly<Record<Exclude<ToolKind, "other" | "switch_mode">, readonly string[]>> = {
  read: ["read", "cat", "view", "open"],
  edit: ["edit", "write", "patch", "replace", "update", "create", "insert"],
  delete: ["delete", "remove", "rm"],
  move: ["move", "rename", "mv"],
  search: ["search", "grep", "glob", "find", "list", "ls"],
  execute: ["bash", "shell", "exec", "execute", "run", "command", "terminal"],
  think: ["think", "plan"],
  fetch: ["fetch", "http", "web", "browse", "download", "curl"],
};

const KIND_OF_WORD = new Map<string, ToolKind>(
  Object.entries(WORDS).flatMap(([kind, words]) =>
    words.map((word): [string, ToolKind] => [word, kind as ToolKind]),
  ),
);

/** The icon for a tool: by the first word of its name that tells one, since nothing else is known of it. */
export function toolKindOf(toolName: string): ToolKind {
  const words = toolName
    .replaceAll(/([a-z0-9])([A-Z])/g, "$1 $2")
    .toLowerCase()
    .split(/[^a-z0-9]+/);
  const known = words.find((word) => KIND_OF_WORD.has(word)) ?? "";
  return KIND_OF_WORD.get(known) ?? "other";
}
