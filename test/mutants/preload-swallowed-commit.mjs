// A driver that reports success for a COMMIT that failed.
import Database from "better-sqlite3";

const { prepare } = Database.prototype;

Database.prototype.prepare = function weakened(sql) {
  const statement = prepare.call(this, sql);
  if (sql !== "COMMIT") return statement;
  const run = statement.run.bind(statement);
  statement.run = () => {
    try {
      return run();
    } catch (error) {
      if (!(error instanceof Database.SqliteError)) throw error;
      if (this.inTransaction) this.exec("ROLLBACK");
      return { changes: 0, lastInsertRowid: 0 };
    }
  };
  return statement;
};
