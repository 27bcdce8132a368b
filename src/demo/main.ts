import { Page } from "./page.js";
import { Stage } from "./stage.js";
import { tellStory } from "./story.js";

const INTERRUPTED = 130;

const stage = new Stage();
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, () => {
    stage.close();
    process.exit(INTERRUPTED);
  });
}
try {
  const { stdout } = process;
  await tellStory(stage, new Page((text) => stdout.write(text), stdout.isTTY));
} finally {
  stage.close();
}
