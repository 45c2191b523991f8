/**
 * The URL of an HTTP request from its request line. The text comes from the other side as it is: `//x/path` must stay a path and
 * not become a host, and what is no URL at all is an answer, not an exception. Undefined: the request cannot be understood.
 */
export function requestUrl(target: string, scheme: 'http' | 'https', host: string): URL | undefined {
  const base = `${scheme}://${host}`;
  // A host has neither a path nor a user.
  if (!URL.canParse(base) || new URL(base).href !== `${new URL(base).origin}/`) return undefined;
  const { origin } = new URL(base);
  if (target.startsWith('/')) return parsed(`${origin}${target.replaceAll('\\', '%5C')}`);
  // The form that proxies are asked in: its host is not looked at, as ours is the one of the header.
  if (!/^https?:\/\//iu.test(target) || !URL.canParse(target)) return undefined;
  const { pathname, search } = new URL(target);
  return parsed(`${origin}${pathname}${search}`);
}

const parsed = (text: string): URL | undefined => (URL.canParse(text) ? new URL(text) : undefined);
