import type { HttpRequest } from "../rpc/http.js";
import type { Address } from "./address.js";

const LOOPBACK_NAMES: readonly string[] = ["localhost", "127.0.0.1", "[::1]"];

/** Why a request is not served, or undefined if it may be. */
export type WebGuard = (request: HttpRequest) => string | undefined;

/**
 * A loopback address is no boundary against web pages. A page that had its own name resolve to it
 * is given away by the Host header, a page that posts across sites by Origin or Sec-Fetch-Site.
 */
export function guardAgainstPages(bound: Address, allowedHosts: readonly string[]): WebGuard {
  const names = new Set([...LOOPBACK_NAMES, hostOf(bound), ...allowedHosts]);
  return (request) => {
    const authority = authorityOf(request);
    if (authority === undefined || !names.has(nameOf(authority))) return "host not served";
    const { origin } = request.headers;
    if (origin !== undefined && !isSameSite(origin, authority)) return "cross-site request";
    return isForeignFetch(request) ? "cross-site request" : undefined;
  };
}

/**
 * A page's request without Origin, an image for example. Following a link is none: the page cannot
 * read the answer.
 */
function isForeignFetch({ headers }: HttpRequest): boolean {
  const site = headers["sec-fetch-site"];
  if (site === undefined || site === "same-origin" || site === "none") return false;
  return headers["sec-fetch-mode"] !== "navigate";
}

function authorityOf(request: HttpRequest): string | undefined {
  const authority = "authority" in request ? request.authority : undefined;
  return (authority ?? request.headers.host)?.toLowerCase();
}

function hostOf({ host }: Address): string {
  return host.includes(":") ? `[${host}]` : host.toLowerCase();
}

/** The name without its port. */
function nameOf(authority: string): string {
  return authority.replace(/:\d*$/, "");
}

function isSameSite(origin: string, authority: string): boolean {
  return origin.toLowerCase() === `http://${authority}`;
}
