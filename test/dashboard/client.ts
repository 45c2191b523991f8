/** A viewer without a browser: keeps the cookie, sends the header and reads JSON. */
import type { Session } from '../../src/dashboard/contract.js';
import { createDashboard, type Dashboard, type DashboardOptions } from '../../src/dashboard/index.js';
import type { Tidemill } from '../../src/index.js';

export const ORIGIN = 'http://localhost';

interface Answer<T> {
  readonly status: number;
  readonly headers: Headers;
  readonly body: T;
}

export interface Client {
  readonly dashboard: Dashboard;
  /** Any path below the base path. */
  readonly ask: (path: string, init?: RequestInit) => Promise<Response>;
  readonly get: <T>(path: string) => Promise<T>;
  /** Sends cookie, token and content type, as the page does. */
  readonly post: <T>(path: string, body: unknown, headers?: Record<string, string>) => Promise<Answer<T>>;
  readonly session: () => Promise<Session>;
}

export function aClient(mill: Tidemill, options: Partial<DashboardOptions> = {}): Client {
  const dashboard = createDashboard({
    mill,
    authorize: () => ({ rights: ['view', 'payload', 'act'], actor: 'ada' }),
    basePath: '/mill',
    onError: () => undefined,
    ...options,
  });
  const base = `${ORIGIN}${options.basePath ?? '/mill'}/`;
  const ask = (path: string, init?: RequestInit): Promise<Response> =>
    dashboard.fetch(new Request(`${base}${path}`, init));
  let token = '';
  const session = async (): Promise<Session> => {
    const answer = (await (await ask('api/session')).json()) as Session;
    token = answer.csrf;
    return answer;
  };
  return {
    dashboard,
    ask,
    session,

    get: async <T>(path: string) => {
      const response = await ask(`api/${path}`);
      if (!response.ok) throw new Error(`${String(response.status)} ${await response.text()}`);
      return (await response.json()) as T;
    },
    // eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters -- callers say what they expect
    post: async <T>(path: string, body: unknown, headers: Record<string, string> = {}) => {
      if (token === '') await session();
      const response = await ask(`api/${path}`, {
        method: 'POST',
        body: JSON.stringify(body),
        headers: {
          'content-type': 'application/json',
          cookie: `tidemill_csrf=${token}`,
          'x-tidemill-csrf': token,
          'sec-fetch-site': 'same-origin',
          ...headers,
        },
      });
      return { status: response.status, headers: response.headers, body: (await response.json()) as T };
    },
  };
}

/** Reads server-sent events, one at a time. */
export function eventsOf(response: Response): {
  readonly next: () => Promise<string | undefined>;
  readonly cancel: () => Promise<void>;
} {
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  const decoder = new TextDecoder();
  let text = '';
  return {
    cancel: () => reader.cancel(),
    next: async () => {
      for (;;) {
        const end = text.indexOf('\n\n');
        if (end >= 0) {
          const event = text.slice(0, end);
          text = text.slice(end + 2);
          if (!event.startsWith(':')) return event;
          continue;
        }
        const { done, value } = await reader.read();
        if (done) return undefined;
        text += decoder.decode(value, { stream: true });
      }
    },
  };
}
