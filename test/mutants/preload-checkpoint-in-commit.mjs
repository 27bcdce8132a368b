// A driver whose COMMIT also moves the log into the database, and fails if that does.
import Database from "better-sqlite3";

const { prepare } = Database.prototype;

Database.prototype.prepare = function weakened(sql) {
  const statement = prepare.call(this, sql);
  if (sql !== "COMMIT") return statement;
  const run = statement.run.bind(statement);
  statement.run = () => {
    const done = run();
    this.pragma("wal_checkpoint(PASSIVE)");
    return done;
  };
  return statement;
};
