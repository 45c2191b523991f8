/**
 * A process that writes documents, runs the tasks on them and records what it handled. Arguments: address, effects log,
 * lease in milliseconds, number of documents, whether it writes. The message 'quiet' ends its writes.
 */
import { Tidemill } from '../../src/index.js';
import { documentsAt, writeOnce, type Doc } from './documents.js';
import { takeDetours } from './detour.js';
import { random, sleep } from './chaos-database.js';
import { writeLine } from './journal.js';
import { workerDatabaseAt } from './worker-database.js';
import { live } from './worker-life.js';

const [given = '', file = '', leaseMs = '2000', count = '200', writes = 'no'] = process.argv.slice(2);
const address = takeDetours(given);
const database = workerDatabaseAt(address);
const documents = documentsAt(address);
const mill = new Tidemill({ store: database.store, leaseDuration: Number(leaseMs), logger: false });

const ON_DOCS = {
  collection: 'docs',
  filter: { active: true },
  watchProjection: { version: 1 },
  debounce: { wait: 20, maxWait: 200 },
  retryPolicy: { type: 'fixed', interval: 50, maxAttempts: -1 },
} as const;

await mill.reactiveTask<Doc>({
  ...ON_DOCS,
  task: 'follow',
  concurrency: 16,
  handler: async ({ docId, getDocument }) => {
    const { version } = await getDocument();
    await sleep(random(20));
    if (Math.random() < 0.05) throw new Error('on purpose');
    // Written before the settlement: whatever is settled was handled, but not the other way round.
    writeLine(file, { what: 'handled', id: String(docId), version });
  },
});

await mill.reactiveTask<Doc>({
  ...ON_DOCS,
  task: 'exact',
  concurrency: 4,
  handler: ({ docId, getDocument, markCompleted }) =>
    database.exactly(async (transaction, effect) => {
      const { version } = await getDocument({ transaction });
      const id = `${String(docId)}@${String(version)}`;
      await effect(id);
      writeLine(file, { what: 'inside', id });
      try {
        await sleep(random(20));
        await markCompleted({ transaction });
        if (Math.random() < 0.05) throw new Error('on purpose');
      } finally {
        writeLine(file, { what: 'outside', id });
      }
    }),
});

mill.on('leader:gained', () => {
  process.send?.('leads');
});

let writing = writes === 'yes';
process.on('message', () => (writing = false));

async function write(): Promise<void> {
  while (writing) {
    await writeOnce(documents, Number(count));
    await sleep(random(20));
  }
}

const close = async (): Promise<void> => {
  await Promise.all([database.close(), documents.close()]);
};
await Promise.all([live(mill, file, close), write()]);
