import { parseArgs } from "node:util";

const PARTS = ["load", "start-up", "import", "watch", "replay"] as const;
export type Part = (typeof PARTS)[number];

/** What the command line asks of the benchmark. */
export interface Options {
  readonly parts: readonly Part[];
  readonly rounds: number;
  /** Of load in each round. */
  readonly seconds: number;
  readonly echoOnly: boolean;
  /** Folder for CPU profiles of the service. */
  readonly profile: string | undefined;
  /** Events of the large store. */
  readonly events: number;
  readonly sessions: number;
  /** Of the service on each store that its starts are compared for. */
  readonly starts: number;
  /** Of the older system, that are imported. */
  readonly imports: number;
  /** That one event is sent to. Twice as many are idle when memory is measured. */
  readonly watchers: number;
  /** Events of the session that is replayed. */
  readonly replayed: number;
  /** Folder that holds the large store from run to run. Absent: it is filled anew. */
  readonly keep: string | undefined;
  /** A missed bound fails the run. */
  readonly check: boolean;
}

/** Reads the flags of this process. Throws for what is no flag or no number. */
export function readOptions(): Options {
  const { values } = parseArgs({
    options: {
      part: { type: "string" },
      rounds: { type: "string", default: "5" },
      seconds: { type: "string", default: "3" },
      "echo-only": { type: "boolean", default: false },
      profile: { type: "string" },
      events: { type: "string", default: "1000000" },
      sessions: { type: "string" },
      starts: { type: "string", default: "15" },
      imports: { type: "string", default: "10000" },
      watchers: { type: "string", default: "1000" },
      replayed: { type: "string", default: "50000" },
      keep: { type: "string" },
      check: { type: "boolean", default: false },
    },
  });
  const events = countOf("events", values.events);
  return {
    parts: partsOf(values.part, values["echo-only"]),
    rounds: countOf("rounds", values.rounds),
    seconds: countOf("seconds", values.seconds),
    echoOnly: values["echo-only"],
    profile: values.profile,
    events,
    sessions: countOf("sessions", values.sessions ?? String(Math.ceil(events / 100))),
    starts: countOf("starts", values.starts),
    imports: countOf("imports", values.imports),
    watchers: countOf("watchers", values.watchers),
    replayed: countOf("replayed", values.replayed),
    keep: values.keep,
    check: values.check,
  };
}

function partsOf(name: string | undefined, echoOnly: boolean): readonly Part[] {
  if (name === undefined) return echoOnly ? ["load"] : PARTS;
  const part = PARTS.find((known) => known === name);
  if (part === undefined) throw new Error(`--part: ${name} is not one of ${PARTS.join(", ")}`);
  return [part];
}

function countOf(flag: string, text: string): number {
  const count = Number(text);
  if (Number.isSafeInteger(count) && count > 0) return count;
  throw new Error(`--${flag}: ${text} is not a positive whole number`);
}
