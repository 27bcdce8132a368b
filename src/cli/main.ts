#!/usr/bin/env node
import { EXIT_CODE, type ExitCode } from "../server/exit-code.js";
import { readVersion } from "../server/version.js";
import { say, sayProgress, UsageError } from "./command-line.js";

interface Command {
  readonly help: string;
  /** Loads what it needs: no command needs what the others do. */
  readonly run: (args: readonly string[]) => Promise<ExitCode>;
}

const COMMANDS: Readonly<Record<string, Command>> = {
  serve: {
    help: "Run the server.",
    run: async (args) => (await import("../server/serve.js")).serve(args),
  },
  backup: {
    help: "Copy the store into one file, also while it is served.",
    run: async (args) => (await import("./backup.js")).backupCommand(args),
  },
  restore: {
    help: "Put a backup in the place of the store.",
    run: async (args) => (await import("./restore.js")).restoreCommand(args),
  },
  verify: {
    help: "Check every row of a store, or of a backup.",
    run: async (args) => (await import("./verify.js")).verifyCommand(args),
  },
  migrate: {
    help: "Take the store's schema to another version.",
    run: async (args) => (await import("./migrate.js")).migrateCommand(args),
  },
  import: {
    help: "Bring sessions of an older system to a server.",
    run: async (args) => (await import("./import.js")).importCommand(args),
  },
  transcript: {
    help: "Print the account of a session.",
    run: async (args) => (await import("./transcript.js")).transcriptCommand(args),
  },
  acp: {
    help: "Show a session to an editor that speaks the Agent Client Protocol.",
    run: async (args) => (await import("./acp.js")).acpCommand(args),
  },
  version: { help: "Print the version.", run: async () => say(readVersion()) },
};

async function main([name = "", ...args]: readonly string[]): Promise<ExitCode> {
  if (name === "help" || name === "--help") return say(helpText());
  const wanted = name === "--version" ? "version" : name;
  const command = Object.hasOwn(COMMANDS, wanted) ? COMMANDS[wanted] : undefined;
  if (command === undefined) {
    const what = name === "" ? "" : `There is no command ${name}.\n\n`;
    return complain(what + helpText(), EXIT_CODE.configuration);
  }
  try {
    return await command.run(args);
  } catch (error) {
    sayProgress("");
    if (error instanceof UsageError) {
      const text = `${error.message}\nSee: toolmark ${name} --help`;
      return complain(text, EXIT_CODE.configuration);
    }
    const { commandFaultOf } = await import("../server/command-fault.js");
    const { text, exitCode } = commandFaultOf(error);
    return complain(text, exitCode);
  }
}

function helpText(): string {
  const width = Math.max(...Object.keys(COMMANDS).map((name) => name.length));
  const rows = Object.entries(COMMANDS).map(
    ([name, { help }]) => `  ${name.padEnd(width)}  ${help}`,
  );
  return `Usage: toolmark <command> [flags]\n\n${rows.join("\n")}\n\nFlags: toolmark <command> --help`;
}

function complain(text: string, exitCode: ExitCode): ExitCode {
  process.stderr.write(`${text}\n`);
  return exitCode;
}

process.exit(await main(process.argv.slice(2)));
