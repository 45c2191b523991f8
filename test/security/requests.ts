/** Raw HTTP/1.1 requests, most of them malformed in some way, from a seed. */

type Pick = <T>(list: readonly T[]) => T;

/** A small generator, so that a run repeats exactly. */
export function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export const TARGETS: readonly string[] = [
  '/',
  '//',
  '///',
  '//x/mill/api/session',
  '/\\x/mill/api/session',
  '//[',
  '//@:',
  '//%',
  'http://[',
  'http://evil.example/mill/api/session',
  'http://127.0.0.1:99999/',
  'https:///',
  'javascript:1',
  'mill/api/work',
  '*',
  '?',
  '#',
  '/%',
  '/%00',
  '/%zz?%zz=%',
  '/mill',
  '/mill/',
  '/mill//api/session',
  '/mill/../mill/api/session',
  '/mill/api',
  '/mill/api/',
  '/mill/api/session',
  '/mill/api/work?kind=jobs&limit=5&cursor=%FF%FE',
  '/mill/api/work?cursor=e30',
  '/mill/api/work?field=__proto__:1',
  '/mill/api/work?from=2026-99-99',
  '/mill/api/work/jobs/%E0%A4%A',
  '/mill/api/work/documents/W10',
  '/mill/api/live?path=%3F',
  '/mill/api/live?path=work',
  '/mill/api/act',
  '/mill/api/actions',
  '/mill/api/operations/000000000000000000000000/stop',
  '/?token=%',
  '/?token=x&token=y',
  '/api/act',
  '/api/session',
  `/${'a'.repeat(9_000)}`,
  `/mill/api/work?error=${'('.repeat(400)}`,
];

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'OPTIONS', 'TRACE', 'CONNECT', 'PATCH', 'get', 'G\u0001T', ''];

const HEADERS: readonly string[] = [
  'Host: 127.0.0.1',
  'Host: ',
  'Host: [',
  'Host: a b',
  'Host: evil/?#@x',
  'Host: 127.0.0.1:99999',
  'Host: \u00ff\u00fe',
  'X-User: ada',
  'X-User: broken',
  'X-User: used',
  'Cookie: tidemill_csrf=%; =; ;;=',
  `Cookie: ${'a=b; '.repeat(500)}`,
  'Origin: null',
  'Origin: http://[',
  'Sec-Fetch-Site: cross-site',
  'Content-Type: application/json',
  'Content-Type: \u00e9',
  'Content-Length: 5',
  'Content-Length: -1',
  'Content-Length: 99999999',
  'Transfer-Encoding: chunked',
  'Transfer-Encoding: gzip',
  'Expect: 100-continue',
  'Expect: something',
  'Connection: upgrade',
  'Upgrade: websocket',
  'Upgrade: h2c',
  'X-Forwarded-Proto: https, x',
  'X-Tidemill-Csrf: zz',
  'Bad Header : x',
  ': nothing',
];

const BODIES = [
  '',
  '{}',
  '{"a":',
  'null',
  '5\r\n{"a":\r\n',
  'zz\r\n',
  '0\r\n\r\n',
  '\u0000\u0000',
  '['.repeat(5_000),
];

export interface RawRequest {
  readonly text: string;
  /** The sender hangs up in the middle of it. */
  readonly aborted: boolean;
}

export function rawRequest(target: string, random: () => number, port: number): RawRequest {
  const pick: Pick = (list) => list[Math.floor(random() * list.length)]!;
  const version = random() < 0.9 ? 'HTTP/1.1' : pick(['HTTP/1.0', 'HTTP/9', '']);
  const headers = Array.from({ length: Math.floor(random() * 6) }, () => pick(HEADERS));
  const known = [`Host: 127.0.0.1:${String(port)}`, 'X-User: ada', 'Connection: close'];
  const lines = [`${pick(METHODS)} ${target} ${version}`, ...(random() < 0.8 ? known : []), ...headers];
  return { text: `${lines.join('\r\n')}\r\n\r\n${pick(BODIES)}`, aborted: random() < 0.2 };
}
