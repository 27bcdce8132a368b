/**
 * Every exit code of the `toolmark` command. Part of its interface: a code is never given another
 * meaning.
 */
export const EXIT_CODE = {
  /** Done, or drained after a signal. */
  ok: 0,
  /** A setting, a flag or a variable is unknown or has a bad value. */
  configuration: 2,
  /** An address cannot be listened on. */
  addressUnavailable: 69,
  /** Stored data is damaged, or does not go through a checkpoint. */
  damaged: 65,
  /** An import left sessions out: they were refused, or the server was lost. The others are imported. */
  importIncomplete: 66,
  /** A fault of this program, or an invariant that broke. */
  internal: 70,
  /** The store failed while it was served: what was not acknowledged may or may not be stored. */
  storeFailed: 71,
  /** Another process holds the store. */
  storeLocked: 75,
  /** The store cannot be opened as it must be: the text says why. */
  storeUnusable: 74,
  /** A second signal ended the process before it had drained. */
  interrupted: 130,
} as const;
export type ExitCode = (typeof EXIT_CODE)[keyof typeof EXIT_CODE];
