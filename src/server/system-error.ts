/** An error that the operating system gave, such as one about a file. */
export interface SystemError extends Error {
  readonly code: string;
  readonly syscall: string;
}

export function isSystemError(error: unknown): error is SystemError {
  return error instanceof Error && "syscall" in error && "code" in error;
}
