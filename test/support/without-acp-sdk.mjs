import { register } from "node:module";

// The program as it is where the optional package was not installed.
const hooks = `export async function resolve(specifier, context, next) {
  if (!specifier.startsWith("@agentclientprotocol/")) return next(specifier, context);
  throw Object.assign(new Error("Cannot find package " + specifier), { code: "ERR_MODULE_NOT_FOUND" });
}`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);
