import { Page } from "./page.js";
import { Stage } from "./stage.js";
import { tellStory } from "./story.js";

const INTERRUPTED = 130;

const { stdout } = process;
const stage = new Stage();
// However the demo ends, its server and its files go with it.
process.once("exit", () => {
  stage.close();
});
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, () => process.exit(INTERRUPTED));
}
stdout.once("error", (error: NodeJS.ErrnoException) => {
  // Nobody reads any more, as behind `head`.
  if (error.code === "EPIPE") process.exit();
  throw error;
});
await tellStory(stage, new Page((text) => stdout.write(text), stdout.isTTY));
stage.close();
