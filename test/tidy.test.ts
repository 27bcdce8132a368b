import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { create, createFileRegistry, type DescFile } from "@bufbuild/protobuf";
import {
  FieldDescriptorProto_Label as Label,
  FieldDescriptorProto_Type as Type,
  FileDescriptorSetSchema,
} from "@bufbuild/protobuf/wkt";
import { beforeAll, describe, expect, test } from "vitest";
import { ErrorReasonSchema } from "../gen/toolmark/v1/errors_pb.js";
import {
  mapFieldsInRequests,
  methodsWithoutRequestId,
  privateDataInPublic,
  undocumentedMethods,
} from "./support/contract-checks.js";
import { readSourceTree, ROOT, type SourceFile } from "./support/source-tree.js";
import { dependencyProblems, TIDY_CHECKS } from "./support/tidy-checks.js";

let tree: readonly SourceFile[] = [];
let contracts: readonly DescFile[] = [];

beforeAll(async () => {
  tree = await readSourceTree();
  contracts = await readContracts();
});

/** The descriptors of every generated file of ours. */
async function readContracts(): Promise<DescFile[]> {
  const folder = join(ROOT, "gen/toolmark");
  const names = await readdir(folder, { recursive: true });
  const modules = await Promise.all(
    names
      .filter((name) => name.endsWith("_pb.ts"))
      .map(async (name): Promise<Record<string, unknown>> => {
        return (await import(pathToFileURL(join(folder, name)).href)) as Record<string, unknown>;
      }),
  );
  return modules.flatMap((module) => Object.values(module)).filter(isDescFile);
}

function isDescFile(value: unknown): value is DescFile {
  return typeof value === "object" && value !== null && "kind" in value && value.kind === "file";
}

describe.each(TIDY_CHECKS)("$name", ({ covers, problems, bad }) => {
  test("everywhere", () => {
    expect(tree.filter(({ path }) => covers(path)).flatMap(problems)).toEqual([]);
  });

  test("or it is reported", () => {
    expect(covers(bad.path)).toBe(true);
    expect(problems(bad)).not.toEqual([]);
  });
});

describe("every direct dependency is pinned and explained", () => {
  test("in docs/dependencies.md", async () => {
    const manifest = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as object;
    const reasons = await readFile(join(ROOT, "docs/dependencies.md"), "utf8");
    expect(dependencyProblems(manifest, reasons)).toEqual([]);
  });

  test("or it is reported", () => {
    const manifest = { dependencies: { a: "^1.0.0", b: "1.0.0" } };
    expect(dependencyProblems(manifest, "- `a`: why\n- `c`: why\n")).toEqual([
      "a: ^1.0.0 is not one exact version",
      "b: no reason",
      "c: no dependency",
    ]);
  });
});

/** A contract with each fault that the checks below look for. */
function faultyContract(): DescFile[] {
  const string = { type: Type.STRING, label: Label.OPTIONAL };
  const registry = createFileRegistry(
    create(FileDescriptorSetSchema, {
      file: [
        { name: "toolmark/engine/v1/private.proto", package: "toolmark.engine.v1" },
        {
          name: "toolmark/v1/faulty.proto",
          package: "toolmark.v1",
          syntax: "proto3",
          dependency: ["toolmark/engine/v1/private.proto"],
          messageType: [
            {
              name: "DoRequest",
              field: [
                {
                  name: "inner",
                  number: 1,
                  type: Type.MESSAGE,
                  label: Label.REPEATED,
                  typeName: ".toolmark.v1.Inner",
                },
              ],
            },
            {
              name: "Inner",
              field: [
                {
                  name: "labels",
                  number: 1,
                  type: Type.MESSAGE,
                  label: Label.REPEATED,
                  typeName: ".toolmark.v1.Inner.LabelsEntry",
                },
                { name: "provider_call_id", number: 2, ...string },
              ],
              nestedType: [
                {
                  name: "LabelsEntry",
                  options: { mapEntry: true },
                  field: [
                    { name: "key", number: 1, ...string },
                    { name: "value", number: 2, ...string },
                  ],
                },
              ],
            },
          ],
          service: [
            {
              name: "FaultyService",
              method: [
                {
                  name: "Do",
                  inputType: ".toolmark.v1.DoRequest",
                  outputType: ".toolmark.v1.DoRequest",
                },
              ],
            },
          ],
        },
      ],
    }),
  );
  return [...registry.files];
}

describe("contracts", () => {
  const reasons = new Set(ErrorReasonSchema.values.map(({ localName }) => localName));

  test("are all looked at", () => {
    const packages = new Set(contracts.map(({ proto }) => proto.package));
    expect([...packages].sort()).toEqual([
      "toolmark.engine.v1",
      "toolmark.storage.v1",
      "toolmark.v1",
    ]);
    expect(contracts.flatMap(({ services }) => services).length).toBeGreaterThanOrEqual(7);
  });

  test("have no map field in a request", () => {
    expect(mapFieldsInRequests(contracts)).toEqual([]);
    expect(mapFieldsInRequests(faultyContract())).toEqual(["toolmark.v1.Inner.labels"]);
  });

  test("take a request_id wherever something may change", () => {
    expect(methodsWithoutRequestId(contracts)).toEqual([]);
    expect(methodsWithoutRequestId(faultyContract())).toEqual(["toolmark.v1.FaultyService.Do"]);
  });

  test("keep provider pairing data out of the public package", () => {
    expect(privateDataInPublic(contracts)).toEqual([]);
    expect(privateDataInPublic(faultyContract())).toEqual([
      "toolmark.v1.Inner.provider_call_id",
      "toolmark/v1/faulty imports toolmark/engine/v1/private",
    ]);
  });

  test("say of every method what it does and which known errors it has", () => {
    const protos = tree.filter(({ path }) => path.endsWith(".proto"));
    expect(protos.flatMap((file) => undocumentedMethods(file, reasons))).toEqual([]);
    const bad = [
      "service S {",
      "  rpc A(ARequest) returns (AResponse);",
      "  // Does something that takes a while.",
      "  rpc B(BRequest) returns (BResponse);",
      "  // Does something. Errors: RUN_ACTIVE, NOT_A_REASON (RUN).",
      "  rpc C(stream CRequest) returns (CResponse);",
      "  // Does something with no request.",
      "  rpc D(DRequest) returns (DResponse);",
      "}",
      "message DRequest {}",
    ];
    const file = { path: "proto/bad.proto", text: `${bad.join("\n")}\n` };
    expect(undocumentedMethods(file, reasons)).toEqual([
      "A: says nothing",
      "B: names no errors",
      "C: no reason NOT_A_REASON",
    ]);
  });
});
