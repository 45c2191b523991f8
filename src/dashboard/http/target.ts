/**
 * Returns the URL of an HTTP request from its request line, or undefined if the request cannot be understood. The
 * text is the client's and untrusted: `//x/path` must stay a path and not become a host, and text that is not a URL
 * must not throw.
 */
export function requestUrl(target: string, scheme: 'http' | 'https', host: string): URL | undefined {
  const base = `${scheme}://${host}`;
  // A host has neither a path nor a user.
  if (!URL.canParse(base) || new URL(base).href !== `${new URL(base).origin}/`) return undefined;
  const { origin } = new URL(base);
  if (target.startsWith('/')) return parsed(`${origin}${target.replaceAll('\\', '%5C')}`);
  // The absolute form, as sent to proxies. Its host is ignored in favour of the `host` header.
  if (!/^https?:\/\//iu.test(target) || !URL.canParse(target)) return undefined;
  const { pathname, search } = new URL(target);
  return parsed(`${origin}${pathname}${search}`);
}

const parsed = (text: string): URL | undefined => (URL.canParse(text) ? new URL(text) : undefined);
