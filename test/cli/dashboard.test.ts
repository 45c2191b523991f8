import { request } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { serveDashboard, type Served } from '../../src/cli/serve/serve.js';
import { Tidemill } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';

interface Answer {
  readonly status: number;
  readonly cookie: string | undefined;
  readonly body: string;
}

/** Sends a request as a browser does, with a Host header of the caller's choice. */
function ask(url: string, headers: Record<string, string> = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const asked = request(url, { headers }, (response) => {
      let body = '';
      response.on('data', (data: Buffer) => (body += data.toString()));
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, cookie: response.headers['set-cookie']?.[0], body }),
      );
    });
    asked.on('error', reject).end();
  });
}

describe('the dashboard command on loopback', () => {
  const mill = new Tidemill({ store: memory(), logger: false });
  let served: Served;
  let used = 0;
  const home = (): string => new URL('/', served.link).href;

  /** The URL of the page that the cookie is for. */
  const pathOf = ({ cookie = '' }: Answer): string =>
    `${new URL(home()).origin}${/Path=([^;]+)/u.exec(cookie)![1]!}/`;

  beforeAll(async () => {
    served = await serveDashboard({
      mill,
      port: 0,
      readOnly: true,
      used: () => (used += 1),
      onError: (error) => {
        throw error;
      },
    });
  });
  afterAll(async () => {
    await served.close();
    await mill.stop();
  });

  it('refuses requests without the one-time link or a valid cookie', async () => {
    for (const url of [
      home(),
      `${home()}api/session`,
      `${home()}?token=guess`,
      `${home()}api/session?token=${'x'.repeat(32)}`,
    ])
      expect((await ask(url)).status).toBe(401);
    expect((await ask(home(), { cookie: `tidemill_${new URL(home()).port}=guess` })).status).toBe(401);
  });

  it('exchanges a link for a cookie once, and issues a new link', async () => {
    const { link } = served;
    const first = await ask(link);
    expect(first.status).toBe(200);
    expect(first.cookie).toMatch(/; Path=\/[\w-]{32}; HttpOnly; SameSite=Strict$/u);
    expect(used).toBe(1);
    expect((await ask(link)).status).toBe(401);
    expect(served.link).not.toBe(link);

    const cookie = first.cookie!.split(';')[0]!;
    const session = await ask(`${pathOf(first)}api/session`, { cookie });
    expect(session.status).toBe(200);
    expect(JSON.parse(session.body)).toMatchObject({ readOnly: true });
  });

  it('scopes the cookie to a random path so that other ports never receive it', async () => {
    const first = await ask(served.link);
    const [, path = ''] = /Path=([^;]+)/u.exec(first.cookie!) ?? [];
    expect(path).toMatch(/^\/[\w-]{32}$/u);
    expect(first.body).toContain(`url=${path}/`);
    const cookie = first.cookie!.split(';')[0]!;
    expect((await ask(`${home()}api/session`, { cookie })).status).toBe(404);
    expect((await ask(`${pathOf(first)}api/session`)).status).toBe(401);
  });

  it('rejects requests made by pages of other sites', async () => {
    const first = await ask(served.link);
    const cookie = first.cookie!.split(';')[0]!;
    for (const site of ['cross-site', 'same-site'])
      expect((await ask(`${pathOf(first)}api/audit`, { cookie, 'sec-fetch-site': site })).status).toBe(403);
    expect((await ask(`${pathOf(first)}api/audit`, { cookie, 'sec-fetch-site': 'same-origin' })).status).toBe(
      200,
    );
  });

  it('rejects requests whose Host header is not its own address', async () => {
    const first = await ask(served.link);
    const headers = { cookie: first.cookie!.split(';')[0]!, host: 'evil.example:80' };
    const session = `${pathOf(first)}api/session`;
    expect((await ask(session, headers)).status).toBe(421);
    const { link } = served;
    expect((await ask(link, { host: 'evil.example' })).status).toBe(421);
    expect(served.link).toBe(link);
    const { port } = new URL(home());
    expect((await ask(session, { ...headers, host: `localhost:${port}` })).status).toBe(200);
  });
});
