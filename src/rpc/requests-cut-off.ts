import type { Refusal } from "../domain/refusal.js";

/**
 * Thrown by a stream of requests that ends before its time. A refusal is a value everywhere else,
 * but a handler that reads requests has no other way to learn that there is no next one; it lets
 * this pass.
 */
export class RequestsCutOff extends Error {
  override readonly name = "RequestsCutOff";

  constructor(readonly refusal: Refusal) {
    super(refusal.message);
  }
}
