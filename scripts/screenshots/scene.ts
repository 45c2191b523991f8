import { MongoClient } from 'mongodb';
import { FatalError, Tidemill, type JobContext } from '../../src/index.js';
import { mongodb } from '../../src/mongodb/index.js';
import type { Store } from '../../src/store/port.js';
import { ageWork, saveHour } from './past.js';

/** The work of an imaginary web shop, in every state. */
export interface Scene {
  readonly mill: Tidemill;
  readonly end: () => Promise<void>;
}

const WORKERS = ['shop-worker-1', 'shop-worker-2', 'shop-worker-3'];
/** Jobs that all end while the scene is made. */
const QUICK = ['send-email', 'resize-image', 'charge-card', 'import-catalogue'];
const RETRY = { type: 'series', intervals: ['20ms', '10min'], maxAttempts: 5 } as const;

export async function makeScene(uri: string): Promise<Scene> {
  const client = new MongoClient(uri);
  await client.db().createCollection('orders');
  await client.db().createCollection('reminders');
  const store: Store = mongodb({ uri });
  // Metrics of the setup itself would stand out beside the made-up hour, so monitoring is off.
  const mills = WORKERS.map(
    (instanceId) => new Tidemill({ store, instanceId, logger: false, monitoring: { enabled: false } }),
  );
  let stop = (): void => undefined;
  const stopped = new Promise<void>((resolve) => (stop = resolve));
  for (const mill of mills) await define(mill, stopped);
  for (const mill of mills) await mill.start();
  const mill = mills[0] as Tidemill;
  await fill(mill, client);
  await ageWork(client);
  await saveHour(store);
  return {
    mill,
    end: async () => {
      stop();
      await Promise.all(mills.map((each) => each.stop({ timeout: '5s' })));
      await client.close();
    },
  };
}

async function define(mill: Tidemill, stopped: Promise<void>): Promise<void> {
  mill.limit('erp-api', { concurrency: 12, rate: { limit: 600, per: '1m', burst: 60 } });
  mill.limit('payment-gateway', { concurrency: 20, breaker: { failures: 20, within: '1m', pause: '10m' } });
  const perKey = { key: 'customer', concurrency: 2 };
  const limits = { concurrency: 6, shared: ['erp-api'], perKey };
  mill.job('sync-customer', { concurrency: 4, limits }, () => stopped);
  mill.job('send-email', { retryPolicy: RETRY }, sendEmail);
  mill.job<{ id: number; mb: number }>('resize-image', (job) => {
    if (job.data.mb > 20)
      throw new FatalError(`Image ${job.data.id} has ${job.data.mb} MB, the limit is 20 MB`);
  });
  mill.job<{ order: number; card: number; declined: boolean }>(
    'charge-card',
    { limits: { shared: ['payment-gateway'] } },
    (job) => {
      if (job.data.declined)
        throw new FatalError(`Card ending in ${job.data.card} was declined: insufficient funds`);
      return { receipt: `r-${job.data.order}` };
    },
  );
  mill.job<{ percent: number }>('import-catalogue', { concurrency: 3 }, async (job) => {
    job.log('read the supplier’s file', { rows: 48_210 });
    job.progress(job.data.percent);
    await stopped;
  });
  for (const name of ['daily-report', 'clean-sessions', 'invoice-run']) mill.job(name, () => undefined);
  mill.documents({ collection: 'reminders', onDocument: () => undefined });
  await mill.reactiveTask<{ total: number }>({
    task: 'sync-order',
    collection: 'orders',
    filter: { status: 'paid' },
    watchProjection: { total: 1 },
    retryPolicy: { type: 'fixed', interval: '1s', maxAttempts: 1 },
    handler: async (context) => {
      const { total } = await context.getDocument();
      if (total > 900) throw new Error('The ledger answered 503 Service Unavailable');
    },
  });
}

function sendEmail(job: JobContext<{ to: string; refused?: boolean; bounced?: boolean }>): string {
  job.log('connecting to the mail server', { host: 'mail.shop.example' });
  if (job.data.bounced) throw new FatalError(`550 No such user here: ${job.data.to}`);
  if (job.data.refused) throw refusal();
  return 'accepted';
}

