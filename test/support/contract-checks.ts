import type { DescFile, DescMessage, DescMethod } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel as Idempotency } from "@bufbuild/protobuf/wkt";
import type { SourceFile } from "./source-tree.js";

function methodsOf(files: readonly DescFile[]): DescMethod[] {
  return files.flatMap((file) => file.services.flatMap((service) => service.methods));
}

/** Map fields that a request can reach. Their order is free: equal requests could differ. */
export function mapFieldsInRequests(files: readonly DescFile[]): string[] {
  const seen = new Set<string>();
  const found: string[] = [];
  const visit = (message: DescMessage): void => {
    if (seen.has(message.typeName)) return;
    seen.add(message.typeName);
    for (const field of message.fields) {
      if (field.fieldKind === "map") found.push(`${message.typeName}.${field.name}`);
      if (field.message !== undefined) visit(field.message);
    }
  };
  for (const method of methodsOf(files)) visit(method.input);
  return found;
}

/** Unary methods that may change something and take no request_id. */
export function methodsWithoutRequestId(files: readonly DescFile[]): string[] {
  return methodsOf(files)
    .filter(
      (method) =>
        method.methodKind !== "client_streaming" &&
        method.idempotency !== Idempotency.NO_SIDE_EFFECTS &&
        !method.input.fields.some(({ name }) => name === "request_id"),
    )
    .map((method) => `${method.parent.typeName}.${method.name}`);
}

const PRIVATE_FIELD = /^(provider_(call|item)_id|opaque|pairing)$/;

/** Places where a public contract names provider pairing data or a private contract. */
export function privateDataInPublic(files: readonly DescFile[]): string[] {
  const found: string[] = [];
  const visit = (message: DescMessage): void => {
    for (const field of message.fields) {
      if (PRIVATE_FIELD.test(field.name)) found.push(`${message.typeName}.${field.name}`);
    }
    message.nestedMessages.forEach(visit);
  };
  for (const file of files.filter(({ proto }) => proto.package === "toolmark.v1")) {
    file.messages.forEach(visit);
    for (const { name } of file.dependencies) {
      if (/^toolmark\/(engine|storage)\//.test(name)) found.push(`${file.name} imports ${name}`);
    }
  }
  return found;
}

const METHOD = /((?:^ *\/\/.*\n)*)^ *rpc (\w+)\((?:stream )?(\w+)\)/gm;
const EMPTY_MESSAGE = /^message (\w+) \{\}$/gm;
const ERROR_LIST = /Errors: ([^.]*)[.]/g;
const REASON = /\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*\b(?!\w)/g;
// Words in capitals that an error list may hold without being a reason, all of them in brackets.
const BRACKETED = /\([^)]*\)/g;

/** Methods whose comment says too little, or promises a reason that does not exist. */
export function undocumentedMethods(file: SourceFile, knownReasons: ReadonlySet<string>): string[] {
  const empty = new Set([...file.text.matchAll(EMPTY_MESSAGE)].map(([, name]) => name));
  return [...file.text.matchAll(METHOD)].flatMap(([, comment = "", method = "", request = ""]) => {
    const text = comment.replace(/^ *\/\/ ?/gm, "").replaceAll("\n", " ");
    if (text.length < 20) return [`${method}: says nothing`];
    const lists = [...text.matchAll(ERROR_LIST)].map(([, list = ""]) => list);
    if (lists.length === 0 && !empty.has(request)) return [`${method}: names no errors`];
    return lists
      .flatMap((list) => list.replace(BRACKETED, "").match(REASON) ?? [])
      .flatMap((reason) => (knownReasons.has(reason) ? [] : [`${method}: no reason ${reason}`]));
  });
}
