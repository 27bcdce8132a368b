import type { HttpResponse } from "./http.js";

const LAST_WORDS_MS = 10_000;

/**
 * Ends the wait for a reader that takes nothing. What was decided is still sent, but not waited for without end: the
 * connection may have no other use.
 */
export function cutOff(response: HttpResponse): void {
  response.emit("drain");
  const timer = setTimeout(() => response.destroy(), LAST_WORDS_MS).unref();
  response.once("close", () => {
    clearTimeout(timer);
  });
}
