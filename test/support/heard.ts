import {
  toBinary,
  toJsonString,
  type DescMessage,
  type Message,
  type MessageShape,
} from "@bufbuild/protobuf";
import { ConnectError, type Interceptor } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  Http2SessionManager,
} from "@connectrpc/connect-node";
import { clientsOf, type Clients } from "./service.js";

/** Everything that came out of somewhere, kept to be searched for values that must not be in it. */
export class Heard {
  readonly #parts = new Map<string, Buffer[]>();
  #joined: ReadonlyMap<string, Buffer> | undefined;

  /** `place` says where the bytes were found, for the report. */
  add(place: string, heard: Uint8Array | string): void {
    const bytes = typeof heard === "string" ? Buffer.from(heard) : Buffer.from(heard);
    const parts = this.#parts.get(place);
    if (parts === undefined) this.#parts.set(place, [bytes]);
    else parts.push(bytes);
    this.#joined = undefined;
  }

  addMessage<Desc extends DescMessage>(schema: Desc, message: MessageShape<Desc>): void {
    this.add(`${schema.name} in binary`, toBinary(schema, message));
    this.add(`${schema.name} in JSON`, toJsonString(schema, message));
  }

  addError(error: unknown): void {
    this.add("text of an error", String(error));
    if (!(error instanceof ConnectError)) return;
    this.add("text of an error", error.rawMessage);
    this.#addHeaders(error.metadata);
    for (const detail of error.details) {
      if ("desc" in detail) this.add("detail of an error", JSON.stringify(detail.value));
      else this.add("detail of an error", detail.value);
      if ("debug" in detail) this.add("detail of an error", JSON.stringify(detail.debug));
    }
  }

  #addHeaders(headers: Headers): void {
    for (const [name, value] of headers) {
      this.add("header or trailer", `${name}: ${value}`);
      if (name.endsWith("-bin")) this.add("header or trailer", Buffer.from(value, "base64"));
    }
  }

  get sizeBytes(): number {
    return [...this.#join().values()].reduce((total, { length }) => total + length, 0);
  }

  /** The places where a value is found: as it is, escaped for JSON, or in base 64. */
  placesOf(value: string): string[] {
    const forms = formsOf(value);
    return [...this.#join()]
      .filter(([, bytes]) => forms.some((form) => bytes.includes(form)))
      .map(([place]) => place);
  }

  #join(): ReadonlyMap<string, Buffer> {
    const join = ([place, parts]: readonly [string, Buffer[]]) => {
      return [place, Buffer.concat(parts.flatMap((part) => [part, SEPARATOR]))] as const;
    };
    this.#joined ??= new Map([...this.#parts].map(join));
    return this.#joined;
  }

  /** Listens to every reply, refused ones too. */
  readonly interceptor: Interceptor = (next) => async (request) => {
    try {
      const response = await next(request);
      this.#addHeaders(response.header);
      if (response.stream) {
        const messages = this.#listen(response.method.output, response.message);
        return { ...response, message: messages };
      }
      this.addMessage(response.method.output, response.message);
      this.#addHeaders(response.trailer);
      return response;
    } catch (error) {
      this.addError(error);
      throw error;
    }
  };

  async *#listen<Reply extends Message>(schema: DescMessage, messages: AsyncIterable<Reply>) {
    try {
      for await (const message of messages) {
        this.addMessage(schema, message);
        yield message;
      }
    } catch (error) {
      this.addError(error);
      throw error;
    }
  }
}

/** A zero byte is in no value, so that none is found across two parts. */
const SEPARATOR = Buffer.of(0);
/** Base 64 works on groups of this size; what follows the last whole one depends on the next byte. */
const BASE64_GROUP = 3;

function formsOf(value: string): readonly string[] {
  const bytes = Buffer.from(value);
  const whole = bytes.subarray(0, bytes.length - (bytes.length % BASE64_GROUP));
  const escaped = JSON.stringify(value).slice(1, -1);
  const encoded = whole.length < BASE64_GROUP * 2 ? [] : [whole.toString("base64")];
  return [...new Set([value, escaped, ...encoded])];
}

/** Clients that are listened to. Unknown fields are heard too: in binary kept, in JSON an error. */
export function clientsHeardBy(
  heard: Heard,
  wire: "grpc" | "connect-json",
  addresses: { readonly grpcAddress: string; readonly httpAddress: string },
  connections: Http2SessionManager[],
): Clients {
  const interceptors = [heard.interceptor];
  if (wire === "grpc") {
    const baseUrl = `http://${addresses.grpcAddress}`;
    const sessionManager = new Http2SessionManager(baseUrl);
    connections.push(sessionManager);
    return clientsOf(createGrpcTransport({ baseUrl, sessionManager, interceptors }));
  }
  const baseUrl = `http://${addresses.httpAddress}`;
  const format = { useBinaryFormat: false, jsonOptions: { ignoreUnknownFields: false } };
  return clientsOf(
    createConnectTransport({ baseUrl, httpVersion: "1.1", ...format, interceptors }),
  );
}
