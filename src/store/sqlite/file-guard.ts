import { statSync } from "node:fs";

interface Identity {
  readonly path: string;
  readonly device: bigint;
  readonly file: bigint;
}

/** The store's files were removed or replaced: what is written goes where nobody will find it. */
export class StoreFilesGoneError extends Error {
  override readonly name = "StoreFilesGoneError";

  constructor(readonly path: string) {
    super(`${path} was removed or replaced while the store was open`);
  }
}

/**
 * Watches that the paths of an open store still lead to the files that were opened. Looked at after each commit, before
 * it is acknowledged. Not seen: a file that is replaced between SQLite's opening it and this guard's first look at it;
 * one that is replaced after the last look before an acknowledgement, which the next commit tells; a change of a file's
 * content by another program; a folder above that was moved, as long as the path still leads to the files.
 */
export class FileGuard {
  readonly #files: readonly Identity[];

  /** The files are open. Throws StoreFilesGoneError if one is not there. */
  constructor(paths: readonly string[]) {
    this.#files = paths.map((path) => {
      const found = lookAt(path);
      if (found === undefined) throw new StoreFilesGoneError(path);
      return { path, device: found.dev, file: found.ino };
    });
  }

  /** Why the paths no longer lead to the files, if they do not. */
  gone(): StoreFilesGoneError | undefined {
    for (const { path, device, file } of this.#files) {
      const found = lookAt(path);
      if (found?.dev !== device || found.ino !== file) return new StoreFilesGoneError(path);
    }
    return undefined;
  }
}

/** An inode number may exceed what a number holds. What cannot be looked at is not there. */
function lookAt(path: string): { readonly dev: bigint; readonly ino: bigint } | undefined {
  try {
    return statSync(path, { bigint: true, throwIfNoEntry: false });
  } catch (error) {
    if (error instanceof Error && "code" in error) return undefined;
    throw error;
  }
}
