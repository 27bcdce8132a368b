#!/usr/bin/env node
import { EXIT_CODE, type ExitCode } from "../server/exit-code.js";
import { readVersion } from "../server/version.js";

const HELP = `Usage: toolmark <command>

  serve [flags]   Run the server. Its settings: toolmark serve --help
  version         Print the version.
  --help          Print this.
`;

async function main([command, ...rest]: readonly string[]): Promise<ExitCode> {
  switch (command) {
    case "serve": {
      // Loaded on demand: the other commands need none of the server.
      const { serve } = await import("../server/serve.js");
      return serve(rest);
    }
    case "version":
    case "--version":
      process.stdout.write(`${readVersion()}\n`);
      return EXIT_CODE.ok;
    case "help":
    case "--help":
      process.stdout.write(HELP);
      return EXIT_CODE.ok;
    default:
      process.stderr.write(HELP);
      return EXIT_CODE.configuration;
  }
}

process.exit(await main(process.argv.slice(2)));
