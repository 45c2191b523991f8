import { setTimeout as sleep } from 'node:timers/promises';
import { Tidemill, type Logger } from '../../index.js';
import { buildReport, chargeCard, sendEmail, SHIP_ORDER, syncAccount, takePulse } from './jobs.js';
import type { Part, PartOptions } from './crew.js';
import type { Shop } from './shop/shop.js';
import { shopOf } from './shop/shops.js';

const between = (least: number, most: number): number => least + Math.random() * (most - least);

/** A worker of the demo, which runs all three kinds of work. */
export async function work({ name, store, space, tell }: PartOptions): Promise<Part> {
  // A short lease, so that the work of a killed worker is handed on while you watch. The default is 30 s.
  const mill = new Tidemill({ store, instanceId: name, leaseDuration: '3s', logger: listening(tell) });
  const shop = shopOf(mill, store, space);
  addJobs(mill, tell);
  await addReactive(mill, shop);
  addDocuments(mill, shop);
  mill.on('job:retry', () => tell({ kind: 'retry', count: 1 }));
  mill.on('stale:recovered', ({ count }) => tell({ kind: 'recovered', count }));
  await mill.start();
  return { stop: (timeout) => mill.stop({ timeout }) };
}

/** Work that was enqueued or scheduled. */
function addJobs(mill: Tidemill, tell: PartOptions['tell']): void {
  mill.work(sendEmail, { concurrency: 8 }, async ({ signal }) => {
    await sleep(between(20, 80), undefined, { signal });
  });
  mill.work(buildReport, { concurrency: 2 }, async ({ data, progress, log, signal }) => {
    for (let page = 1; page <= data.pages; page += 1) {
      await sleep(300, undefined, { signal });
      log(`page ${String(page)} of ${String(data.pages)}`);
      progress(Math.round((page / data.pages) * 100));
    }
    return { pages: data.pages };
  });
  mill.work(chargeCard, { concurrency: 4 }, async ({ data, attempt, signal }) => {
    await sleep(between(100, 200), undefined, { signal });
    if (data.declined) throw new Error(`card ${data.card} was declined`);
    if (attempt === 1 && Math.random() < 0.25) throw new Error('the bank did not respond');
  });
  mill.work(syncAccount, { concurrency: 4 }, async ({ signal }) => {
    await sleep(between(400, 800), undefined, { signal });
  });
  mill.work(takePulse, () => tell({ kind: 'pulse', count: 1 }));
}

/** Work that changed data starts. */
async function addReactive(mill: Tidemill, shop: Shop): Promise<void> {
  await mill.reactiveTask({
    task: SHIP_ORDER,
    collection: shop.orders,
    filter: { status: 'paid' },
    debounce: '200ms',
    retryPolicy: { type: 'fixed', interval: '1s', maxAttempts: 4 },
    handler: async ({ docId, getDocument, signal }) => {
      await getDocument();
      await sleep(between(100, 300), undefined, { signal });
      if (Math.random() < 0.1) throw new Error('no courier is available');
      await shop.ship(docId);
    },
  });
}

/** Work that a document's own schedule starts. */
function addDocuments(mill: Tidemill, shop: Shop): void {
  mill.documents({
    collection: shop.digests,
    concurrency: 2,
    // A killed worker's document runs again when its lock ends. The default is ten minutes.
    lockDuration: '5s',
    onDocument: async (_document, { job, signal }) => {
      await sleep(between(100, 300), undefined, { signal });
      await shop.send(job.id);
    },
  });
}

/** A stop that ran out of time logs which jobs it gave back. The rest of the log is not for this screen. */
function listening(tell: PartOptions['tell']): Logger {
  const nothing = (): void => undefined;
  const warn = ({ jobs }: { jobs?: readonly string[] }): void => {
    if (jobs !== undefined) tell({ kind: 'handedBack', count: jobs.length });
  };
  return { debug: nothing, info: nothing, error: nothing, warn };
}
