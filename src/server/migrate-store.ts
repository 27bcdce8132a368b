import { ROW_RULES } from "../ledger/row-rules.js";
import { migrateDown, migrateUp, readMigrations, schemaVersion } from "../store/sqlite/migrate.js";
import { openDatabase } from "../store/sqlite/open.js";
import { rebuild } from "../store/sqlite/rebuild.js";
import { existingStore } from "./backup-store.js";

export interface MigrateOptions {
  /** The store's database. */
  readonly path: string;
  /** Default: the newest. */
  readonly to: number | undefined;
  readonly allowDataLoss: boolean;
}

export interface MigrateReport {
  readonly path: string;
  readonly from: number;
  readonly to: number;
}

/** What was asked for is no version to go to, or needs to be asked for in another way. */
export class MigrationTargetError extends Error {
  override readonly name = "MigrationTargetError";
}

/**
 * Takes the schema of a store that nobody has open to another version, in one transaction. Throws MigrationTargetError,
 * or StoreOpenError: "newer_schema" for a file of a newer program, "unreadable" for what is damaged.
 */
export async function migrateStore(options: MigrateOptions): Promise<MigrateReport> {
  const path = await existingStore(options.path);
  const migrations = readMigrations();
  const newest = migrations.length;
  const { to = newest } = options;
  if (!Number.isInteger(to) || to < 1 || to > newest) {
    throw new MigrationTargetError(
      `there is no schema version ${to}: this program knows 1 to ${newest}`,
    );
  }
  const opened = openDatabase({ path });
  const { database } = opened;
  try {
    const from = schemaVersion(database);
    const lossy = migrations.find(
      ({ version, downLosesData }) => downLosesData && version > to && version <= from,
    );
    if (lossy !== undefined && !options.allowDataLoss) {
      const text = `going from version ${lossy.version} to ${lossy.version - 1} loses data`;
      throw new MigrationTargetError(`${text}: back up first, then say --allow-data-loss`);
    }
    if (to > from && to < newest) {
      throw new MigrationTargetError(`from version ${from} the next to go to is ${newest}`);
    }
    if (to === from) return { path, from, to };
    const isDown = to < from && from <= newest;
    if (isDown) migrateDown(database, migrations, to, options.allowDataLoss);
    else {
      migrateUp(database, migrations, (older) => {
        rebuild(older, ROW_RULES);
      });
    }
    return { path, from, to };
  } finally {
    opened.close();
  }
}
