import { parseArgs } from "node:util";
import { DEFAULT_LIMITS, type Limits } from "../domain/limits.js";
import { formatAddress, isLoopback, type Address } from "./address.js";
import type { LogLevel } from "./log.js";
import {
  address,
  count,
  hosts,
  logLevel,
  optionalPath,
  tenant,
  STORE_SETTING,
  type Setting,
  type StoreLocation,
} from "./setting.js";

/**
 * Every setting: its flag is the name with dashes, its variable the same in capitals behind
 * TOOLMARK_.
 */
const SETTINGS = {
  grpcAddress: address("127.0.0.1:7070", "where native gRPC is served; port 0 picks a free one"),
  httpAddress: address("127.0.0.1:7071", "where Connect, gRPC-Web and the rest of HTTP are served"),
  httpAllowedHosts: hosts("", "more names, comma separated, that the Host header may carry"),
  store: STORE_SETTING,
  logLevel: logLevel("info", "how much is logged"),
  readyFile: optionalPath("", "file to write the addresses to once both listeners accept"),
  drainTimeoutMs: count("10000", "longest time that calls in flight are given after a signal"),
  snapshotEvery: count("256", "events of a session between two snapshots"),
  legacyDir: optionalPath(
    "",
    "folder of an older system whose sessions are served; never written to",
  ),
  legacyTenant: tenant("default", "the tenant that the sessions of that folder belong to"),
  limitMessageBytes: limit("messageBytes", "largest incoming message"),
  limitOutgoingMessageBytes: limit("outgoingMessageBytes", "largest outgoing message"),
  limitInlineBodyBytes: limit("inlineBodyBytes", "largest body that replies carry in place"),
  limitBodyBytes: limit("bodyBytes", "largest body"),
  limitCallsPerTurn: limit("callsPerTurn", "calls in one turn"),
  limitCommandsPerApply: limit("commandsPerApply", "commands in one Apply"),
  limitOpenCallsPerSession: limit("openCallsPerSession", "calls of one session without a result"),
  limitOpenAsksPerSession: limit("openAsksPerSession", "open asks in one session"),
  limitDelegationDepth: limit("delegationDepth", "delegating calls above the deepest session"),
  limitSessionsPerCall: limit("sessionsPerCall", "sessions that work for one call"),
  limitStreamsPerConnection: limit("streamsPerConnection", "concurrent streams of one connection"),
  limitPageSize: limit("pageSize", "entries of one page"),
} as const satisfies Record<string, Setting<unknown>>;
type SettingName = keyof typeof SETTINGS;
type Values = {
  [Name in SettingName]: (typeof SETTINGS)[Name] extends Setting<infer T> ? T : never;
};

/** The configuration of one server, read once at the start. */
export interface Config {
  readonly grpcAddress: Address;
  readonly httpAddress: Address;
  readonly httpAllowedHosts: readonly string[];
  readonly store: StoreLocation;
  readonly logLevel: LogLevel;
  readonly readyFile: string | undefined;
  readonly drainTimeoutMs: number;
  readonly snapshotEvery: number;
  readonly legacyDir: string | undefined;
  readonly legacyTenant: string;
  readonly limits: Limits;
}

/** What the command line asks for. */
export type ConfigOutcome =
  | { readonly kind: "config"; readonly config: Config }
  | { readonly kind: "help"; readonly text: string }
  | { readonly kind: "problem"; readonly text: string };

const VARIABLE_PREFIX = "TOOLMARK_";

function limit(name: keyof Limits, help: string): Setting<number> {
  return count(String(DEFAULT_LIMITS[name]), help);
}

/**
 * Reads flags first, then variables, then defaults. Every problem is reported, not just the first.
 */
export function readConfig(
  args: readonly string[],
  environment: Readonly<Record<string, string | undefined>> = process.env,
): ConfigOutcome {
  const flags = readFlags(args);
  if (typeof flags === "string") return { kind: "problem", text: flags };
  if (flags["help"] === true) return { kind: "help", text: helpText() };
  const problems = unknownVariables(environment);
  const values = readValues(flags, environment, problems);
  if (problems.length === 0) problems.push(...addressProblems(values), ...limitProblems(values));
  if (problems.length > 0) return { kind: "problem", text: problems.join("\n") };
  return { kind: "config", config: configOf(values) };
}

type Flags = Readonly<Record<string, string | boolean | undefined>>;

/** The flags given, or what is wrong with them. */
function readFlags(args: readonly string[]): Flags | string {
  const options = Object.fromEntries(
    settingNames().map((name) => [flagOf(name), { type: "string" as const }]),
  );
  try {
    const help = { type: "boolean" as const };
    return parseArgs({ args: [...args], options: { ...options, help } }).values;
  } catch (fault) {
    if (fault instanceof TypeError && "code" in fault) return fault.message;
    throw fault;
  }
}

