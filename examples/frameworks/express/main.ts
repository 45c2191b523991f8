import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import express from 'express';
import { toNodeHandler } from 'tidemill/dashboard';
import { dashboard } from './dashboard.js';
import { addHandlers } from './handlers.js';
import { isEmail, sendEmail } from './jobs.js';
import { mill } from './mill.js';

const app = express();

// The dashboard checks each request itself, in `authorize`.
app.use('/tidemill', toNodeHandler(dashboard));

app.use(express.json());

app.post('/emails', async (request, response) => {
  if (!isEmail(request.body)) {
    response.status(400).json({ error: 'The body must have "to" and "subject".' });
    return;
  }
  const { id } = await mill.enqueue(sendEmail, request.body);
  response.status(202).json({ id });
});

app.get('/emails/:id', async (request, response) => {
  const job = await mill.jobs.get(request.params.id);
  if (job?.name === sendEmail.name) response.json({ status: job.status, result: job.result });
  else response.status(404).json({ error: 'No such email.' });
});

// The worker in this process. With WORKER=apart, worker.ts runs the jobs instead.
if (process.env.WORKER !== 'apart') {
  addHandlers(mill);
  await mill.start();
}

const server = app.listen(Number(process.env.PORT ?? 3000));
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
