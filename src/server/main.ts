import { serve } from "./serve.js";

process.exit(await serve(process.argv.slice(2)));
