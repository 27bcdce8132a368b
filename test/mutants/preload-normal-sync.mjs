// A driver that syncs at checkpoints only, and says otherwise when asked.
import Database from "better-sqlite3";

const { pragma } = Database.prototype;
const FULL = 2;

Database.prototype.pragma = function weakened(text, options) {
  if (text === "synchronous = FULL") return pragma.call(this, "synchronous = NORMAL", options);
  if (text === "synchronous") return FULL;
  return pragma.call(this, text, options);
};
