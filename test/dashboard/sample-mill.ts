import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { FatalError, Tidemill } from '../../src/index.js';
import { createDashboard, toNodeHandler, type Right } from '../../src/dashboard/index.js';
import { memory } from '../../src/memory/index.js';
import type { MemoryStore } from '../../src/memory/store.js';
import { gate, until } from '../support/mills.js';

/** The viewer, as named by a cookie. */
export type Viewer = 'admin' | 'reader' | 'watcher';
const RIGHTS: Readonly<Record<Viewer, readonly Right[]>> = {
  admin: ['view', 'payload', 'act'],
  reader: ['view', 'payload'],
  watcher: ['view'],
};

/** Below a path, as most hosts have it. */
const BASE_PATH = '/ops/tidemill';

export interface Served extends AsyncDisposable {
  /** The URL of the page; ends with a slash. */
  readonly url: string;
  /** Ends every connection, as a proxy or a network does. */
  readonly cut: () => void;
}

/** The real dashboard on a real HTTP server. */
export async function serve(mill: Tidemill): Promise<Served> {
  const dashboard = createDashboard({
    mill,
    basePath: BASE_PATH,
    authorize: (request) => {
      const viewer = /viewer=(\w+)/u.exec(request.headers.get('cookie') ?? '')?.[1];
      const rights = viewer === undefined ? undefined : RIGHTS[viewer as Viewer];
      return rights === undefined ? null : { rights, actor: viewer! };
    },
  });
  const server = createServer(toNodeHandler(dashboard));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}${BASE_PATH}/`,
    cut: () => server.closeAllConnections(),
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

/** Text that a careless page would execute. */
export const EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>';

export interface SampleMill {
  readonly mill: Tidemill;
  readonly store: MemoryStore;
  /** Lets `import-stock` continue. */
  readonly release: () => void;
}

/** A mill on the memory store with work in every state. */
export async function sampleMill(): Promise<SampleMill> {
  const store = memory();
  const mill = new Tidemill({ store, logger: false });
  const held = gate();
  mill.limit('mail-server', { concurrency: 20, breaker: { failures: 50, within: '1m', pause: '1m' } });
  mill.job('send-email', { limits: { shared: ['mail-server'] } }, () => 'sent');
  mill.job('charge-card', (job) => {
    throw new FatalError(`Card ${(job.data as { card: number }).card} was declined`);
  });
  mill.job('import-stock', async (job) => {
    job.progress(40);
    job.log('reading the file', { rows: 1200 });
    await held.promise;
  });
  mill.job('evil', (job) => {
    job.log(EVIL, { [EVIL]: EVIL });
    throw new FatalError(EVIL);
  });
  mill.job('daily-report', () => undefined);
  mill.documents({ collection: 'reminders', onDocument: () => undefined });
  await mill.start();
  await fill(mill, store);
  return { mill, store, release: () => held.open() };
}

async function fill(mill: Tidemill, store: MemoryStore): Promise<void> {
  const many = (name: string, count: number, data: (i: number) => object, options: object = {}): object[] =>
    Array.from({ length: count }, (_, i) => ({ name, data: data(i), ...options }));
  const later = { delay: '1h' };
  await mill.enqueueMany([
    ...many('send-email', 3, (i) => ({ to: `reader-${i}@example.com` })),
    ...many('charge-card', 4, (i) => ({ card: 4000 + i })),
    ...many('import-stock', 1, () => ({ file: 'stock.csv' })),
    ...many('evil', 1, () => ({ [EVIL]: EVIL, password: 'hidden' })),
    ...many('later', 60, (i) => ({ n: i }), later),
    ...many('nobody-runs-this', 1, () => ({})),
  ] as never);
  await mill.schedule('0 3 * * *', 'daily-report', {}, { timezone: 'Europe/Prague' });
  for (const text of ['water the plants', 'feed the cat'])
    store.collection('reminders').insert({ text, sleepUntil: new Date(Date.now() + 3_600_000) });
  await until('the work has come to where it stays', async () => {
    const ended = await mill.jobs.count({ status: ['completed', 'failed'] });
    const running = await mill.jobs.count({ status: 'processing' });
    return ended === 8 && running === 1;
  });
}
