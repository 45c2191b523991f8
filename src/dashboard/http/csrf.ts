/**
 * Other sites must not act in a viewer's name, nor look through a viewer's browser. A POST needs a header that only this site's own
 * script can set, equal to a cookie that browsers send to this site alone; nothing of it is kept here, so any process may answer.
 * What browsers say about where a request comes from is looked at as well, for every request.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto';
import { Refusal } from './errors.js';
import type { DashboardSettings } from '../options.js';

const COOKIE = 'tidemill_csrf';
const HEADER = 'x-tidemill-csrf';
const TOKEN = /^[0-9a-f]{64}$/u;

type Place = Pick<DashboardSettings, 'basePath' | 'trustProxy'>;

const forbidden = (why: string): Refusal => new Refusal(403, 'csrf', `The request was refused: ${why}.`);

/** Where TLS ends before this process, only the proxy knows. */
function isSecure(request: Request, { trustProxy }: Place): boolean {
  if (new URL(request.url).protocol === 'https:') return true;
  const forwarded = request.headers.get('x-forwarded-proto')?.split(',')[0]?.trim().toLowerCase();
  return trustProxy && forwarded === 'https';
}

const hostOf = (request: Request): string => request.headers.get('host') ?? new URL(request.url).host;

/**
 * Cookies know no ports: each port has a name of its own, so that two servers on one host do not use each other's. With TLS the name
 * is one that pages without it cannot set.
 */
function cookieName(request: Request, place: Place): string {
  const port = /:(?<port>\d{1,5})$/u.exec(hostOf(request))?.groups?.['port'];
  const name = port === undefined ? COOKIE : `${COOKIE}_${port}`;
  return isSecure(request, place) ? `__Secure-${name}` : name;
}

function tokenOf(request: Request, place: Place): string | undefined {
  const wanted = cookieName(request, place);
  const pairs = (request.headers.get('cookie') ?? '').split(';').map((pair) => pair.trim().split('='));
  return pairs.find(([name, value]) => name === wanted && TOKEN.test(value ?? ''))?.[1];
}

/** The viewer's token, and the header that makes its browser keep it. */
export function session(request: Request, place: Place): { token: string; cookie: string } {
  const token = tokenOf(request, place) ?? randomBytes(32).toString('hex');
  const secure = isSecure(request, place) ? '; Secure' : '';
  const name = cookieName(request, place);
  return {
    token,
    cookie: `${name}=${token}; Path=${place.basePath || '/'}; HttpOnly; SameSite=Strict${secure}`,
  };
}

const elsewhere = (): Refusal => forbidden('it comes from another site');

/** An origin of this site; one that is no URL is none. */
function isOwnOrigin(request: Request, origin: string): boolean {
  return URL.canParse(origin) && new URL(origin).host === hostOf(request);
}

/**
 * What another page makes a browser ask is refused, except for the page itself, to which anybody may link. Programs and old browsers
 * say nothing of it. `none`: somebody typed the address.
 */
export function checkWhence(request: Request, isApi: boolean): void {
  const site = request.headers.get('sec-fetch-site');
  const origin = request.headers.get('origin');
  if (site === 'same-origin' || site === 'none') return;
  const isVisit = !isApi && request.method === 'GET' && request.headers.get('sec-fetch-mode') === 'navigate';
  if (site !== null && !isVisit) throw elsewhere();
  if (site === null && origin !== null && !isOwnOrigin(request, origin)) throw elsewhere();
}

/** Every POST passes here first. */
export function checkCsrf(request: Request, place: Place): void {
  if (request.headers.get('sec-fetch-site') === 'none') throw elsewhere();
  const type = (request.headers.get('content-type') ?? '').split(';')[0]?.trim().toLowerCase();
  if (type !== 'application/json')
    throw new Refusal(415, 'bad_request', 'The body must be JSON, with content-type: application/json.');
  const cookie = tokenOf(request, place);
  const header = request.headers.get(HEADER) ?? '';
  const same =
    cookie !== undefined &&
    TOKEN.test(header) &&
    timingSafeEqual(Buffer.from(cookie, 'hex'), Buffer.from(header, 'hex'));
  if (!same) throw forbidden(`the header ${HEADER} is not the token of this session`);
}
