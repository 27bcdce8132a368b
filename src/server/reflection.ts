import {
  create,
  createRegistry,
  toBinary,
  type DescFile,
  type DescService,
} from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import {
  ServerReflection as ReflectionV1,
  ServerReflectionResponseSchema as ResponseV1,
} from "../../gen/grpc/reflection/v1/reflection_pb.js";
import {
  ServerReflection as ReflectionV1Alpha,
  ServerReflectionResponseSchema as ResponseV1Alpha,
} from "../../gen/grpc/reflection/v1alpha/reflection_pb.js";
import { bindService, type BoundService } from "../rpc/call.js";
import { STATUS_CODE } from "../rpc/error-table.js";

/** What clients ask for. Both versions of the protocol have the same fields. */
type Question =
  | { case: "fileByFilename" | "fileContainingSymbol" | "allExtensionNumbersOfType"; value: string }
  | { case: "listServices"; value: string }
  | { case: "fileContainingExtension"; value: { containingType: string } }
  | { case: undefined; value?: undefined };

type Answer =
  | { case: "fileDescriptorResponse"; value: { fileDescriptorProto: Uint8Array[] } }
  | { case: "listServicesResponse"; value: { service: { name: string }[] } }
  | { case: "allExtensionNumbersResponse"; value: { baseTypeName: string } }
  | { case: "errorResponse"; value: { errorCode: number; errorMessage: string } };

/**
 * Describes services to clients that have no schema, in both versions of the reflection protocol.
 */
export function reflectionServices(described: readonly DescService[]): BoundService[] {
  const answer = answerFrom([...described, ReflectionV1, ReflectionV1Alpha]);
  return [
    bindService(ReflectionV1, {
      async *serverReflectionInfo(_context, requests) {
        for await (const request of requests) {
          const messageResponse = answer(request.messageRequest);
          yield create(ResponseV1, { originalRequest: request, messageResponse });
        }
      },
    }),
    bindService(ReflectionV1Alpha, {
      async *serverReflectionInfo(_context, requests) {
        for await (const request of requests) {
          const messageResponse = answer(request.messageRequest);
          yield create(ResponseV1Alpha, { originalRequest: request, messageResponse });
        }
      },
    }),
  ];
}

function answerFrom(services: readonly DescService[]): (question: Question) => Answer {
  const files = withDependencies(services.map(({ file }) => file));
  const fileByName = new Map([...files].map((file) => [file.proto.name, file]));
  const registry = createRegistry(...files);
  const fileOf = (symbol: string): DescFile | undefined =>
    registry.get(symbol)?.file ?? registry.get(symbol.replace(/\.[^.]*$/, ""))?.file;
  return (question) => {
    switch (question.case) {
      case "listServices": {
        const service = services.map(({ typeName }) => ({ name: typeName }));
        return { case: "listServicesResponse", value: { service } };
      }
      case "fileByFilename":
        return describe(fileByName.get(question.value));
      case "fileContainingSymbol":
        return describe(fileOf(question.value));
      case "allExtensionNumbersOfType":
        return registry.getMessage(question.value) === undefined
          ? notFound()
          : { case: "allExtensionNumbersResponse", value: { baseTypeName: question.value } };
      case "fileContainingExtension":
      case undefined:
        return notFound();
    }
  };
}

/**
 * A file comes with all that it imports: a client that had to ask for each could not build the
 * first one.
 */
function describe(file: DescFile | undefined): Answer {
  if (file === undefined) return notFound();
  const fileDescriptorProto = [...withDependencies([file])].map(({ proto }) =>
    toBinary(FileDescriptorProtoSchema, proto),
  );
  return { case: "fileDescriptorResponse", value: { fileDescriptorProto } };
}

function withDependencies(files: readonly DescFile[]): Set<DescFile> {
  const found = new Set<DescFile>();
  const add = (file: DescFile): void => {
    if (found.has(file)) return;
    found.add(file);
    file.dependencies.forEach(add);
  };
  files.forEach(add);
  return found;
}

function notFound(): Answer {
  const value = { errorCode: STATUS_CODE.NOT_FOUND, errorMessage: "not found" };
  return { case: "errorResponse", value };
}