/** With the stack of the shop's program instead of this one's. */
function refusal(): Error {
  const error = new Error('connect ECONNREFUSED 10.0.3.17:25: the mail server refused the connection');
  const calls = ['Smtp.connect (/app/dist/smtp.js:88:11)', 'async sendMail (/app/dist/mail.js:31:5)'];
  error.stack = [`Error: ${error.message}`, ...calls.map((call) => `    at ${call}`)].join('\n');
  return error;
}

async function fill(mill: Tidemill, client: MongoClient): Promise<void> {
  const to = (i: number): string => `reader-${i}@shop.example`;
  const some = <T>(count: number, make: (i: number) => T): T[] =>
    Array.from({ length: count }, (_, i) => make(i));
  await mill.schedule('0 3 * * *', 'daily-report', { kind: 'sales' }, { timezone: 'Europe/Prague' });
  await mill.schedule('*/15 * * * *', 'clean-sessions', {});
  await mill.schedule('0 6 1 * *', 'invoice-run', {}, { timezone: 'America/New_York', uniqueKey: 'monthly' });
  const customers = ['acme', 'globex', 'initech', 'umbrella', 'hooli'];
  await mill.enqueueMany([
    ...some(24, (i) => ({ name: 'sync-customer', data: { customer: customers[(i * i) % 5] } })),
    ...some(420, (i) => ({
      name: 'send-email',
      data: { to: to(i), template: 'order-confirmed', order: 7000 + i },
    })),
    ...some(180, (i) => ({ name: 'resize-image', data: { id: 8800 + i, mb: i % 60 === 7 ? 48 : 4 } })),
    ...some(120, (i) => ({
      name: 'charge-card',
      data: { order: 7000 + i, card: 1000 + i, declined: i % 17 === 3 },
    })),
    ...some(9, (i) => ({
      name: 'send-email',
      data: { to: to(900 + i), template: 'welcome', bounced: true },
    })),
    ...some(2, (i) => ({
      name: 'import-catalogue',
      data: { supplier: `supplier-${i + 1}`, percent: [64, 18][i] },
    })),
    ...some(9, (i) => ({ name: 'resize-image', data: { id: 9900 + i, mb: 3 }, delay: `${i + 1}min` })),
    ...some(14, (i) => ({
      name: 'send-email',
      data: { to: to(i), template: 'newsletter' },
      delay: `${i + 2}min`,
    })),
  ]);
  const orders = some(60, (i) => ({ status: 'paid', total: 12 + ((i * 37) % 940), customer: to(i) }));
  await client.db().collection('orders').insertMany(orders);
  const soon = (i: number): Date => new Date(Date.now() + (i + 1) * 1_800_000);
  await client
    .db()
    .collection('reminders')
    .insertMany(some(8, (i) => ({ text: 'cart left behind', sleepUntil: soon(i) })));
  await settled(mill, 60);
  await mill.enqueue('send-email', {
    to: 'reader-77@shop.example',
    template: 'order-shipped',
    refused: true,
    order: {
      id: 7077,
      items: [
        { sku: 'lamp-02', count: 1 },
        { sku: 'bulb-11', count: 4 },
      ],
      express: false,
    },
  });
  await mill.limits.set('resize-image', { rate: { limit: 120, per: '1m', burst: 10 } });
  await mill.limits.breaker('payment-gateway', 'open');
  await mill.schedules.runNow('daily-report');
  await mill.schedules.pause('invoice-run', 'monthly');
  await until(async () => {
    const [retried] = (await mill.jobs.find({ error: 'refused', status: 'pending' })).items;
    return retried?.failCount === 2;
  });
}

async function settled(mill: Tidemill, tasks: number): Promise<void> {
  await until(async () => {
    const { items } = await mill.jobs.find(
      { status: 'pending', name: QUICK, nextRunAt: { to: new Date() } },
      { limit: 1 },
    );
    return items.length === 0 && (await mill.tasks.count({ status: ['completed', 'failed'] })) === tasks;
  });
}

async function until(ask: () => Promise<boolean>): Promise<void> {
  while (!(await ask())) await new Promise((resolve) => setTimeout(resolve, 50));
}
