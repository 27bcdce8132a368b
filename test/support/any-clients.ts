import {
  create,
  fromBinary,
  fromJsonString,
  toBinary,
  toJsonString,
  type DescMessage,
  type DescMethod,
  type DescMethodServerStreaming,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { Client, credentials, Metadata, type ServiceError } from "@grpc/grpc-js";
import { join } from "node:path";
import { ErrorInfoSchema, type ErrorInfo } from "../../gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../../gen/google/rpc/status_pb.js";
import type { AnyClient, ToldRefusal } from "./main-job.js";
import { runProcess, type ProcessResult } from "./run-process.js";
import { ROOT } from "./source-tree.js";

export const BUF = join(ROOT, "node_modules/.bin/buf");

function told(code: number, message: string, info: ErrorInfo | undefined): ToldRefusal {
  return { code, message, reason: info?.reason ?? "", metadata: info?.metadata ?? {} };
}

/** What a call fails with; an error if it does not fail. */
async function failureOf(call: Promise<unknown>): Promise<unknown> {
  const answered = Symbol("answered");
  const failure: unknown = await call.then(
    () => answered,
    (error: unknown) => error,
  );
  if (failure === answered) throw new Error("the call was not refused");
  return failure;
}

/** A client over a transport of connect-node. */
export function connectNodeClient(transport: Transport): AnyClient {
  const client: AnyClient = {
    unary: async (method, request) => {
      const input = create(method.input, request);
      const none = undefined;
      const reply = await transport.unary(method, none, none, none, input);
      return reply.message;
    },
    stream: async <I extends DescMessage, O extends DescMessage>(
      method: DescMethodServerStreaming<I, O>,
      request: MessageInitShape<I>,
    ) => {
      async function* requests() {
        yield request;
      }
      const none = undefined;
      const reply = await transport.stream(method, none, none, none, requests());
      const messages: MessageShape<O>[] = [];
      for await (const message of reply.message) messages.push(message);
      return messages;
    },
    refusal: async (method, request) => {
      const error = ConnectError.from(await failureOf(client.unary(method, request)));
      return told(error.code, error.rawMessage, error.findDetails(ErrorInfoSchema)[0]);
    },
    close: () => undefined,
  };
  return client;
}

/** A client of grpc-js, with the codecs of the generated code. */
export function grpcJsClient(address: string): AnyClient {
  const inner = new Client(address, credentials.createInsecure());
  const encode = (method: DescMethod) => (message: ReturnType<typeof create>) =>
    Buffer.from(toBinary(method.input, message));
  const decode =
    <Output extends DescMessage>(method: DescMethod & { output: Output }) =>
    (bytes: Buffer) =>
      fromBinary(method.output, bytes);
  const client: AnyClient = {
    unary: (method, request) =>
      new Promise((resolve, reject) => {
        const message = create(method.input, request);
        const codecs = [encode(method), decode(method)] as const;
        inner.makeUnaryRequest(grpcPath(method), ...codecs, message, (error, reply) => {
          if (error !== null) reject(error);
          else if (reply !== undefined) resolve(reply);
        });
      }),
    stream: async <I extends DescMessage, O extends DescMessage>(
      method: DescMethodServerStreaming<I, O>,
      request: MessageInitShape<I>,
    ) => {
      const message = create(method.input, request);
      const codecs = [encode(method), decode(method)] as const;
      const stream = inner.makeServerStreamRequest(
        grpcPath(method),
        ...codecs,
        message,
        new Metadata(),
      );
      return (await stream.toArray()) as MessageShape<O>[];
    },
    refusal: async (method, request) => {
      const { code, details, metadata } = (await failureOf(
        client.unary(method, request),
      )) as ServiceError;
      const [bytes] = metadata.get("grpc-status-details-bin");
      const status = Buffer.isBuffer(bytes) ? fromBinary(StatusSchema, bytes) : undefined;
      const [packed] = status?.details ?? [];
      return told(code, details, packed && anyUnpack(packed, ErrorInfoSchema));
    },
    close: () => {
      inner.close();
    },
  };
  return client;
}

function grpcPath({ parent, name }: DescMethod): string {
  return `/${parent.typeName}/${name}`;
}

/** What `buf curl` prints of a refusal. */
interface PrintedError {
  readonly code: string;
  readonly message: string;
  readonly details?: readonly { readonly type: string; readonly value: string }[];
}

/** The command `buf curl`, a process for each call. */
export function bufCurlClient(address: string, ...flags: readonly string[]): AnyClient {
  const curl = (method: DescMethod, message: ReturnType<typeof create>): Promise<ProcessResult> => {
    const data = toJsonString(method.input, message);
    const url = `http://${address}${grpcPath(method)}`;
    return runProcess(BUF, ["curl", ...flags, "--data", data, url], { cwd: ROOT });
  };
  const printed = async (method: DescMethod, message: ReturnType<typeof create>) => {
    const { code, stdout, stderr } = await curl(method, message);
    if (code !== 0) throw new Error(`buf curl ended with ${code}: ${stderr}`);
    return stdout;
  };
  return {
    unary: async (method, request) => {
      const stdout = await printed(method, create(method.input, request));
      return fromJsonString(method.output, stdout);
    },
    stream: async (method, request) => {
      const stdout = await printed(method, create(method.input, request));
      // One JSON object after the other, each begun by a brace in the first column.
      const texts = stdout.split(/^(?=\{)/m).filter((text) => text.trim() !== "");
      return texts.map((text) => fromJsonString(method.output, text));
    },
    refusal: async (method, request) => {
      const { code, stderr } = await curl(method, create(method.input, request));
      const error = JSON.parse(stderr) as PrintedError;
      const [detail] = error.details ?? [];
      const info = detail && fromBinary(ErrorInfoSchema, Buffer.from(detail.value, "base64"));
      if (Code[code >> 3] === undefined) throw new Error(`buf curl ended with ${code}`);
      return told(code >> 3, error.message, info);
    },
    close: () => undefined,
  };
}
