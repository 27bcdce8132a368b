import type { Socket } from "node:net";

/** What every HTTP/2 connection begins with. No request of HTTP/1.1 does. */
const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");

export type Protocol = "http1" | "http2";

/** Tells the protocol of a new connection from its first bytes, which stay to be read. */
export function sniffProtocol(
  socket: Socket,
  timeoutMs: number,
  accept: (protocol: Protocol) => void,
): void {
  let seen = Buffer.alloc(0);
  const onData = (chunk: Buffer): void => {
    seen = Buffer.concat([seen, chunk]);
    const compared = Math.min(seen.length, PREFACE.length);
    const matches = PREFACE.subarray(0, compared).equals(seen.subarray(0, compared));
    if (matches && seen.length < PREFACE.length) return;
    stop();
    socket.pause();
    socket.unshift(seen);
    accept(matches ? "http2" : "http1");
  };
  const giveUp = (): void => {
    stop();
    socket.destroy();
  };
  const stop = (): void => {
    socket.setTimeout(0);
    socket.off("data", onData).off("timeout", giveUp).off("end", giveUp).off("error", giveUp);
  };
  socket.setTimeout(timeoutMs);
  socket.on("data", onData).on("timeout", giveUp).on("end", giveUp).on("error", giveUp);
}
