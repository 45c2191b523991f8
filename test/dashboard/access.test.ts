import { describe, expect, it } from 'vitest';
import type { Right, Session } from '../../src/dashboard/contract.js';
import { createDashboard, type DashboardOptions } from '../../src/dashboard/index.js';
import { memory } from '../../src/memory/index.js';
import { aMill } from '../support/mills.js';
import { aClient, ORIGIN } from './client.js';

const PATHS = ['', 'work', 'api/session', 'api/overview', 'api/work', 'api/audit', 'api/live?path=overview'];
const as = (...rights: Right[]) => ({ authorize: () => ({ rights, actor: 'ada' }) });

describe('dashboard authorization', () => {
  it('createDashboard rejects a missing or invalid authorize, basePath or mill', () => {
    const mill = aMill(memory());
    expect(() => createDashboard({ mill } as never)).toThrow(/authorize is missing/u);
    expect(() => createDashboard({ mill, authorize: 'yes' } as never)).toThrow(
      /authorize must be a function/u,
    );
    expect(() => createDashboard({ mill, authorise: () => null } as never)).toThrow(
      /Did you mean "authorize"/u,
    );
    expect(() => aClient(mill, { basePath: 'a"b' })).toThrow(/basePath must be a path/u);
    expect(() => createDashboard({ mill: {}, authorize: () => null } as never)).toThrow(
      /mill must be an instance of Tidemill/u,
    );
  });

  it.each([
    null,
    undefined,
    false,
    [],
    ['everything'],
    { rights: [] },
    { rights: 'view' },
    { rights: ['View'] },
  ])('rejects every request when authorize returns %j', async (granted) => {
    const { ask } = aClient(aMill(memory()), { authorize: () => granted as never });
    for (const path of PATHS) expect((await ask(path)).status, path).toBe(401);
    expect((await ask('api/act', { method: 'POST' })).status).toBe(401);
  });

  it.each([
    [
      { name: 'ada', can: ['view'] },
      /rights \(view, payload, act\).*got an object with the properties name, can\./u,
    ],
    [{ rights: ['read'] }, /got an object with the properties rights\./u],
    [['admin'], /got a list without any of these\./u],
  ])('tells the host once that authorize returns %j, which grants nothing', async (granted, text) => {
    const heard: unknown[] = [];
    const { ask } = aClient(aMill(memory()), {
      authorize: () => granted as never,
      onError: (error) => heard.push(error),
    });
    for (const path of PATHS) expect((await ask(path)).status, path).toBe(401);
    expect(heard).toEqual([expect.objectContaining({ message: expect.stringMatching(text) as string })]);
  });

  it.each([null, undefined, false, [], { rights: [] }])(
    'tells the host nothing when authorize denies access by %j',
    async (granted) => {
      const heard: unknown[] = [];
      const { ask } = aClient(aMill(memory()), {
        authorize: () => granted as never,
        onError: (error) => heard.push(error),
      });
      expect((await ask('api/overview')).status).toBe(401);
      expect(heard).toEqual([]);
    },
  );

  it('returns 500 when authorize fails, and reports the reason only to the host', async () => {
    const told: unknown[] = [];
    const { ask } = aClient(aMill(memory()), {
      authorize: () => Promise.reject(new Error('session store at 10.0.0.7 is down')),
      onError: (error) => told.push(error),
    });
    const response = await ask('api/overview');
    expect(response.status).toBe(500);
    expect(await response.text()).not.toContain('10.0.0.7');
    expect(told).toHaveLength(1);
  });

  it('passes on a Response that authorize returns', async () => {
    const { ask } = aClient(aMill(memory()), {
      authorize: () => new Response(null, { status: 302, headers: { location: '/login' } }),
    });
    const response = await ask('api/overview');
    expect([response.status, response.headers.get('location')]).toEqual([302, '/login']);
  });

  it('view reads, payload also shows and filters by data, act also changes work', async () => {
    const mill = aMill(memory());
    const job = await mill.enqueue('mail', { to: 'ada@example.com' }, { delay: '1h' });
    const ref = Buffer.from(job.id).toString('base64url');
    const view = aClient(mill, as('view'));
    const detail = await view.get<Record<string, unknown>>(`work/jobs/${ref}`);
    expect(detail).toMatchObject({ hidden: true, actions: [], title: job.id });
    expect(JSON.stringify(detail)).not.toContain('ada@example.com');
    expect((await view.ask('api/work?field=to:ada@example.com')).status).toBe(403);
    expect((await view.post('act', { action: 'cancel', kind: 'jobs', id: ref })).status).toBe(403);
    expect((await view.post('count', { kind: 'jobs', query: '' })).status).toBe(403);

    const payload = aClient(mill, as('view', 'payload'));
    expect(await payload.get(`work/jobs/${ref}`)).toMatchObject({ payload: { to: 'ada@example.com' } });
    expect(await payload.get('work?field=to:ada@example.com')).toMatchObject({ items: [{ title: job.id }] });
    expect((await payload.post('act', { action: 'cancel', kind: 'jobs', id: ref })).status).toBe(403);

    const blind = aClient(mill, as('act'));
    expect((await blind.ask('api/work')).status).toBe(403);
    const act = aClient(mill, as('view', 'act'));
    expect(await act.post('act', { action: 'cancel', kind: 'jobs', id: ref })).toMatchObject({
      status: 200,
      body: { outcome: 'cancelled' },
    });
  });

  it('readOnly removes the act right from every viewer', async () => {
    const client = aClient(aMill(memory()), { readOnly: true });
    const session = await client.session();
    expect(session).toMatchObject({ rights: ['view', 'payload'], readOnly: true, bulk: { jobs: [] } });
    expect((await client.post('names', { action: 'pause', kind: 'jobs', name: 'mail' })).status).toBe(403);
    expect(await client.get('work')).toMatchObject({ items: [] });
  });
});

