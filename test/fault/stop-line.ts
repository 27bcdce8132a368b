import { connect, type ClientHttp2Session, type ClientHttp2Stream } from "node:http2";
import { fromBinary, type DescMethod } from "@bufbuild/protobuf";
import {
  Health,
  HealthCheckResponse_ServingStatus as Serving,
  HealthCheckResponseSchema,
} from "../../gen/health/v1/health_pb.js";
import { ApprovalService } from "../../gen/toolmark/v1/approval_service_pb.js";
import { InfoService } from "../../gen/toolmark/v1/info_service_pb.js";
import { pathOf } from "../integration/listeners-fixture.js";

/** What a client of a server that ends can be told, in the words of `StopLine.told`. */
export const TOLD = {
  notServing: "health says NOT_SERVING",
  refused: "a call is not taken up",
  watchEnded: "the watch ends as UNAVAILABLE",
  closed: "the connection closes",
} as const;

const EMPTY_MESSAGE = Buffer.alloc(5);
const PREFIX_BYTES = 5;
const UNAVAILABLE = "14";
/** The server did not take the call up. */
const NOT_TAKEN = "NGHTTP2_REFUSED_STREAM";

/**
 * One gRPC connection that carries a watch of the server's health, a watch of asks and one call after another. It is
 * spoken by hand: what arrives over one connection arrives in the order in which it was sent, and no client library
 * comes between.
 */
export class StopLine {
  /** What the server told of its end, in order. */
  readonly told: string[] = [];
  readonly #session: ClientHttp2Session;
  readonly #ended: Promise<void>;
  #isServing = false;

  constructor(grpcAddress: string) {
    this.#session = connect(`http://${grpcAddress}`);
    this.#session.on("error", () => this.told.push(TOLD.closed));
    this.#ended = new Promise((resolve) => {
      this.#session.on("close", resolve);
    });
    this.#watchHealth();
    this.#watchAsks();
    this.#call();
  }

  get isServing(): boolean {
    return this.#isServing;
  }

  /** Waits until the server has closed the connection. */
  async ended(): Promise<void> {
    await this.#ended;
  }

  #watchHealth(): void {
    const stream = this.#open(Health.method.watch);
    stream.on("data", (frame: Buffer) => {
      const { status } = fromBinary(HealthCheckResponseSchema, frame.subarray(PREFIX_BYTES));
      if (status === Serving.SERVING) this.#isServing = true;
      else this.told.push(status === Serving.NOT_SERVING ? TOLD.notServing : `health ${status}`);
    });
  }

  #watchAsks(): void {
    const stream = this.#open(ApprovalService.method.watchAsks).resume();
    whenEnded(stream, (status) => {
      this.told.push(status === UNAVAILABLE ? TOLD.watchEnded : `the watch ends with ${status}`);
    });
  }

  #call(): void {
    if (this.#session.closed) {
      this.told.push(TOLD.refused);
      return;
    }
    const stream = this.#open(InfoService.method.getServerInfo).resume();
    whenEnded(stream, (status) => {
      if (status === "0") this.#call();
      else this.told.push(status === UNAVAILABLE ? TOLD.refused : `a call ends with ${status}`);
    });
  }

  #open(method: DescMethod): ClientHttp2Stream {
    const headers = {
      ":method": "POST",
      ":path": pathOf(method),
      "content-type": "application/grpc+proto",
      te: "trailers",
    };
    const stream = this.#session.request(headers).on("error", ({ message }: Error) => {
      this.told.push(message.includes(NOT_TAKEN) ? TOLD.refused : TOLD.closed);
    });
    stream.end(EMPTY_MESSAGE);
    return stream;
  }
}

/** Calls back with the status of gRPC, in the trailers or in the headers of a reply that has none. */
function whenEnded(stream: ClientHttp2Stream, callBack: (status: string) => void): void {
  const tell = (headers: Record<string, unknown>): void => {
    const status = headers["grpc-status"];
    if (typeof status === "string") callBack(status);
  };
  stream.on("response", tell).on("trailers", tell);
}
