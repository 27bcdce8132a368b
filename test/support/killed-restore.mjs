// Runs a restore of the built program in a process that is killed before the step that is named.
import process from "node:process";
import { restoreStore } from "../../dist/src/server/restore-store.js";

const [path, from, last] = process.argv.slice(2);
await restoreStore({
  path,
  from,
  discard: false,
  onStep: (step) => {
    if (step === last) process.kill(process.pid, "SIGKILL");
  },
});