describe('cross-site request forgery', () => {
  const body = JSON.stringify({ action: 'pause', kind: 'jobs', name: 'mail' });

  it('rejects a POST without a valid token and cookie, from another site, or with a form content type', async () => {
    const mill = aMill(memory());
    const { ask, session, post } = aClient(mill);
    const { csrf } = await session();
    const good: Record<string, string> = {
      'content-type': 'application/json',
      cookie: `a=b; tidemill_csrf=${csrf}`,
      'x-tidemill-csrf': csrf,
      host: 'localhost',
    };
    const send = async (change: Record<string, string | undefined>): Promise<number> => {
      const headers = Object.entries({ ...good, ...change }).filter(([, value]) => value !== undefined);
      const init = { method: 'POST', body, headers: headers as [string, string][] };
      return (await ask('api/names', init)).status;
    };
    expect(await send({ 'x-tidemill-csrf': undefined })).toBe(403);
    expect(await send({ 'x-tidemill-csrf': 'f'.repeat(64) })).toBe(403);
    expect(await send({ cookie: undefined })).toBe(403);
    expect(await send({ cookie: 'tidemill_csrf=', 'x-tidemill-csrf': '' })).toBe(403);
    expect(await send({ 'sec-fetch-site': 'cross-site' })).toBe(403);
    expect(await send({ 'sec-fetch-site': 'same-site' })).toBe(403);
    expect(await send({ origin: 'https://evil.example' })).toBe(403);
    expect(await send({ origin: 'null' })).toBe(403);
    expect(await send({ 'content-type': 'text/plain' })).toBe(415);
    expect(await send({ 'content-type': 'application/x-www-form-urlencoded' })).toBe(415);
    expect(await mill.jobs.paused()).toEqual([]);
    expect(await send({ origin: ORIGIN })).toBe(200);
    expect(
      await send({ 'content-type': 'application/json; charset=utf-8', 'sec-fetch-site': 'same-origin' }),
    ).toBe(200);
    expect((await post('names', JSON.parse(body))).status).toBe(200);
    expect(await mill.jobs.paused()).toEqual(['mail']);
  });

  it('keeps the CSRF token in a strict same-site cookie, marked Secure over HTTPS', async () => {
    const { ask } = aClient(aMill(memory()));
    const first = await ask('api/session');
    const { csrf } = (await first.json()) as Session;
    const cookie = first.headers.get('set-cookie') ?? '';
    expect(cookie).toBe(`tidemill_csrf=${csrf}; Path=/mill; HttpOnly; SameSite=Strict`);
    const again = await ask('api/session', { headers: { cookie: `tidemill_csrf=${csrf}` } });
    expect(((await again.json()) as Session).csrf).toBe(csrf);
    const { dashboard } = aClient(aMill(memory()));
    const secure = await dashboard.fetch(new Request('https://localhost/mill/api/session'));
    expect(secure.headers.get('set-cookie')).toContain('; Secure');
  });
});

