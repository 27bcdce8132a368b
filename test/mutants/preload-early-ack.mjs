// Preloaded into a server: acknowledges each commit before it is made, and makes it some time later.
import process from "node:process";
import { setTimeout } from "node:timers";
import Database from "better-sqlite3";

const LATER_MS = Number(process.env.EARLY_ACK_MS ?? "250");
const DONE = { changes: 0, lastInsertRowid: 0 };
const { prepare } = Database.prototype;
let open;

function commitNow() {
  open?.commit();
  open = undefined;
}

function commitLater(commit) {
  // Until then later transactions join this one.
  open ??= { commit };
  setTimeout(commitNow, LATER_MS);
  return DONE;
}

Database.prototype.prepare = function prepareWithFault(sql) {
  const statement = prepare.call(this, sql);
  const run = statement.run.bind(statement);
  if (sql === "COMMIT") statement.run = () => commitLater(run);
  if (sql === "BEGIN IMMEDIATE") statement.run = () => (open === undefined ? run() : DONE);
  if (sql === "BEGIN DEFERRED") {
    statement.run = () => {
      commitNow();
      return run();
    };
  }
  return statement;
};
