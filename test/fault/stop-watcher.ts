import { setTimeout as delay } from "node:timers/promises";
import { AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import { AskWatcher } from "../support/asking.js";
import { refused, type Refused } from "../support/refused.js";
import type { RestartingServer, ServerLife } from "../support/restarting-server.js";
import { until } from "../integration/listeners-fixture.js";

/** Watches the asks of a server through all its lives, each time from where the last watch ended. */
export class StopWatcher {
  /** Every ask that was told, as it was then. */
  readonly told: Ask[] = [];
  /** How each watch ended. */
  readonly ends: Refused[] = [];
  readonly #server: RestartingServer;
  readonly #following: Promise<void>;
  #watcher: AskWatcher | undefined;
  #isOver = false;

  constructor(server: RestartingServer) {
    this.#server = server;
    this.#following = this.#follow();
  }

  /** Waits until each of these asks was told as settled, or the watch is refused, and stops. */
  async stopAfter(askIds: Iterable<string>): Promise<void> {
    const wanted = [...askIds];
    const settled = () => new Set(this.told.filter(isSettled).map(({ askId }) => askId));
    await Promise.race([until(() => wanted.every((id) => settled().has(id))), this.#following]);
    this.#isOver = true;
    this.#watcher?.stop();
    await this.#following;
  }

  async #follow(): Promise<void> {
    let cursor = "";
    for (let lives = 1; ; lives += 1) {
      const life = await this.#lifeOf(lives);
      const watcher = new AskWatcher(life.clients("grpc"), { cursor });
      this.#watcher = watcher;
      const end = await refused(this.#take(watcher));
      cursor = watcher.cursor;
      // The end that this side made is none of the server's.
      if (this.#isOver) return;
      this.ends.push(end);
    }
  }

  async #lifeOf(number: number): Promise<ServerLife> {
    for (;;) {
      const life = await this.#server.life();
      if (life.number === number) return life;
      await delay(1);
    }
  }

  async #take(watcher: AskWatcher): Promise<never> {
    for (;;) this.told.push((await watcher.nextAsk()).ask);
  }
}

function isSettled({ state }: Ask): boolean {
  return state !== AskState.OPEN;
}

/** How what was told of asks differs from their log: each must be told as it ended, and nothing twice. */
export function watchProblems(told: readonly Ask[], log: readonly Event[]): string[] {
  const logged = log.flatMap(({ record }) =>
    record?.record.case === "ask" ? [record.record.value] : [],
  );
  const known = new Set(logged.map(placeOf));
  const ends = new Map(logged.map((ask) => [ask.askId, placeOf(ask)]));
  const places = told.map(placeOf);
  const once = new Set(places);
  return [
    ...places.filter((place) => !known.has(place)).map((place) => `${place}: not in the log`),
    ...places.filter((place, at) => places.indexOf(place) < at).map((place) => `${place}: twice`),
    ...[...ends.values()].filter((end) => !once.has(end)).map((end) => `${end}: never told`),
    ...outOfOrder(told).map((ask) => `${placeOf(ask)}: told after a later change`),
  ];
}

function placeOf({ askId, revision = 0n }: Ask): string {
  return `${askId} at revision ${revision}`;
}

/** Revisions of a session rise with the order of its changes. */
function outOfOrder(told: readonly Ask[]): Ask[] {
  const highest = new Map<string, bigint>();
  return told.filter(({ origin, revision = 0n }) => {
    const sessionId = origin?.sessionId ?? "";
    const before = highest.get(sessionId) ?? 0n;
    if (revision > before) highest.set(sessionId, revision);
    return revision <= before;
  });
}
