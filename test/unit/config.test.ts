import { describe, expect, test } from "vitest";
import { DEFAULT_LIMITS } from "../../src/domain/limits.js";
import { formatAddress, isLoopback, parseAddress } from "../../src/server/address.js";
import { readConfig, type Config } from "../../src/server/config.js";

function configOf(args: readonly string[], environment: Record<string, string> = {}): Config {
  const outcome = readConfig(args, environment);
  if (outcome.kind !== "config") throw new Error(outcome.text);
  return outcome.config;
}

function problemOf(args: readonly string[], environment: Record<string, string> = {}): string {
  const outcome = readConfig(args, environment);
  if (outcome.kind !== "problem") throw new Error("there is no problem");
  return outcome.text;
}

function helpText(): string {
  const outcome = readConfig(["--help"], {});
  if (outcome.kind !== "help") throw new Error("there is no help");
  return outcome.text;
}

describe("settings", () => {
  test("have the documented defaults", () => {
    expect(configOf([])).toEqual({
      grpcAddress: { host: "127.0.0.1", port: 7070 },
      httpAddress: { host: "127.0.0.1", port: 7071 },
      httpAllowedHosts: [],
      store: { kind: "sqlite", path: "./data/toolmark.db" },
      logLevel: "info",
      readyFile: undefined,
      drainTimeoutMs: 10_000,
      snapshotEvery: 256,
      legacyDir: undefined,
      legacyTenant: "default",
      limits: DEFAULT_LIMITS,
    });
  });

  test("come from flags before variables before defaults", () => {
    const environment = { TOOLMARK_SNAPSHOT_EVERY: "10", TOOLMARK_DRAIN_TIMEOUT_MS: "20" };
    const config = configOf(["--snapshot-every", "30"], environment);
    expect(config).toMatchObject({ snapshotEvery: 30, drainTimeoutMs: 20 });
  });

  test("reach every limit under its own name", () => {
    const names = Object.keys(DEFAULT_LIMITS);
    const flags = names.map((name) => `--limit-${name.replace(/[A-Z]/g, "-$&").toLowerCase()}`);
    const valueOf = (name: string, index: number) =>
      name === "outgoingMessageBytes" ? 600_000 : index + 1;
    const args = flags.flatMap((flag, index) => [flag, String(valueOf(names[index]!, index))]);
    const expected = Object.fromEntries(names.map((name, index) => [name, valueOf(name, index)]));
    expect(configOf(args).limits).toEqual(expected);
  });

  test("may have a limit of replies that just takes a chunk, or a call with its bodies", () => {
    const limitsOf = (...args: string[]) => configOf(args).limits;
    expect(limitsOf("--limit-outgoing-message-bytes", "524288").outgoingMessageBytes).toBe(524_288);
    const inline = ["--limit-inline-body-bytes", "245760"];
    expect(limitsOf(...inline).inlineBodyBytes).toBe(245_760);
  });

  test("are frozen", () => {
    const config = configOf([]);
    expect(Object.isFrozen(config) && Object.isFrozen(config.limits)).toBe(true);
  });

  test("take the store in memory", () => {
    expect(configOf(["--store", "memory:"]).store).toEqual({ kind: "memory" });
  });

  test("take more host names in lower case", () => {
    const { httpAllowedHosts } = configOf(["--http-allowed-hosts", "A.example, b.example"]);
    expect(httpAllowedHosts).toEqual(["a.example", "b.example"]);
  });

  test("ignore variables of others", () => {
    expect(configOf([], { PATH: "/bin", TOOLMARKER: "x" }).snapshotEvery).toBe(256);
  });
});

describe("a problem is reported", () => {
  test.each([
    [["--no-such-flag", "x"], {}, "--no-such-flag"],
    [["positional"], {}, "positional"],
    [["--store"], {}, "--store"],
    [["--store", "postgres:x"], {}, '--store: "postgres:x" is not sqlite:path or memory:'],
    [["--log-level", "loud"], {}, '--log-level: "loud" is not trace|debug'],
    [["--grpc-address", "127.0.0.1"], {}, '--grpc-address: "127.0.0.1" is not host:port'],
    [["--drain-timeout-ms", "0"], {}, '--drain-timeout-ms: "0" is not a number above 0'],
    [["--drain-timeout-ms", "2147483648"], {}, "--drain-timeout-ms"],
    [["--limit-page-size", "1e3"], {}, "--limit-page-size"],
    [["--http-allowed-hosts", "a/b"], {}, "--http-allowed-hosts"],
    [[], { TOOLMARK_STORE: "x" }, "TOOLMARK_STORE"],
    [[], { TOOLMARK_NO_SUCH: "x" }, "TOOLMARK_NO_SUCH: there is no such variable"],
    [["--grpc-address", "0.0.0.0:1"], {}, "0.0.0.0:1 is not a loopback address"],
    [["--http-address", "[::]:1"], {}, "[::]:1 is not a loopback address"],
    [["--limit-outgoing-message-bytes", "524287"], {}, "524287 is less than 524288, which a chunk"],
    [
      ["--limit-inline-body-bytes", "245761"],
      {},
      "1048576 is less than 1048580, which a tool call",
    ],
    [["--http-address", "tools.example:1"], {}, "tools.example:1 is not a loopback address"],
  ])("for %j and %j", (args, environment, text) => {
    expect(problemOf(args, environment as Record<string, string>)).toContain(text);
  });

  test("with all the others", () => {
    const text = problemOf(["--store", "x"], { TOOLMARK_NO_SUCH: "x", TOOLMARK_LOG_LEVEL: "x" });
    expect(text.split("\n")).toHaveLength(3);
  });
});

describe("the help", () => {
  test("does not promise an exit within the time of draining", () => {
    expect(helpText()).toContain("longest time that calls in flight are given after a signal");
  });

  test("lists a flag, a variable and a default of each setting", () => {
    const help = helpText();
    expect(help).toContain("--grpc-address <host:port>");
    expect(help).toContain("TOOLMARK_GRPC_ADDRESS");
    expect(help).toContain("(default: 127.0.0.1:7070)");
    expect(help.match(/TOOLMARK_[A-Z_]+/g)).toHaveLength(10 + Object.keys(DEFAULT_LIMITS).length);
  });
});

describe("an address", () => {
  test.each(["127.0.0.1:7070", "[::1]:0", "localhost:65535"])("%s reads as written", (text) => {
    expect(formatAddress(parseAddress(text)!)).toBe(text);
  });

  test.each(["", "127.0.0.1", ":7070", "host:65536", "::1:7070", "a b:1", "host:-1"])(
    "%j is none",
    (text) => {
      expect(parseAddress(text)).toBeUndefined();
    },
  );

  test.each([
    ["127.0.0.1:1", true],
    ["127.9.9.9:1", true],
    ["localhost:1", true],
    ["[::1]:1", true],
    ["0.0.0.0:1", false],
    ["[::]:1", false],
    ["128.0.0.1:1", false],
    ["localhost.example:1", false],
    ["127.0.0.1.example:1", false],
  ])("%s is loopback: %s", (text, loopback) => {
    expect(isLoopback(parseAddress(text)!)).toBe(loopback);
  });
});
