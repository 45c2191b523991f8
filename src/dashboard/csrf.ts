/**
 * Other sites must not act in a viewer's name. A POST needs a header that only this site's own script can set, equal to a
 * cookie that browsers send to this site alone; nothing of it is kept here, so any process may answer. What browsers say
 * about where a request comes from is looked at as well.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto';
import { Refusal } from './errors.js';

const COOKIE = 'tidemill_csrf';
const HEADER = 'x-tidemill-csrf';
const TOKEN = /^[0-9a-f]{64}$/u;

const forbidden = (why: string): Refusal => new Refusal(403, 'csrf', `The request was refused: ${why}.`);

function tokenOf(request: Request): string | undefined {
  const pairs = (request.headers.get('cookie') ?? '').split(';').map((pair) => pair.trim().split('='));
  return pairs.find(([name, value]) => name === COOKIE && TOKEN.test(value ?? ''))?.[1];
}

/** The viewer's token, and the header that makes its browser keep it. */
export function session(request: Request, basePath: string): { token: string; cookie: string } {
  const token = tokenOf(request) ?? randomBytes(32).toString('hex');
  const secure = new URL(request.url).protocol === 'https:' ? '; Secure' : '';
  return { token, cookie: `${COOKIE}=${token}; Path=${basePath || '/'}; HttpOnly; SameSite=Strict${secure}` };
}

function checkOrigin(request: Request): void {
  const site = request.headers.get('sec-fetch-site');
  if (site !== null && site !== 'same-origin') throw forbidden('it comes from another site');
  const origin = request.headers.get('origin');
  if (site !== null || origin === null) return;
  const here = request.headers.get('host') ?? new URL(request.url).host;
  if (!URL.canParse(origin) || new URL(origin).host !== here) throw forbidden('it comes from another site');
}

/** Every POST passes here first. */
export function checkCsrf(request: Request): void {
  checkOrigin(request);
  const type = (request.headers.get('content-type') ?? '').split(';')[0]?.trim().toLowerCase();
  if (type !== 'application/json')
    throw new Refusal(415, 'bad_request', 'The body must be JSON, with content-type: application/json.');
  const cookie = tokenOf(request);
  const header = request.headers.get(HEADER) ?? '';
  const same =
    cookie !== undefined &&
    TOKEN.test(header) &&
    timingSafeEqual(Buffer.from(cookie, 'hex'), Buffer.from(header, 'hex'));
  if (!same) throw forbidden(`the header ${HEADER} is not the token of this session`);
}
