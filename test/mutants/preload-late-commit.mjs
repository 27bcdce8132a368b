// A driver whose COMMIT returns at once and commits a little later.
import { setTimeout } from "node:timers";
import Database from "better-sqlite3";

const LATE_MS = 20;
const { prepare } = Database.prototype;
const due = new WeakMap();

function carryOut(database) {
  const commit = due.get(database);
  due.delete(database);
  commit?.();
}

function late(database, statement) {
  const run = statement.run.bind(statement);
  statement.run = () => {
    due.set(database, run);
    setTimeout(() => carryOut(database), LATE_MS);
    return { changes: 0, lastInsertRowid: 0 };
  };
  return statement;
}

/** What begins or ends a transaction waits for the commit before it. */
function after(database, statement) {
  const run = statement.run.bind(statement);
  statement.run = (...parameters) => {
    carryOut(database);
    return run(...parameters);
  };
  return statement;
}

Database.prototype.prepare = function weakened(sql) {
  const statement = prepare.call(this, sql);
  if (sql === "COMMIT") return late(this, statement);
  return /^(BEGIN|ROLLBACK)/.test(sql) ? after(this, statement) : statement;
};
