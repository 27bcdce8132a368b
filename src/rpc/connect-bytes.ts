import type { DescMethod } from "@bufbuild/protobuf";
import { StringValueSchema, type StringValue } from "@bufbuild/protobuf/wkt";
import { createContextKey } from "@connectrpc/connect";
import type { UniversalServerRequest, UniversalServerResponse } from "@connectrpc/connect/protocol";

/**
 * Connect decodes requests before it calls anyone, and answers those that do not decode with a text
 * that quotes them. So it is made to carry bytes: every method takes and gives one string, in base64,
 * whose JSON form on the wire are the bytes themselves. What they mean is decided in the pipeline.
 */
export type Carried = StringValue;

/** The method as connect sees it. */
export function carrying(method: DescMethod): DescMethod {
  return { ...method, input: StringValueSchema, output: StringValueSchema };
}

export function carry(bytes: Uint8Array): Carried {
  return { $typeName: StringValueSchema.typeName, value: toBase64(bytes) };
}

export function bytesOf(carried: Carried): Uint8Array {
  return Buffer.from(carried.value, "base64");
}

/**
 * The border between wire and connect. connect-node hands both coders on, though the type of its
 * options does not say so.
 */
export const CARRIED_AS_JSON = {
  ignoreUnknownFields: false,
  textDecoder: { decode: (bytes: Uint8Array): string => `"${toBase64(bytes)}"` },
  textEncoder: {
    encode: (json: string): Uint8Array => Buffer.from(json.slice(1, -1), "base64"),
  },
};

function toBase64({ buffer, byteOffset, byteLength }: Uint8Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString("base64");
}

/** Whether messages of the call are JSON, in both directions. */
export const jsonKey = createContextKey(false);

const BINARY = /^(application\/(?:connect\+|grpc-web\+)?)proto$|^(application\/grpc-web)$/i;

/**
 * Declares every request as JSON, the only form in which connect lets messages be carried, and notes
 * which form it is.
 */
export function asCarried(request: UniversalServerRequest): UniversalServerRequest {
  const { header, contextValues } = request;
  const url = new URL(request.url);
  const isGet = request.method === "GET";
  const type = header.get("content-type") ?? "";
  const isBinary = isGet ? url.searchParams.get("encoding") === "proto" : BINARY.test(type);
  contextValues?.set(jsonKey, !isBinary);
  if (!isBinary) return request;
  if (isGet) {
    url.searchParams.set("encoding", "json");
    return { ...request, url: url.href };
  }
  const declared = new Headers(header);
  declared.set(
    "content-type",
    type.replace(BINARY, (_, prefix?: string) => jsonType(prefix)),
  );
  return { ...request, header: declared };
}

function jsonType(prefix = "application/grpc-web+"): string {
  return `${prefix}json`;
}

/** Undoes `asCarried` for the reply. An error that is the whole reply is JSON in any case. */
export function asDeclared(
  response: UniversalServerResponse,
  { contextValues }: UniversalServerRequest,
): UniversalServerResponse {
  const type = response.header?.get("content-type");
  const isJson = contextValues?.get(jsonKey) ?? true;
  if (isJson || type === null || type === undefined || response.status !== 200) return response;
  response.header?.set("content-type", type.replace(/json$/, "proto"));
  return response;
}
