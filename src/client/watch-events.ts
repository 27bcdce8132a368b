import { Code, ConnectError, type Client } from "@connectrpc/connect";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import type {
  HistoryService,
  WatchEventsRequest,
  WatchEventsResponse,
} from "../../gen/toolmark/v1/history_service_pb.js";

/** Which events are wanted, and after which cursor. */
export type WatchedEvents = Pick<WatchEventsRequest, "sessionId"> &
  Partial<Pick<WatchEventsRequest, "cursor" | "includeDescendants" | "kinds">>;

export interface WatchOptions {
  /** Ends the watch without an error. */
  readonly signal?: AbortSignal;
  /** First wait before a stream is opened again, in milliseconds; doubled up to `retryMaxMs`. Default: 100. */
  readonly retryMs?: number;
  /** Default: 5000. */
  readonly retryMaxMs?: number;
  /** Silence after which a stream counts as dead. Servers send a heartbeat every 20 seconds. Default: 60 seconds. */
  readonly silenceMs?: number;
  /** Called with the error before each retry. */
  readonly onRetry?: (error: ConnectError) => void;
}

const RETRY_MS = 100;
const RETRY_MAX_MS = 5000;
const SILENCE_MS = 60_000;
/** Codes of streams that can go on by their cursor. */
const RETRIED: ReadonlySet<Code> = new Set([Code.Unavailable, Code.DeadlineExceeded, Code.Aborted]);
/** Codes that transports make up for a connection that is lost, or that never came about. */
const LOST: ReadonlySet<Code> = new Set([...RETRIED, Code.Canceled, Code.Unknown, Code.Internal]);
const LAGGING = "WATCH_LAGGING";

/**
 * The messages of WatchEvents, without holes and without doubles, across lost connections, restarts of the server and
 * WATCH_LAGGING: each new stream goes on after the last cursor. It ends when the session is erased or the signal
 * aborts, and throws ConnectError for what a retry cannot mend (an unknown session, a cursor that is malformed or
 * expired). After a retry the phases begin again with `replay`; the event-less `live` comes once more.
 */
export async function* watchEvents(
  history: Pick<Client<typeof HistoryService>, "watchEvents">,
  wanted: WatchedEvents,
  options: WatchOptions = {},
): AsyncGenerator<WatchEventsResponse, void> {
  const { signal, retryMs = RETRY_MS, retryMaxMs = RETRY_MAX_MS } = options;
  let { cursor = "" } = wanted;
  let failures = 0;
  while (!isAborted(signal)) {
    const stream = new WatchedStream(options);
    try {
      const messages = history.watchEvents({ ...wanted, cursor }, { signal: stream.signal });
      for await (const message of stream.each(messages)) {
        failures = 0;
        ({ cursor } = message);
        yield message;
        if (message.phase === "erased") return;
      }
    } catch (thrown) {
      const error = stream.errorOf(thrown);
      if (isAborted(signal)) return;
      if (!isRetried(error, stream.hasBegun)) throw error;
      options.onRetry?.(error);
    } finally {
      stream.close();
    }
    await wait(Math.min(retryMs * 2 ** failures, retryMaxMs), signal);
    failures += 1;
  }
}

function isAborted(signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true;
}

function wait(timeMs: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, timeMs);
    signal?.addEventListener("abort", end);
    if (isAborted(signal)) end();
  });
}

/** What the server itself says comes with a reason; all else is what became of the connection. */
function isRetried(error: ConnectError, hasBegun: boolean): boolean {
  const [info] = error.findDetails(ErrorInfoSchema);
  if (info === undefined) return hasBegun || LOST.has(error.code);
  return RETRIED.has(error.code) || info.reason === LAGGING;
}

/** One stream, which is given up when nothing comes for too long. */
class WatchedStream {
  readonly #controller = new AbortController();
  readonly #outer: AbortSignal | undefined;
  readonly #silenceMs: number;
  readonly #close = (): void => {
    this.#controller.abort();
  };
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isSilent = false;
  #hasBegun = false;

  constructor({ signal, silenceMs = SILENCE_MS }: WatchOptions) {
    this.#outer = signal;
    this.#silenceMs = silenceMs;
    signal?.addEventListener("abort", this.#close);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Whether the server gave anything. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  async *each<Message>(messages: AsyncIterable<Message>): AsyncGenerator<Message> {
    this.#listen();
    for await (const message of messages) {
      // Whoever takes long over a message is no silent server.
      clearTimeout(this.#timer);
      this.#hasBegun = true;
      yield message;
      this.#listen();
    }
  }

  errorOf(thrown: unknown): ConnectError {
    if (this.#isSilent) return new ConnectError("the server is silent", Code.Unavailable);
    return ConnectError.from(thrown);
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener("abort", this.#close);
    this.#controller.abort();
  }

  #listen(): void {
    this.#timer = setTimeout(() => {
      this.#isSilent = true;
      this.#controller.abort();
    }, this.#silenceMs);
  }
}