describe('origin of requests', () => {
  it('lets other sites link to the dashboard, but rejects their GET requests for its data and files', async () => {
    const { ask } = aClient(aMill(memory()));
    const status = async (path: string, headers: Record<string, string>): Promise<number> =>
      (await ask(path, { headers })).status;
    for (const site of ['cross-site', 'same-site'])
      for (const path of ['api/session', 'api/work', 'api/live?path=work', 'assets/x.js', '']) {
        expect(await status(path, { 'sec-fetch-site': site, 'sec-fetch-mode': 'no-cors' }), path).toBe(403);
        if (path.startsWith('api/'))
          expect(await status(path, { 'sec-fetch-site': site, 'sec-fetch-mode': 'navigate' }), path).toBe(
            403,
          );
      }
    expect(await status('', { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' })).toBe(200);
    expect(await status('api/work', { origin: 'https://evil.example' })).toBe(403);
    expect(await status('api/work', { 'sec-fetch-site': 'none' })).toBe(200);
    expect(await status('api/work', { 'sec-fetch-site': 'same-origin' })).toBe(200);
    expect(await status('api/work', {})).toBe(200);
  });

  it('gives each port its own cookie, marked Secure behind a trusted HTTPS proxy', async () => {
    const cookieOf = async (
      options: Partial<DashboardOptions>,
      headers: Record<string, string>,
    ): Promise<string> =>
      (await aClient(aMill(memory()), options).ask('api/session', { headers })).headers.get('set-cookie') ??
      '';
    expect(await cookieOf({}, { host: 'localhost:8080' })).toMatch(/^tidemill_csrf_8080=/u);
    const https = { 'x-forwarded-proto': 'https, http' };
    expect(await cookieOf({}, https)).not.toContain('Secure');
    expect(await cookieOf({ trustProxy: true }, https)).toMatch(/^__Secure-tidemill_csrf=.*; Secure$/u);
    expect(await cookieOf({ trustProxy: true }, { 'x-forwarded-proto': 'http' })).not.toContain('Secure');
  });
});

describe('dashboard responses', () => {
  it('sends strict security headers with every response, and no-store with data', async () => {
    const client = aClient(aMill(memory()));
    for (const path of ['', 'api/overview', 'api/nothing', 'assets/nothing.js', 'api/work?bad=1']) {
      const { headers } = await client.ask(path);
      const policy = headers.get('content-security-policy') ?? '';
      expect(policy, path).toContain("default-src 'none'");
      expect(policy, path).toContain("frame-ancestors 'none'");
      expect(policy, path).not.toContain('unsafe');
      expect(headers.get('x-content-type-options'), path).toBe('nosniff');
      expect(headers.get('referrer-policy'), path).toBe('no-referrer');
      if (path.startsWith('api/')) expect(headers.get('cache-control'), path).toBe('no-store');
    }
  });

  it('serves the page below its base path, its assets from a list, and no other file', async () => {
    const { ask, dashboard } = aClient(aMill(memory()));
    const page = await ask('work?kind=jobs');
    const html = await page.text();
    expect(page.headers.get('content-type')).toContain('text/html');
    expect(html).toContain('<base href="/mill/">');
    expect(html).not.toMatch(/<script(?![^>]*\ssrc=)[^>]*>/u);
    const [, script = ''] = /src="(?:\.\/)?(assets\/[^"]+\.js)"/u.exec(html) ?? [];
    const file = await ask(script);
    expect(file.headers.get('content-type')).toContain('text/javascript');
    expect(file.headers.get('cache-control')).toContain('immutable');
    for (const path of [
      'assets/..%2f..%2fpackage.json',
      'assets/%2e%2e/%2e%2e/package.json',
      'assets/none.js',
    ])
      expect(await (await ask(path)).text(), path).not.toContain('devDependencies');
    const outside = await dashboard.fetch(new Request(`${ORIGIN}/millwork/api/overview`));
    expect(outside.status).toBe(404);
    expect((await ask('', { method: 'DELETE' })).status).toBe(405);
    expect((await ask('', { method: 'HEAD' })).status).toBe(200);
    expect((await ask('api/overview', { method: 'PUT' })).status).toBe(405);
  });
});
