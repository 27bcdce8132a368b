import { spawnSync } from "node:child_process";
import { testScale } from "../support/scale.js";

/** A command that must end with 0 for a part of the fault suite to be possible here. */
export interface Tool {
  readonly name: string;
  readonly trial: readonly string[];
}

/** Tracing may be forbidden even where strace is installed. */
export const STRACE: Tool = {
  name: "strace",
  trial: ["strace", "-f", "--seccomp-bpf", "-e", "trace=fsync", "-o", "/dev/null", "true"],
};
export const MOUNT: Tool = {
  name: "mount",
  trial: [
    "sh",
    "-c",
    'at=$(mktemp -d) && mount -t tmpfs tmpfs "$at" && umount "$at" && rmdir "$at"',
  ],
};
export const PRLIMIT: Tool = { name: "prlimit", trial: ["prlimit", "--fsize", "true"] };

function isUsable({ trial: [program = "", ...args] }: Tool): boolean {
  return spawnSync(program, args, { stdio: "ignore" }).status === 0;
}

/**
 * Whether a part can run. Where it is asked for, in CI and by `npm run test:fault`, what is missing is an error;
 * elsewhere a line says what does not run.
 */
export function canRun(part: string, tools: readonly Tool[]): boolean {
  const missing = tools.filter((tool) => !isUsable(tool)).map(({ name }) => name);
  if (missing.length === 0) return true;
  const text = `${part}: cannot run, this machine cannot use ${missing.join(", ")}`;
  const { CI, FAULT_RESULTS } = process.env;
  if (CI !== undefined || FAULT_RESULTS !== undefined) throw new Error(text);
  process.stdout.write(`${text}\n`);
  return false;
}

/** How long one test of the fault suite may take: traced servers are slow, and slower beside other tests. */
export function faultTimeoutMs(): number {
  return { short: 120_000, ci: 900_000, long: 3_600_000 }[testScale()];
}
