import { expect, it } from "vitest";

import { toolNameFor } from "../../src/provider/tool-name.js";

it.each([
  ["read_File-2", "read_File-2"],
  ["functions.Bash:0", "functions_Bash_0"],
  ["mcp server/tool", "mcp_server_tool"],
  ["größe", "gr__e"],
  ["😀", "_"],
  ["", "unnamed_tool"],
  ["n".repeat(65), "n".repeat(64)],
  ["é".repeat(512), "_".repeat(64)],
])("The tool %j is %j for any provider", (name, expected) => {
  expect(toolNameFor(name)).toBe(expected);
});
