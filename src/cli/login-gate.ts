/** Who may come to a dashboard on loopback: whoever has the link that this process printed, once, and their browser from then on. */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { requestUrl } from '../dashboard/http/target.js';

const secret = (): string => randomBytes(24).toString('base64url');

/** Hashes have one length, so that the comparison takes the same time whatever is compared. */
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

/** What is answered in the dashboard's place. */
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
   * Browsers send the cookies of a host to all of its ports, and so to servers of other users of this machine. They send them below
   * their path only: one that nobody else knows keeps the cookie from every other port.
   */
  readonly basePath: string = `/${secret()}`;

  /** `used` is called when the link has let somebody in: it is void then, and there is another. */
  constructor(port: number, used: () => void) {
    this.#port = port;
    this.#used = used;
  }

  get link(): string {
    return `http://127.0.0.1:${String(this.#port)}/?token=${this.#token}`;
  }

  /** Undefined for a caller who may go on. */
  check({ method, url, host, cookie }: LoginRequest): Refused | undefined {
    // A name that somebody else's server gives to this address would make their page one of ours.
    if (!this.#hosts.includes(host ?? ''))
      return plain(421, 'This address is not the one that the dashboard was opened at.');
    const asked = requestUrl(url, 'http', host ?? '');
    if (asked === undefined) return plain(400, 'The request cannot be read.');
    const token = asked.searchParams.get('token');
    if (method === 'GET' && asked.pathname === '/' && token !== null) return this.#exchange(token);
    if (this.#knows(cookie ?? '')) return undefined;
    return plain(
      401,
      'Open the link that the terminal shows. Each link works once; a new one is printed then.',
    );
  }

  get #hosts(): readonly string[] {
    return ['127.0.0.1', 'localhost', '[::1]'].map((name) => `${name}:${String(this.#port)}`);
  }

  /** Two dashboards on one machine do not share a name. */
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
      return plain(401, 'This link has been used, or is not one of ours. The terminal shows one that works.');
    const session = secret();
    this.#token = secret();
    this.#sessions.push(session);
    this.#used();
    // A page and no redirect: a link that was clicked on another site would not carry the strict cookie through one.
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
