import { connect } from "node:http2";
import type { IncomingHttpHeaders } from "node:http2";

/** All that a caller gets back, but for when it was sent. */
export interface WireAnswer {
  readonly headers: IncomingHttpHeaders;
  readonly trailers: IncomingHttpHeaders;
  /** Hexadecimal. */
  readonly body: string;
}

/** Posts bytes over HTTP/2 and gives the whole answer as it came. */
export function post(
  address: string,
  path: string,
  headers: Readonly<Record<string, string>>,
  body: Uint8Array,
): Promise<WireAnswer> {
  const session = connect(`http://${address}`);
  const answer = new Promise<WireAnswer>((resolve, reject) => {
    const head = { ":method": "POST", ":path": path, te: "trailers", ...headers };
    const stream = session.request(head);
    let got: IncomingHttpHeaders = {};
    let trailers: IncomingHttpHeaders = {};
    const chunks: Buffer[] = [];
    stream.on("response", (received) => (got = withoutDate(received)));
    stream.on("trailers", (received: IncomingHttpHeaders) => (trailers = { ...received }));
    stream.on("data", (chunk: Buffer) => chunks.push(chunk));
    stream.on("end", () => {
      resolve({ headers: got, trailers, body: Buffer.concat(chunks).toString("hex") });
    });
    stream.on("error", reject);
    session.on("error", reject);
    stream.end(body);
  });
  return answer.finally(() => {
    session.close();
  });
}

function withoutDate({ date: _date, ...headers }: IncomingHttpHeaders): IncomingHttpHeaders {
  return { ...headers };
}

/** A message as gRPC carries it. */
export function grpcFrame(message: Uint8Array): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}
