/**
 * Access to a dashboard on loopback: the link that this process prints lets one browser in, once. That browser then
 * has a cookie.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { requestUrl } from '../../dashboard/http/target.js';

const secret = (): string => randomBytes(24).toString('base64url');

/** Compares hashes, which have equal lengths, so that the time it takes does not depend on the texts. */
function same(given: string, wanted: string): boolean {
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(wanted));
}

export interface LoginRequest {
  readonly method: string;
  /** Path and query. */
  readonly url: string;
  readonly host: string | undefined;
  readonly cookie: string | undefined;
}

/** The response in place of the dashboard's. */
export interface Refused {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export class LoginGate {
  readonly #port: number;
  readonly #used: () => void;
  readonly #sessions: string[] = [];
  #token = secret();
  /**
   * Browsers send the cookies of a host to all of its ports, and so to servers of other users of this machine. They
   * send them only below the cookie's path: a secret path keeps the cookie from every other port.
   */
  readonly basePath: string = `/${secret()}`;

  /** `used` is called when the link has let a browser in. That link is then void, and there is a new one. */
  constructor(port: number, used: () => void) {
    this.#port = port;
    this.#used = used;
  }

  get link(): string {
    return `http://127.0.0.1:${String(this.#port)}/?token=${this.#token}`;
  }

  /** Returns undefined if the caller may proceed. */
  check({ method, url, host, cookie }: LoginRequest): Refused | undefined {
    // Against DNS rebinding: if another site's name resolved to this address, its pages would share the dashboard's
    // origin.
    if (!this.#hosts.includes(host ?? ''))
      return plain(421, 'The dashboard does not serve this address. Open the link that the terminal shows.');
    const asked = requestUrl(url, 'http', host ?? '');
    if (asked === undefined) return plain(400, 'Invalid request.');
    const token = asked.searchParams.get('token');
    if (method === 'GET' && asked.pathname === '/' && token !== null) return this.#exchange(token);
    if (this.#knows(cookie ?? '')) return undefined;
    return plain(
      401,
      'Open the link that the terminal shows. Each link works once; then the terminal shows a new one.',
    );
  }

  get #hosts(): readonly string[] {
    return ['127.0.0.1', 'localhost', '[::1]'].map((name) => `${name}:${String(this.#port)}`);
  }

  /** Includes the port, so that two dashboards on one machine do not share a cookie. */
  get #cookieName(): string {
    return `tidemill_${String(this.#port)}`;
  }

  #knows(cookies: string): boolean {
    const prefix = `${this.#cookieName}=`;
    const given = cookies.split(/; */u).filter((cookie) => cookie.startsWith(prefix));
    return given.some((cookie) =>
      this.#sessions.some((session) => same(cookie.slice(prefix.length), session)),
    );
  }

  #exchange(token: string): Refused {
    if (!same(token, this.#token))
      return plain(
        401,
        'This link was used already or is invalid. Open the newest link that the terminal shows.',
      );
    const session = secret();
    this.#token = secret();
    this.#sessions.push(session);
    this.#used();
    // A page and not a redirect: after a click on another site, browsers would not send the strict cookie along with
    // a redirect.
    return {
      status: 200,
      headers: {
        ...PLAIN_HEADERS,
        'content-type': 'text/html; charset=utf-8',
        'set-cookie': `${this.#cookieName}=${session}; Path=${this.basePath}; HttpOnly; SameSite=Strict`,
      },
      body: `<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=${this.basePath}/"><title>Tidemill</title><a href="${this.basePath}/">Open the dashboard</a>\n`,
    };
  }
}

const PLAIN_HEADERS = {
  'content-type': 'text/plain; charset=utf-8',
  'cache-control': 'no-store',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
};

const plain = (status: number, text: string): Refused => ({
  status,
  headers: PLAIN_HEADERS,
  body: `${text}\n`,
});
