import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { serve } from '@hono/node-server';
import { Hono } from 'hono';
import { dashboard } from './dashboard.js';
import { addHandlers } from './handlers.js';
import { isEmail, sendEmail } from './jobs.js';
import { mill } from './mill.js';

const app = new Hono();

// The dashboard checks each request itself, in `authorize`. Not `app.mount`, which cuts the path.
app.all('/tidemill', ({ req }) => dashboard.fetch(req.raw));
app.all('/tidemill/*', ({ req }) => dashboard.fetch(req.raw));

app.post('/emails', async (context) => {
  const body: unknown = await context.req.json().catch(() => undefined);
  if (!isEmail(body)) return context.json({ error: 'The body must have "to" and "subject".' }, 400);
  const { id } = await mill.enqueue(sendEmail, body);
  return context.json({ id }, 202);
});

app.get('/emails/:id', async (context) => {
  const job = await mill.jobs.get(context.req.param('id'));
  if (job?.name !== sendEmail.name) return context.json({ error: 'No such email.' }, 404);
  return context.json({ status: job.status, result: job.result as string | undefined });
});

// The worker in this process. With WORKER=apart, worker.ts runs the jobs instead.
if (process.env.WORKER !== 'apart') {
  addHandlers(mill);
  await mill.start();
}

const server = serve({ fetch: app.fetch, port: Number(process.env.PORT ?? 3000) }) as Server;
await once(server, 'listening');
console.log(`http://localhost:${(server.address() as AddressInfo).port}`);

/** HTTP first: requests that are still being answered may enqueue. Then the mill. */
async function stop(): Promise<void> {
  const closed = once(server, 'close');
  server.close();
  // Live pages would keep their connections open for minutes.
  dashboard.close();
  // Gives up on clients that do not finish.
  setTimeout(() => server.closeAllConnections(), 10_000).unref();
  await closed;
  await mill.stop();
}

process.once('SIGTERM', () => void stop());
process.once('SIGINT', () => void stop());
