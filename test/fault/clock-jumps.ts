import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { ConnectError } from "@connectrpc/connect";
import { dirname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import type { Hook } from "../../gen/toolmark/v1/hook_pb.js";
import { askAbout } from "../support/asking.js";
import { given, publishHook } from "../support/conversation.js";
import { RestartingServer } from "../support/restarting-server.js";
import { nothingWritten, type WrittenRun } from "../support/retrying-writer.js";
import type { LaunchOptions } from "../support/server-process.js";
import { makeStoreFolder } from "../support/store-folder.js";
import { FakeClock } from "./clock-faketime.js";
import { beginWrittenRun, lostOrDoubled, whileWriting, type Load } from "./kill-load.js";

const DAYS = 400;
const WRITERS = 2;
const LIFE_MS = 1500;
/** What looks once a second, and machines that are busy. */
const TOLERANCE_MS = 4500;
const LOOK_AGAIN_MS = 20;
const ACKNOWLEDGED_PER_JUMP = 10;

interface Jump {
  readonly toDays: number;
  readonly restart?: "SIGKILL" | "SIGTERM";
}

/** One after the other, again and again, from a clock that begins 400 days ahead. */
const JUMPS: readonly Jump[] = [
  { toDays: -DAYS },
  // What was asked before the clock went back waits in a process that did not see it.
  { toDays: -DAYS, restart: "SIGKILL" },
  { toDays: DAYS, restart: "SIGTERM" },
  { toDays: -DAYS, restart: "SIGKILL" },
  { toDays: DAYS },
];

/** One of each kind. */
export const KINDS_OF_JUMP = JUMPS.length;

export interface ClockJumpsResult {
  readonly jumps: number;
  /** What was lost, doubled, out of order or lived too long, one line each. */
  readonly problems: readonly string[];
  readonly asksExpired: number;
  /** Longest time that an ask lived beyond what it was given, by a clock that never jumps. */
  readonly latestMs: number;
  readonly acknowledged: number;
}

/** Sets the clock of a server that is written to and asked, forth and back. */
export async function jumpClock(jumps: number, options: LaunchOptions): Promise<ClockJumpsResult> {
  const folder = await makeStoreFolder();
  const clock = new FakeClock(dirname(folder.path), DAYS);
  const { environment } = clock;
  const server = new RestartingServer(dirname(folder.path), folder.store, {
    ...options,
    environment,
  });
  try {
    const runs = [await beginWrittenRun((await server.life()).clients("grpc"), "session")];
    const load = { server, runs, written: nothingWritten(), writers: WRITERS };
    return await new JumpingServer(load, clock).jump(jumps);
  } finally {
    await server.stop("SIGKILL");
    await folder.remove();
  }
}

class JumpingServer {
  readonly #problems: string[] = [];
  readonly #hooks = new Map<string, Hook>();
  readonly #expiring: Promise<number>[] = [];
  /** When the server that now lives began to, by this process's clock. */
  #beganMs = performance.now();

  constructor(
    readonly load: Load,
    readonly clock: FakeClock,
  ) {}

  async jump(jumps: number): Promise<ClockJumpsResult> {
    const { written } = this.load;
    let latestMs = 0;
    await whileWriting(this.load, async (more) => {
      for (let at = 0; at < jumps; at += 1) {
        await more(ACKNOWLEDGED_PER_JUMP);
        await this.#jumpOnce(at, given(JUMPS[at % JUMPS.length], "jump"));
      }
      latestMs = Math.max(0, ...(await Promise.all(this.#expiring)));
    });
    const problems = [...this.#problems, ...(await lostOrDoubled(this.load))];
    const { acknowledged } = written;
    return { jumps, problems, asksExpired: this.#expiring.length, latestMs, acknowledged };
  }

  async #jumpOnce(at: number, { toDays, restart }: Jump): Promise<void> {
    const { server } = this.load;
    const ask = await this.#ask();
    this.#expiring.push(this.#untilExpired(ask));
    await this.#publish(`hook-${at}`);
    this.clock.set(toDays);
    if (restart !== undefined) {
      await server.restart(restart);
      this.#beganMs = performance.now();
    }
    for (const [requestId, hook] of this.#hooks) await this.#askAgain(requestId, hook);
  }

  get #run(): WrittenRun {
    return given(this.load.runs[0], "run");
  }

  async #clients() {
    return (await this.load.server.life()).clients("grpc");
  }

  async #ask(): Promise<Ask> {
    const expireTime = timestampFromMs(this.clock.nowMs() + LIFE_MS);
    const ask = await askAbout(await this.#clients(), this.#run, { expireTime });
    this.load.written.toolCallIds.set(ask.askId, ask.toolCallId);
    return ask;
  }

  async #publish(requestId: string): Promise<void> {
    const hook = await publishHook(await this.#clients(), this.#run, undefined, requestId);
    this.#hooks.set(requestId, hook);
    this.load.written.hookIds.set(hook.text, hook.hookId);
  }

  async #askAgain(requestId: string, hook: Hook): Promise<void> {
    const again = await publishHook(await this.#clients(), this.#run, undefined, requestId);
    if (again.hookId === hook.hookId && again.revision === hook.revision) return;
    this.#problems.push(`${requestId}: ${hook.hookId} now ${again.hookId}`);
  }

  /** Waits until an ask has expired. By how much it lived too long. */
  async #untilExpired({ askId }: Ask): Promise<number> {
    const openedMs = performance.now();
    // A server that begins after the clock went back can know no better than to give the time that was left again.
    const lateMs = () => performance.now() - Math.max(openedMs, this.#beganMs) - LIFE_MS;
    for (;;) {
      const state = await this.#stateOf(askId);
      if (state === AskState.EXPIRED) return lateMs();
      if (state !== AskState.OPEN) this.#problems.push(`${askId} ended in state ${state}`);
      else if (lateMs() > TOLERANCE_MS) this.#problems.push(`${askId} lives too long`);
      else {
        await delay(LOOK_AGAIN_MS);
        continue;
      }
      return lateMs();
    }
  }

  async #stateOf(askId: string): Promise<AskState> {
    const { sessionId } = this.#run;
    for (;;) {
      try {
        const { ask } = await (await this.#clients()).approvals.getAsk({ sessionId, askId });
        return given(ask?.ask, "ask").state;
      } catch (error) {
        // The server was just ended: the next one tells.
        if (!(error instanceof ConnectError)) throw error;
      }
    }
  }
}
