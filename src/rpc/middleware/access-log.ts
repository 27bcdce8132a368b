import { isRefusal, type Refusal } from "../../domain/refusal.js";
import { methodName, repliesWithStream, type Item } from "../call.js";
import { reasonName, STATUS_OF_REASON } from "../error-table.js";
import type { Log, LogFields } from "../log.js";
import type { OpenCall } from "../open-call.js";
import { whenEnded, type Middleware } from "../reply.js";

/**
 * One line a call: answered ones at debug, refused ones at info, which makes the audit log of
 * refused attempts. Ids and sizes only; never a body, a token, a provider's id or the text of a
 * message.
 */
export function accessLog(log: Log, monotonicMs: () => number): Middleware {
  function write(call: OpenCall, last: Item | undefined, replies: number): void {
    const refusal = refusalBehind(call, last);
    if (refusal !== undefined) {
      log.info("call refused", fieldsOf(call, refusal, replies, monotonicMs()));
    } else if (log.debugEnabled) {
      log.debug("call answered", fieldsOf(call, undefined, replies, monotonicMs()));
    }
  }
  return (call, request, next) =>
    whenEnded(next(call, request), (last, replies) => {
      write(call, last, replies);
    });
}

/**
 * Why the call failed. One reply that was given is the answer, even if the caller left before it was
 * sent; a stream may have been left before its end.
 */
function refusalBehind(call: OpenCall, last: Item | undefined): Refusal | undefined {
  if (isRefusal(last)) return last;
  return last === undefined || repliesWithStream(call.method) ? call.aborted : undefined;
}

function fieldsOf(
  call: OpenCall,
  refusal: Refusal | undefined,
  replies: number,
  monotonicMs: number,
): LogFields {
  return {
    method: methodName(call.method),
    status: refusal === undefined ? "OK" : STATUS_OF_REASON[refusal.reason],
    reason: refusal === undefined ? undefined : reasonName(refusal.reason),
    durationMs: monotonicMs - call.startedMs,
    replies,
    tenant: call.identified?.tenant,
    subject: call.identified?.subject,
    peer: call.peer,
    sessionId: idIn(call.request, "sessionId"),
    askId: askIdOf(call),
    correlationId: call.correlationId,
  };
}

const ID_LENGTH_MAX = 512;

/** The id in a field of a request, if it names one there that may be logged whole. */
function idIn(request: object | undefined, field: "sessionId" | "askId"): string | undefined {
  const id: unknown = request === undefined ? undefined : Reflect.get(request, field);
  return typeof id === "string" && id !== "" && id.length <= ID_LENGTH_MAX ? id : undefined;
}

/** The ask that a request names itself, or by its one command. */
function askIdOf({ request }: OpenCall): string | undefined {
  if (request === undefined) return undefined;
  const command: unknown = Reflect.get(request, "command");
  return idIn(typeof command === "object" && command !== null ? command : request, "askId");
}
