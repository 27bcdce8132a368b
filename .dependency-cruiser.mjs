// The arrows between the folders of src/. A folder may import itself and what its line lists,
// nothing else of src/.
const ARROWS = {
  domain: [],
  ledger: ["src/domain/"],
  store: ["src/ledger/store-port[.]ts$", "src/domain/"],
  watch: ["src/ledger/", "src/domain/"],
  provider: ["src/domain/"],
  legacy: ["src/ledger/store-port[.]ts$", "src/domain/"],
  projection: ["src/domain/"],
  rpc: ["src/ledger/", "src/watch/", "src/provider/", "src/projection/", "src/domain/"],
  server: ["src/(?!client/|cli/|demo/)"],
  client: ["src/domain/(merge-law|attachment|event-kind|offered-verdicts|archived-summary)[.]ts$"],
  inspector: ["src/client/"],
  cli: ["src/server/", "src/client/", "src/projection/", "src/domain/"],
  demo: ["src/client/"],
};

// Packages that only some files may name, whatever folder they are in.
const CONFINED = {
  "better-sqlite3": ["src/store/sqlite/open[.]ts$"],
  "@grpc/grpc-js|grpc-health-check": ["src/rpc/grpc-[^/]*[.]ts$", "src/server/"],
  "@connectrpc/": ["src/rpc/connect-[^/]*[.]ts$", "src/server/", "src/client/", "src/demo/"],
  pino: ["src/server/"],
  "prom-client": ["src/server/"],
  "jsonc-parser": ["src/domain/json-text[.]ts$"],
  "@agentclientprotocol/": ["src/projection/acp", "src/cli/acp"],
};

const PURE = "domain|ledger|watch|provider|legacy|projection";
const NPM = ["npm", "npm-dev", "npm-optional", "npm-peer", "npm-no-pkg", "npm-unknown"];
// The run time of the generated records.
const PROTOBUF = "(^|/)@bufbuild/protobuf(/|$)";
// The optional peer; who may name it is said above.
const ACP = "(^|/)@agentclientprotocol/";
// And what says where a value stands in a JSON text.
const PURE_PACKAGES = `${PROTOBUF}|(^|/)jsonc-parser(/|$)`;
const NETWORK = "dgram|dns|https?|http2|net|tls";
const MACHINE = "child_process|cluster|fs|os|process|readline|worker_threads";

const anchored = (paths) => paths.map((path) => `^${path}`).join("|");

const arrowRules = Object.entries(ARROWS).map(([folder, allowed]) => ({
  name: `arrows-of-${folder}`,
  comment: `src/${folder} may import only ${["itself", "gen", ...allowed].join(", ")}.`,
  severity: "error",
  from: { path: `^src/${folder}/` },
  to: { path: "^src/", pathNot: anchored([`src/${folder}/`, ...allowed]) },
}));

const confinedRules = Object.entries(CONFINED).map(([packages, owners]) => ({
  name: `confined-${packages.replace(/[^a-z0-9-]+/g, "-").replace(/^-|-$/g, "")}`,
  comment: `Only ${owners.join(" and ")} may import it.`,
  severity: "error",
  from: { path: "^src/", pathNot: anchored(owners) },
  to: { path: `(^|/)node_modules/(${packages})|^(${packages})` },
}));

export default {
  forbidden: [
    ...arrowRules,
    ...confinedRules,
    {
      name: "folder-without-arrows",
      comment: "A new folder of src/ gets a line in ARROWS.",
      severity: "error",
      from: { path: "^src/", pathNot: `^src/(${Object.keys(ARROWS).join("|")})/` },
      to: {},
    },
    {
      name: "store-used-by-server-only",
      comment: "The composition root alone chooses a store.",
      severity: "error",
      from: { path: "^src/", pathNot: "^src/(server|store)/" },
      to: { path: "^src/store/" },
    },
    {
      name: "stores-apart",
      comment: "The two stores share nothing but what lies in src/store/ itself.",
      severity: "error",
      from: { path: "^src/store/([^/]+)/" },
      to: { path: "^src/store/[^/]+/", pathNot: "^src/store/$1/" },
    },
    {
      name: "domain-without-platform",
      comment: "The domain is pure; sha256.ts is its one use of the platform.",
      severity: "error",
      from: { path: "^src/domain/", pathNot: "^src/domain/sha256[.]ts$" },
      to: { dependencyTypes: ["core"] },
    },
    {
      name: "sha256-from-crypto-only",
      comment: "The domain's one use of the platform is a pure function.",
      severity: "error",
      from: { path: "^src/domain/sha256[.]ts$" },
      to: { dependencyTypes: ["core"], pathNot: "^(node:)?crypto$" },
    },
    {
      name: "ledger-without-io",
      comment: "What a ledger reads and writes goes through its port.",
      severity: "error",
      from: { path: "^src/(ledger|watch|provider|legacy|projection)/" },
      to: { path: `^(node:)?(${NETWORK}|${MACHINE})(/|$)` },
    },
    {
      name: "rpc-without-machine",
      comment: "The adapters speak HTTP; files, processes and the environment are the server's.",
      severity: "error",
      from: { path: "^src/rpc/" },
      to: { path: `^(node:)?(${MACHINE})(/|$)` },
    },
    {
      name: "pure-without-packages",
      comment:
        "Rules depend on no package but the run time of the generated records and a JSON reader.",
      severity: "error",
      from: { path: `^src/(${PURE})/` },
      to: { dependencyTypes: NPM, pathNot: `${PURE_PACKAGES}|${ACP}` },
    },
    {
      name: "sources-stand-alone",
      comment: "What ships imports nothing that does not.",
      severity: "error",
      from: { path: "^src/" },
      to: { path: "^(test|bench|dist)/" },
    },
    {
      name: "gen-stands-alone",
      comment: "Generated code knows nothing of src/.",
      severity: "error",
      from: { path: "^gen/" },
      to: { pathNot: `^gen/|${PROTOBUF}` },
    },
    {
      name: "no-development-package",
      comment: "What ships needs run-time dependencies only.",
      severity: "error",
      from: { path: "^(src|gen)/" },
      to: { dependencyTypes: ["npm-dev", "npm-no-pkg", "npm-unknown"], pathNot: ACP },
    },
    {
      name: "no-unresolvable",
      comment: "Every import leads somewhere.",
      severity: "error",
      from: {},
      to: { couldNotResolve: true },
    },
    { name: "no-cycle", severity: "error", from: {}, to: { circular: true } },
    {
      name: "no-orphan",
      comment: "A file that imports nothing and is imported by nothing is dead.",
      severity: "error",
      from: { orphan: true, path: "^src/" },
      to: {},
    },
  ],
  options: {
    doNotFollow: { path: "(^|/)node_modules/" },
    tsConfig: { fileName: "tsconfig.json" },
    // Imports of types count: an arrow is an arrow.
    tsPreCompilationDeps: true,
    enhancedResolveOptions: {
      exportsFields: ["exports"],
      conditionNames: ["import", "node", "default", "types"],
      mainFields: ["main", "types"],
    },
  },
};
