import js from "@eslint/js";
import { defineConfig, globalIgnores } from "eslint/config";
import tseslint from "typescript-eslint";

const DEFAULT_EXPORT = {
  selector: "ExportDefaultDeclaration",
  message: "Export by name.",
};
const SWALLOWED_ERROR = [
  {
    selector: "CatchClause[body.body.length=0]",
    message: "An empty catch swallows the error.",
  },
  {
    selector: "CatchClause[param=null]",
    message: "Name the caught error and use it: act on the expected kind, rethrow the rest.",
  },
];
const CLOCK = "Take the time from the clock that src/server/system.ts provides.";
const RANDOM = "Take ids and randomness from src/server/system.ts.";
const ENVIRONMENT = "Only src/server/config.ts and the command line read the environment.";

const AMBIENT_SYNTAX = [
  { selector: "NewExpression[callee.name='Date'][arguments.length=0]", message: CLOCK },
  { selector: "CallExpression[callee.name='Date']", message: CLOCK },
];
const AMBIENT_PROPERTIES = [
  { object: "Date", property: "now", message: CLOCK },
  { object: "Math", property: "random", message: RANDOM },
  { object: "crypto", property: "randomUUID", message: RANDOM },
  { object: "crypto", property: "getRandomValues", message: RANDOM },
];
const ENVIRONMENT_PROPERTY = { object: "process", property: "env", message: ENVIRONMENT };
const RANDOM_IMPORTS = ["randomUUID", "randomBytes", "randomInt", "randomFill", "randomFillSync"];

const TYPED = {
  "@typescript-eslint/consistent-type-exports": "error",
  "@typescript-eslint/consistent-type-imports": "error",
  "@typescript-eslint/no-explicit-any": "error",
  "@typescript-eslint/no-floating-promises": ["error", { checkThenables: true }],
  "@typescript-eslint/no-misused-promises": "error",
  "@typescript-eslint/no-shadow": "error",
  "@typescript-eslint/no-unnecessary-condition": [
    "error",
    { allowConstantLoopConditions: "only-allowed-literals" },
  ],
  "@typescript-eslint/no-unused-vars": ["error", { caughtErrors: "all", ignoreRestSiblings: true }],
  "@typescript-eslint/restrict-template-expressions": [
    "error",
    { allowNumber: true, allowBoolean: true },
  ],
  "@typescript-eslint/switch-exhaustiveness-check": [
    "error",
    {
      allowDefaultCaseForExhaustiveSwitch: true,
      // A default is a decision; `unreachable` in it makes the compiler ask for every case.
      considerDefaultExhaustiveForUnions: true,
      requireDefaultForNonUnion: true,
    },
  ],
  // An async function without await is how a synchronous store turns a throw into a rejection.
  "@typescript-eslint/require-await": "off",
};

const EVERYWHERE = {
  curly: ["error", "multi-line"],
  eqeqeq: "error",
  "no-console": "error",
  "no-constructor-return": "error",
  "no-eval": "error",
  "no-promise-executor-return": "error",
  "no-restricted-syntax": ["error", DEFAULT_EXPORT, ...SWALLOWED_ERROR],
  "no-self-compare": "error",
  "no-unreachable-loop": "error",
  "no-var": "error",
  "object-shorthand": "error",
  "prefer-const": "error",
};

export default defineConfig(
  globalIgnores(["gen/", "dist/", "coverage/", "data/"]),
  { linterOptions: { reportUnusedDisableDirectives: "error" } },
  js.configs.recommended,
  { rules: EVERYWHERE },
  {
    files: ["**/*.ts"],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: {
      parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname },
    },
    rules: TYPED,
  },
  {
    files: ["src/**/*.ts"],
    rules: {
      complexity: ["error", { max: 20, variant: "modified" }],
      "max-depth": ["error", 4],
      "max-lines": ["error", { max: 400, skipBlankLines: true, skipComments: true }],
      "max-lines-per-function": ["error", { max: 70, skipBlankLines: true, skipComments: true }],
      "max-params": ["error", 4],
      "no-restricted-imports": [
        "error",
        {
          paths: ["crypto", "node:crypto"].map((name) => ({
            name,
            importNames: RANDOM_IMPORTS,
            message: RANDOM,
          })),
        },
      ],
      "no-restricted-properties": ["error", ...AMBIENT_PROPERTIES, ENVIRONMENT_PROPERTY],
      "no-restricted-syntax": ["error", DEFAULT_EXPORT, ...SWALLOWED_ERROR, ...AMBIENT_SYNTAX],
    },
  },
  {
    files: ["src/domain/**/*.ts"],
    rules: {
      "no-restricted-globals": [
        "error",
        ...["console", "crypto", "fetch", "performance", "process", "queueMicrotask"],
        ...["setImmediate", "setInterval", "setTimeout"],
      ],
    },
  },
  {
    files: ["src/server/config.ts", "src/server/main.ts", "src/cli/**/*.ts", "src/demo/**/*.ts"],
    rules: { "no-restricted-properties": ["error", ...AMBIENT_PROPERTIES] },
  },
  {
    files: ["src/server/system.ts"],
    rules: {
      "no-restricted-imports": "off",
      "no-restricted-properties": ["error", ENVIRONMENT_PROPERTY],
      "no-restricted-syntax": ["error", DEFAULT_EXPORT, ...SWALLOWED_ERROR],
    },
  },
  {
    files: ["test/**/*.ts", "bench/**/*.ts"],
    rules: {
      "max-lines": ["error", { max: 600, skipBlankLines: true, skipComments: true }],
      "@typescript-eslint/no-non-null-assertion": "off",
      "@typescript-eslint/unbound-method": "off",
    },
  },
  {
    files: ["*.config.{js,mjs,ts}", ".dependency-cruiser.mjs"],
    rules: { "no-restricted-syntax": ["error", ...SWALLOWED_ERROR] },
  },
);
