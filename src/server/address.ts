/** Where a listener binds, or is reached. */
export interface Address {
  /** A host name or an IP address, IPv6 without brackets. */
  readonly host: string;
  readonly port: number;
}

const PORT_MAX = 65_535;
const ADDRESS = /^(?:\[(?<ipv6>[0-9a-fA-F:.]+)\]|(?<host>[^:[\]/\s]+)):(?<port>\d{1,5})$/;

/** Reads `host:port` or `[ipv6]:port`; undefined if it is neither. */
export function parseAddress(text: string): Address | undefined {
  const groups = ADDRESS.exec(text)?.groups;
  const host = groups?.["ipv6"] ?? groups?.["host"];
  const port = Number(groups?.["port"]);
  if (host === undefined || !(port <= PORT_MAX)) return undefined;
  return { host, port };
}

export function formatAddress({ host, port }: Address): string {
  return host.includes(":") ? `[${host}]:${String(port)}` : `${host}:${String(port)}`;
}

const LOOPBACK = /^(?:localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|::1)$/i;

/** Whether only programs on this machine can reach the address. */
export function isLoopback({ host }: Address): boolean {
  return LOOPBACK.test(host);
}

/** An address that cannot be listened on: in use, or not one of this machine. */
export class AddressUnavailableError extends Error {
  override readonly name = "AddressUnavailableError";

  constructor(address: Address, cause: unknown) {
    super(`${formatAddress(address)} cannot be listened on`, { cause });
  }
}
