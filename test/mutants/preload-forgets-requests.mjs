// Preloaded into a server: remembers no request, so that one that is sent again is carried out again.
import Database from "better-sqlite3";

const { prepare } = Database.prototype;

Database.prototype.prepare = function prepareWithFault(sql) {
  const statement = prepare.call(this, sql);
  if (sql.startsWith("INSERT INTO requests")) {
    statement.run = () => ({ changes: 1, lastInsertRowid: 0 });
  }
  return statement;
};
