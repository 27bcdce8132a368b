// Preloaded into a server: ends at the first signal without a word to anybody.
import process from "node:process";

process.on("SIGTERM", () => process.exit(0));
