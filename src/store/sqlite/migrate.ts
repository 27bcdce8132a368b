import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { toError, type SqliteDatabase } from "./sqlite-database.js";
import { FIND_ANY_TABLE } from "./statements.js";
import { StoreOpenError } from "./store-open-error.js";

/** PRAGMA application_id of this program's files, as the first migration sets it. */
const APPLICATION_ID = 1953329771;
const FILE_NAME = /^(\d{4})_([a-z0-9_]+)\.(up|down)\.sql$/;
const LOSES_DATA = "-- loses data";
const REBUILDS = "-- rebuilds";

/** One numbered change of the schema and its reverse. */
export interface Migration {
  readonly version: number;
  readonly name: string;
  readonly up: string;
  readonly down: string;
  /** Whether the reverse drops rows, as its first line says. */
  readonly downLosesData: boolean;
}

/** A step of a plan: SQL to run, and the version of the file after it. */
export interface MigrationStep {
  readonly name: string;
  readonly sql: string;
  readonly versionAfter: number;
  /** Whether rows that follow from others have to be filled after it, as its first line says. */
  readonly rebuilds: boolean;
}

/** The package's own migrations, in order. */
export function readMigrations(folder = findMigrationsFolder()): Migration[] {
  const files = new Map<string, string>();
  for (const file of readdirSync(folder)) {
    if (!FILE_NAME.test(file)) throw failed(`${file} is no name of a migration`, { file });
    files.set(file, readFileSync(join(folder, file), "utf8"));
  }
  const ups = [...files.keys()].filter((file) => file.endsWith(".up.sql")).sort();
  if (files.size !== ups.length * 2) throw failed("a migration lacks its reverse", { folder });
  return ups.map((file, index) => {
    const [, number = "", name = ""] = FILE_NAME.exec(file) ?? [];
    const down = files.get(file.replace(/\.up\.sql$/, ".down.sql"));
    if (Number(number) !== index + 1 || down === undefined) {
      throw failed(`${file} is out of order or lacks its reverse`, { file });
    }
    const up = files.get(file) ?? "";
    return { version: index + 1, name, up, down, downLosesData: down.startsWith(LOSES_DATA) };
  });
}

/** The steps from one version to another, up or down. */
export function planMigration(
  migrations: readonly Migration[],
  from: number,
  to: number,
): MigrationStep[] {
  if (to >= from) {
    return migrations
      .filter(({ version }) => version > from && version <= to)
      .map(({ version, name, up }) => {
        const rebuilds = up.startsWith(REBUILDS);
        return { name, sql: up, versionAfter: version, rebuilds };
      });
  }
  return migrations
    .filter(({ version }) => version > to && version <= from)
    .reverse()
    .map(({ version, name, down }) => {
      return { name, sql: down, versionAfter: version - 1, rebuilds: false };
    });
}

/** The version of the file's schema; 0 before the first migration. */
export function schemaVersion(database: SqliteDatabase): number {
  return Number(database.pragma("user_version"));
}

/** Throws for the file of another program, before anything of it is changed. */
export function identifyFile(database: SqliteDatabase, path: string): void {
  if (database.pragma("application_id") === APPLICATION_ID) return;
  if (schemaVersion(database) === 0 && !hasTables(database)) return;
  throw new StoreOpenError("foreign_file", `${path} belongs to another program`, { path });
}

/**
 * Brings the file to the newest version. Refuses a newer file. `rebuild` fills rows that follow from others, in the
 * same transaction; a file that has no rows needs none.
 */
export function migrateUp(
  database: SqliteDatabase,
  migrations: readonly Migration[],
  rebuild?: (database: SqliteDatabase) => void,
): void {
  const from = refuseNewer(database, migrations);
  const steps = planMigration(migrations, from, migrations.length);
  const needsRebuild = from > 0 && steps.some(({ rebuilds }) => rebuilds);
  if (needsRebuild && rebuild === undefined) {
    throw failed("the file is of an older version and has to be rebuilt", { from: String(from) });
  }
  runSteps(database, steps, needsRebuild ? rebuild : undefined);
}

/** Takes the file back to an older version. Steps that drop rows need `allowDataLoss`. */
export function migrateDown(
  database: SqliteDatabase,
  migrations: readonly Migration[],
  target: number,
  allowDataLoss = false,
): void {
  const from = refuseNewer(database, migrations);
  if (!Number.isInteger(target) || target < 0 || target > from) {
    throw failed(`version ${target} is not below ${from}`, { target: String(target) });
  }
  const lossy = migrations.find(
    ({ version, downLosesData }) => downLosesData && version > target && version <= from,
  );
  if (lossy !== undefined && !allowDataLoss) {
    throw failed(`going below version ${lossy.version} loses data`, { migration: lossy.name });
  }
  runSteps(database, planMigration(migrations, from, target));
}

export function refuseNewer(database: SqliteDatabase, migrations: readonly Migration[]): number {
  const found = schemaVersion(database);
  const known = migrations.length;
  if (found <= known) return found;
  const message = `the file has schema version ${found}, this program knows ${known}: use a newer one`;
  const details = { found: String(found), known: String(known) };
  throw new StoreOpenError("newer_schema", message, details);
}

/** All of them, and what follows, in one transaction. */
function runSteps(
  database: SqliteDatabase,
  steps: readonly MigrationStep[],
  andThen: (database: SqliteDatabase) => void = () => undefined,
): void {
  if (steps.length === 0) return;
  database.exec("BEGIN IMMEDIATE");
  try {
    for (const step of steps) runStep(database, step);
    andThen(database);
    database.exec("COMMIT");
  } catch (error) {
    if (database.inTransaction) database.exec("ROLLBACK");
    if (error instanceof StoreOpenError) throw error;
    throw failed(`a migration failed: ${toError(error).message}`, {}, toError(error));
  }
}

function runStep(database: SqliteDatabase, { name, sql, versionAfter }: MigrationStep): void {
  try {
    database.exec(sql);
    database.pragma(`user_version = ${versionAfter}`);
  } catch (error) {
    const cause = toError(error);
    throw failed(`migration ${name} failed: ${cause.message}`, { migration: name }, cause);
  }
}

function hasTables(database: SqliteDatabase): boolean {
  return database.prepare(FIND_ANY_TABLE).get() !== undefined;
}

/** The folder stays at the package's root; this file is compiled to another depth than its source. */
function findMigrationsFolder(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, "package.json"))) {
    const parent = dirname(folder);
    if (parent === folder) throw failed("the folder of migrations is not there", {});
    folder = parent;
  }
  return join(folder, "migrations");
}

function failed(
  message: string,
  details: Readonly<Record<string, string>>,
  cause?: Error,
): StoreOpenError {
  return new StoreOpenError("migration_failed", message, details, cause && { cause });
}
