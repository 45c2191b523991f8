/**
 * Keeps other sites from acting in a viewer's name and from reading through a viewer's browser. A POST needs a header
 * that only this site's own script can set, equal to a cookie that browsers send to this site alone. The server keeps
 * no state for this, so any process can answer. Every request is also checked for the origin that the browser
 * reports.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto';
import { Refusal } from './errors.js';
import type { DashboardSettings } from '../options.js';

const COOKIE = 'tidemill_csrf';
const HEADER = 'x-tidemill-csrf';
const TOKEN = /^[0-9a-f]{64}$/u;

type Place = Pick<DashboardSettings, 'basePath' | 'trustProxy'>;

const forbidden = (why: string): Refusal => new Refusal(403, 'csrf', `The request was refused: ${why}.`);

/** If TLS ends at a proxy, only the proxy knows about it. */
function isSecure(request: Request, { trustProxy }: Place): boolean {
  if (new URL(request.url).protocol === 'https:') return true;
  const forwarded = request.headers.get('x-forwarded-proto')?.split(',')[0]?.trim().toLowerCase();
  return trustProxy && forwarded === 'https';
}

const hostOf = (request: Request): string => request.headers.get('host') ?? new URL(request.url).host;

/**
 * Browsers share cookies among the ports of a host. The name contains the port, so that two servers on one host do
 * not use each other's. With TLS it has the prefix `__Secure-`, which pages without TLS cannot set.
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

/** The viewer's token, and the `set-cookie` header that stores it in the browser. */
export function session(request: Request, place: Place): { token: string; cookie: string } {
  const token = tokenOf(request, place) ?? randomBytes(32).toString('hex');
  const secure = isSecure(request, place) ? '; Secure' : '';
  const name = cookieName(request, place);
  return {
    token,
    cookie: `${name}=${token}; Path=${place.basePath || '/'}; HttpOnly; SameSite=Strict${secure}`,
  };
}

const elsewhere = (): Refusal => forbidden('it came from another site');

/** Whether `origin` is this site. Text that is not a URL, such as `null`, is not. */
function isOwnOrigin(request: Request, origin: string): boolean {
  return URL.canParse(origin) && new URL(origin).host === hostOf(request);
}

/**
 * Refuses what another site makes a browser request, except for the page itself, which any site may link to. Programs
 * and old browsers do not send these headers, and pass. `none` means that the user typed the address.
 */
export function checkWhence(request: Request, isApi: boolean): void {
  const site = request.headers.get('sec-fetch-site');
  const origin = request.headers.get('origin');
  if (site === 'same-origin' || site === 'none') return;
  const isVisit = !isApi && request.method === 'GET' && request.headers.get('sec-fetch-mode') === 'navigate';
  if (site !== null && !isVisit) throw elsewhere();
  if (site === null && origin !== null && !isOwnOrigin(request, origin)) throw elsewhere();
}

/** Every POST passes this check before its body is read. */
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
