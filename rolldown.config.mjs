import { fileURLToPath, URL } from "node:url";
import { defineConfig } from "rolldown";

// Node takes about a millisecond for each module that it loads, and the server has 400: in a few files it is ready in
// two thirds of the time. Everything in CommonJS stays outside; it gains nothing.
const BUNDLED = /^@(bufbuild|connectrpc)\//;
const inside = (id) => /^[./]/.test(id) || BUNDLED.test(id);

export default defineConfig({
  input: {
    toolmark: "src/cli/main.ts",
    server: "src/server/main.ts",
    // Started by name, so they keep it.
    "verify-thread": "src/server/verify-thread.ts",
    "copy-thread": "src/store/sqlite/copy-thread.ts",
  },
  cwd: fileURLToPath(new URL(".", import.meta.url)),
  platform: "node",
  external: (id) => !inside(id),
  resolve: { extensionAlias: { ".js": [".ts", ".js"] } },
  // Flat: a thread is looked for beside the file that starts it.
  output: {
    dir: "dist/bin",
    format: "esm",
    entryFileNames: "[name].js",
    chunkFileNames: "part-[name].js",
    sourcemap: true,
    cleanDir: true,
  },
});
