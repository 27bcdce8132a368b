// Another program that holds a database: node single-writer-holder.mjs <path> <SQL>. Ends when its input does.
import process from "node:process";
import Database from "better-sqlite3";

const [path, sql] = process.argv.slice(2);
const database = new Database(path, { timeout: 5000 });
database.exec(sql);
process.stdout.write("held\n");
process.stdin.resume().on("end", () => {
  database.exec("ROLLBACK");
  database.close();
});
