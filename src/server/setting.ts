import { parseAddress, type Address } from "./address.js";
import { LOG_LEVELS, type LogLevel } from "./log.js";

/** How one setting is read from the text of a flag or a variable. */
export interface Setting<T> {
  readonly defaultText: string;
  /** What a value looks like, for the help and for the text of a problem. */
  readonly form: string;
  readonly help: string;
  readonly parse: (text: string) => Parsed<T>;
}
export type Parsed<T> = { readonly value: T } | undefined;

export type StoreLocation =
  { readonly kind: "sqlite"; readonly path: string } | { readonly kind: "memory" };

const COUNT_MAX = 2 ** 31 - 1;
const COUNT = /^[1-9]\d{0,9}$/;
const TENANT = /^[\x21-\x7e]{1,256}$/;
const HOST = /^[A-Za-z0-9._:[\]-]+$/;

export function address(defaultText: string, help: string): Setting<Address> {
  return { defaultText, form: "host:port", help, parse: (text) => given(parseAddress(text)) };
}

export function count(defaultText: string, help: string): Setting<number> {
  const parse = (text: string): Parsed<number> =>
    COUNT.test(text) && Number(text) <= COUNT_MAX ? { value: Number(text) } : undefined;
  return { defaultText, form: "a number above 0", help, parse };
}

export function hosts(defaultText: string, help: string): Setting<readonly string[]> {
  const parse = (text: string): Parsed<readonly string[]> => {
    const names = text === "" ? [] : text.split(",").map((name) => name.trim().toLowerCase());
    return names.every((name) => HOST.test(name)) ? { value: names } : undefined;
  };
  return { defaultText, form: "host,host", help, parse };
}

export function store(defaultText: string, help: string): Setting<StoreLocation> {
  const parse = (text: string): Parsed<StoreLocation> => {
    if (text === "memory:") return { value: { kind: "memory" } };
    const path = /^sqlite:(.+)$/.exec(text)?.[1];
    return path === undefined ? undefined : { value: { kind: "sqlite", path } };
  };
  return { defaultText, form: "sqlite:path or memory:", help, parse };
}

/** Where the store is, for the server and for the commands that work on its files. */
export const STORE_SETTING = store("sqlite:./data/toolmark.db", "where records are kept");

export function logLevel(defaultText: LogLevel, help: string): Setting<LogLevel> {
  const parse = (text: string): Parsed<LogLevel> =>
    given(LOG_LEVELS.find((level) => level === text));
  return { defaultText, form: LOG_LEVELS.join("|"), help, parse };
}

export function optionalPath(defaultText: string, help: string): Setting<string | undefined> {
  const parse = (text: string): Parsed<string | undefined> => ({ value: text || undefined });
  return { defaultText, form: "path", help, parse };
}

export function tenant(defaultText: string, help: string): Setting<string> {
  const parse = (text: string): Parsed<string> => given(TENANT.test(text) ? text : undefined);
  return { defaultText, form: "name", help, parse };
}

function given<T>(value: T | undefined): Parsed<T> {
  return value === undefined ? undefined : { value };
}
