// For `node --import`: commits of SQLite fail while a file is there. FAILING_COMMIT is its path; it holds the code.
import { existsSync, readFileSync } from "node:fs";
import process from "node:process";
import BetterSqlite from "better-sqlite3";

const trigger = process.env.FAILING_COMMIT;
const { prepare } = BetterSqlite.prototype;

BetterSqlite.prototype.prepare = function prepareFailing(sql) {
  const statement = prepare.call(this, sql);
  if (sql !== "COMMIT") return statement;
  const { run } = statement;
  statement.run = (...parameters) => {
    if (!existsSync(trigger)) return run.apply(statement, parameters);
    const code = readFileSync(trigger, "utf8");
    throw Object.assign(new Error(`planted ${code}`), { code });
  };
  return statement;
};
