import type { AddressInfo } from 'node:net';
import fastify from 'fastify';
import { toFastifyHandler } from 'tidemill/dashboard';
import { dashboard } from './dashboard.js';
import { addHandlers } from './handlers.js';
import { sendEmail, type Email } from './jobs.js';
import { mill } from './mill.js';

const app = fastify();

// The dashboard checks each request itself, in `authorize`.
const showDashboard = toFastifyHandler(dashboard);
app.all('/tidemill', showDashboard);
app.all('/tidemill/*', showDashboard);

const text = { type: 'string' } as const;
const body = {
  type: 'object',
  required: ['to', 'subject'],
  properties: { to: text, subject: text },
} as const;

app.post<{ Body: Email }>('/emails', { schema: { body } }, async (request, reply) => {
  const { to, subject } = request.body;
  const { id } = await mill.enqueue(sendEmail, { to, subject });
  return reply.code(202).send({ id });
});

app.get<{ Params: { id: string } }>('/emails/:id', async (request, reply) => {
  const job = await mill.jobs.get(request.params.id);
  if (job?.name !== sendEmail.name) return reply.code(404).send({ error: 'No such email.' });
  return { status: job.status, result: job.result };
});

// The worker in this process. With WORKER=apart, worker.ts runs the jobs instead.
if (process.env.WORKER !== 'apart') {
  addHandlers(mill);
  await mill.start();
}

// `app.close()` calls preClose, closes the server, waits for requests under way, and then calls onClose.
// Live pages would keep their connections open for minutes.
app.addHook('preClose', async () => dashboard.close());
app.addHook('onClose', async () => mill.stop());

await app.listen({ port: Number(process.env.PORT ?? 3000), host: '0.0.0.0' });
console.log(`http://localhost:${(app.server.address() as AddressInfo).port}`);

async function stop(): Promise<void> {
  // Gives up on clients that do not finish.
  setTimeout(() => app.server.closeAllConnections(), 10_000).unref();
  await app.close();
}

process.once('SIGTERM', () => void stop());
process.once('SIGINT', () => void stop());
