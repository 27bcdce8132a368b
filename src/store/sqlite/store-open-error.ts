/** Why a store is not opened. Names are kept once given: exit codes and scripts depend on them. */
export type StoreOpenReason =
  /** The path names no file of its own, such as `:memory:`. */
  | "path_invalid"
  /** Another process, or this one, has the store open. */
  | "locked"
  /** The file or its folder cannot be opened or made. */
  | "unavailable"
  /** The file is damaged or no database. */
  | "unreadable"
  /** The file is the database of another program. */
  | "foreign_file"
  /** The file was written by a newer version of this program. */
  | "newer_schema"
  /** Events that were stored are not in the file: it is an older copy, or part of it is gone. */
  | "events_missing"
  /** A migration is missing, was refused or failed; the file is as before it. */
  | "migration_failed"
  /** A setting that durability or immutability depends on did not take hold. */
  | "weak_setting";

/** Thrown when a store cannot be opened or migrated as promised. `details` has what `message` says. */
export class StoreOpenError extends Error {
  override readonly name = "StoreOpenError";

  constructor(
    readonly reason: StoreOpenReason,
    message: string,
    readonly details: Readonly<Record<string, string>> = {},
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