function readValues(
  flags: Flags,
  environment: Readonly<Record<string, string | undefined>>,
  problems: string[],
): Values {
  const values: Record<string, unknown> = {};
  for (const name of settingNames()) {
    const setting: Setting<unknown> = SETTINGS[name];
    const flag = flags[flagOf(name)];
    const variable = environment[variableOf(name)];
    const text = typeof flag === "string" ? flag : (variable ?? setting.defaultText);
    const parsed = setting.parse(text);
    const source = typeof flag === "string" ? `--${flagOf(name)}` : variableOf(name);
    if (parsed === undefined) problems.push(`${source}: "${text}" is not ${setting.form}`);
    else values[name] = parsed.value;
  }
  // Incomplete only beside a problem, with which it is thrown away.
  return values as Values;
}

function unknownVariables(environment: Readonly<Record<string, string | undefined>>): string[] {
  const known = new Set(settingNames().map(variableOf));
  return Object.keys(environment)
    .filter((name) => name.startsWith(VARIABLE_PREFIX) && !known.has(name))
    .map((name) => `${name}: there is no such variable`);
}

function addressProblems({ grpcAddress, httpAddress }: Values): string[] {
  return Object.entries({ grpcAddress, httpAddress })
    .filter(([, bound]) => !isLoopback(bound))
    .map(([name, bound]) => {
      const flag = flagOf(name as SettingName);
      const rule = "is not a loopback address, and without authentication no other may be served";
      return `--${flag}: ${formatAddress(bound)} ${rule}`;
    });
}

const KIB = 1024;
/** A tool call carries its arguments, its results and what went to the model in place. */
const INLINE_BODIES_OF_CALL = 4;
const BESIDE_INLINE_BODIES_BYTES = 64 * KIB;
/** A chunk of a body has up to 256 KiB, and its JSON form, in base64, a third more. */
const OUTGOING_BYTES_MIN = 512 * KIB;

/** Replies that the server must be able to give have to fit into what it may send. */
function limitProblems(values: Values): string[] {
  const { limitOutgoingMessageBytes: outgoing, limitInlineBodyBytes: inline } = values;
  const flag = `--${flagOf("limitOutgoingMessageBytes")}`;
  const problems: string[] = [];
  if (outgoing < OUTGOING_BYTES_MIN) {
    const least = `${String(OUTGOING_BYTES_MIN)}, which a chunk of a body may take`;
    problems.push(`${flag}: ${String(outgoing)} is less than ${least}`);
  }
  const callBytes = INLINE_BODIES_OF_CALL * inline + BESIDE_INLINE_BODIES_BYTES;
  if (outgoing < callBytes) {
    const cause = `--${flagOf("limitInlineBodyBytes")} ${String(inline)}`;
    const least = `${String(callBytes)}, which a tool call may take with ${cause}`;
    problems.push(`${flag}: ${String(outgoing)} is less than ${least}`);
  }
  return problems;
}

function configOf(values: Values): Config {
  const limits: Limits = {
    messageBytes: values.limitMessageBytes,
    outgoingMessageBytes: values.limitOutgoingMessageBytes,
    inlineBodyBytes: values.limitInlineBodyBytes,
    bodyBytes: values.limitBodyBytes,
    callsPerTurn: values.limitCallsPerTurn,
    commandsPerApply: values.limitCommandsPerApply,
    openCallsPerSession: values.limitOpenCallsPerSession,
    openAsksPerSession: values.limitOpenAsksPerSession,
    delegationDepth: values.limitDelegationDepth,
    sessionsPerCall: values.limitSessionsPerCall,
    streamsPerConnection: values.limitStreamsPerConnection,
    pageSize: values.limitPageSize,
  };
  return Object.freeze({
    grpcAddress: values.grpcAddress,
    httpAddress: values.httpAddress,
    httpAllowedHosts: values.httpAllowedHosts,
    store: values.store,
    logLevel: values.logLevel,
    readyFile: values.readyFile,
    drainTimeoutMs: values.drainTimeoutMs,
    snapshotEvery: values.snapshotEvery,
    legacyDir: values.legacyDir,
    legacyTenant: values.legacyTenant,
    limits: Object.freeze(limits),
  });
}

function helpText(): string {
  const rows = settingNames().map((name) => {
    const { form, help, defaultText }: Setting<unknown> = SETTINGS[name];
    const shown = defaultText === "" ? "none" : defaultText;
    const lines = [variableOf(name), `${help} (default: ${shown})`];
    return [`  --${flagOf(name)} <${form}>`, ...lines.map((line) => `      ${line}`), ""].join(
      "\n",
    );
  });
  return `Flags, and the variables that they take precedence over:\n\n${rows.join("\n")}`;
}

function settingNames(): SettingName[] {
  return Object.keys(SETTINGS) as SettingName[];
}

function flagOf(name: SettingName): string {
  return name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

function variableOf(name: SettingName): string {
  return VARIABLE_PREFIX + flagOf(name).replaceAll("-", "_").toUpperCase();
}
