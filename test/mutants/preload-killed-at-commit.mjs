// For `node --import`: while a file is there, the process is killed right after as many commits as the file says.
// KILLED_AT_COMMIT is its path.
import { existsSync, readFileSync } from "node:fs";
import process from "node:process";
import BetterSqlite from "better-sqlite3";

const trigger = process.env.KILLED_AT_COMMIT;
const { prepare } = BetterSqlite.prototype;
let commits = 0;

BetterSqlite.prototype.prepare = function prepareKilled(sql) {
  const statement = prepare.call(this, sql);
  if (sql !== "COMMIT") return statement;
  const { run } = statement;
  statement.run = (...parameters) => {
    const result = run.apply(statement, parameters);
    if (!existsSync(trigger)) return result;
    commits += 1;
    if (commits === Number(readFileSync(trigger, "utf8"))) process.kill(process.pid, "SIGKILL");
    return result;
  };
  return statement;
};
