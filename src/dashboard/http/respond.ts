import { problemOf } from './errors.js';

/** Sent with every response: nothing loads from other sites, nothing runs inline, no site may frame the page. */
const SECURITY: Readonly<Record<string, string>> = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; " +
    "base-uri 'self'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
};

export function respond(
  status: number,
  body: string | Uint8Array | ReadableStream<Uint8Array> | null,
  headers: Readonly<Record<string, string>>,
): Response {
  return new Response(body as string | null, { status, headers: { ...SECURITY, ...headers } });
}

export const json = (
  value: unknown,
  status = 200,
  headers: Readonly<Record<string, string>> = {},
): Response =>
  respond(status, JSON.stringify(value), {
    'content-type': 'application/json; charset=utf-8',
    'cache-control': 'no-store',
    ...headers,
  });

export function refused(error: unknown): Response {
  const { status, code, message } = problemOf(error);
  return json({ error: { code, message } }, status);
}

const escaped = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');

/** A page without scripts or styles, for errors that occur before the real page can load. */
export const plainPage = (status: number, title: string, text: string): Response =>
  respond(
    status,
    `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${escaped(title)}</title></head>` +
      `<body><h1>${escaped(title)}</h1><p>${escaped(text)}</p></body></html>`,
    { 'content-type': 'text/html; charset=utf-8', 'cache-control': 'no-store' },
  );
