import { AsyncLocalStorage } from 'node:async_hooks';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import express from 'express';
import fastify from 'fastify';
import { Hono } from 'hono';
import { afterEach, describe, expect, it } from 'vitest';
import type { Session } from '../../src/dashboard/contract.js';
import {
  createDashboard,
  toFastifyHandler,
  toNodeHandler,
  type Dashboard,
} from '../../src/dashboard/index.js';
import type { Tidemill } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';
import { aMill, until } from '../support/mills.js';
import { eventsOf } from './client.js';

const closing: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  await Promise.all(closing.splice(0).map((close) => close()));
});

async function listening(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closing.push(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return `http://127.0.0.1:${String((server.address() as AddressInfo).port)}`;
}

/** Each way to serve a dashboard over a real socket. */
const HOSTS: Readonly<Record<string, (dashboard: Dashboard) => Promise<string>>> = {
  'node:http': (dashboard) => listening(createServer(toNodeHandler(dashboard))),
  Express: (dashboard) => {
    const app = express();
    app.use('/admin/mill', toNodeHandler(dashboard));
    return listening(createServer(app));
  },
  'Express behind a body parser': (dashboard) => {
    const app = express();
    app.use(express.json());
    app.use('/admin/mill', toNodeHandler(dashboard));
    return listening(createServer(app));
  },
  Fastify: async (dashboard) => {
    const app = fastify();
    const handler = toFastifyHandler(dashboard);
    app.all('/admin/mill', handler);
    app.all('/admin/mill/*', handler);
    closing.push(() => app.close());
    await app.ready();
    return listening(app.server);
  },
  Hono: (dashboard) => {
    const app = new Hono();
    app.all('/admin/mill', (context) => dashboard.fetch(context.req.raw));
    app.all('/admin/mill/*', (context) => dashboard.fetch(context.req.raw));
    return listening(createServer(toNodeHandler({ fetch: async (request) => app.fetch(request) })));
  },
};

function aDashboard(mill: Tidemill): Dashboard {
  return createDashboard({
    mill,
    authorize: ({ headers }) => (headers.get('x-user') === null ? null : ['view', 'payload', 'act']),
    basePath: '/admin/mill',
  });
}

const WHO = { 'x-user': 'ada' };

describe.each(Object.entries(HOSTS))('the dashboard on %s', (_name, host) => {
  it('serves the page, the API and actions with a request body', async () => {
    const mill = aMill(memory());
    const base = `${await host(aDashboard(mill))}/admin/mill`;
    expect((await fetch(base)).status).toBe(401);
    const page = await fetch(base, { headers: WHO });
    expect(await page.text()).toContain('<base href="/admin/mill/">');
    expect(page.headers.get('content-security-policy')).toContain("default-src 'none'");
    const answer = await fetch(`${base}/api/session`, { headers: WHO });
    const { csrf } = (await answer.json()) as Session;
    const [cookie = ''] = answer.headers.getSetCookie();
    const acted = await fetch(`${base}/api/names`, {
      method: 'POST',
      body: JSON.stringify({ action: 'pause', kind: 'jobs', name: 'mail' }),
      headers: {
        ...WHO,
        'content-type': 'application/json',
        'x-tidemill-csrf': csrf,
        cookie: cookie.split(';')[0] ?? '',
        origin: new URL(base).origin,
      },
    });
    expect(await acted.json()).toMatchObject({ outcome: 'paused' });
    expect(await mill.jobs.paused()).toEqual(['mail']);
    expect((await fetch(`${base}/api/nothing`, { headers: WHO })).status).toBe(404);
  });

  it('streams changes, drops a client that disconnects, and ends streams when the mill stops', async () => {
    const mill = aMill(memory());
    const dashboard = aDashboard(mill);
    const base = `${await host(dashboard)}/admin/mill`;
    const follow = (signal?: AbortSignal): Promise<Response> =>
      fetch(`${base}/api/live?path=${encodeURIComponent('work?kind=jobs')}`, {
        headers: WHO,
        ...(signal === undefined ? {} : { signal }),
      });
    const leaving = new AbortController();
    const events = eventsOf(await follow(leaving.signal));
    expect(await events.next()).toContain('"items":[]');
    expect(dashboard.streams).toBe(1);
    const job = await mill.enqueue('mail', {}, { delay: '1h' });
    expect(await events.next()).toContain(job.id);
    leaving.abort();
    await until('the client is forgotten', () => dashboard.streams === 0);

    const staying = eventsOf(await follow());
    expect(await staying.next()).toContain(job.id);
    await mill.stop();
    expect(await staying.next()).toBeUndefined();
    expect(dashboard.streams).toBe(0);
    expect((await fetch(`${base}/api/work`, { headers: WHO })).status).toBe(503);
  });
});

describe('a server that closes', () => {
  it('a server closes although a page is live, once the dashboard is closed', async () => {
    const dashboard = aDashboard(aMill(memory()));
    const server = createServer(toNodeHandler(dashboard));
    const base = `${await listening(server)}/admin/mill`;
    const follow = (): Promise<Response> => fetch(`${base}/api/live?path=work`, { headers: WHO });
    const page = await follow();
    // A connection that is kept alive would hold up the server for some seconds more.
    expect(page.headers.get('connection')).toBe('close');
    const events = eventsOf(page);
    expect(await events.next()).toContain('"items":[]');
    dashboard.close();
    expect(await events.next()).toBeUndefined();
    expect((await follow()).status).toBe(503);
    await new Promise((resolve) => server.close(resolve));
  });
});

it('authorize runs in the async context of the request, so that it can see who the framework signed in', async () => {
  const signedIn = new AsyncLocalStorage<string>();
  const dashboard = createDashboard({
    mill: aMill(memory()),
    authorize: () => (signedIn.getStore() === 'ada' ? ['view'] : null),
    basePath: '/admin/mill',
  });
  const app = express();
  app.use('/admin/mill', (_request, _response, next) => signedIn.run('ada', next), toNodeHandler(dashboard));
  const answer = await fetch(`${await listening(createServer(app))}/admin/mill/api/session`);
  expect(await answer.json()).toMatchObject({ rights: ['view'] });
});
