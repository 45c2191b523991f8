/**
 * A process that writes documents and runs the task on them, and writes down what it handled. Arguments: uri, effects
 * log, lease in milliseconds, number of documents, whether it writes; told 'quiet', it writes no more.
 */
import { MongoClient } from 'mongodb';
import { Tidemill } from '../../src/index.js';
import { mongodb } from '../../src/mongodb/index.js';
import { writeLine } from './journal.js';
import { writeOnce, type Doc } from './reactive-writer.js';

const [uri = '', file = '', leaseMs = '2000', documents = '200', writes = 'no'] = process.argv.slice(2);
const client = new MongoClient(uri);
const mill = new Tidemill({ store: mongodb({ client }), leaseDuration: Number(leaseMs), logger: false });

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const docs = client.db().collection<Doc>('docs');

await mill.reactiveTask<Doc>({
  task: 'follow',
  collection: 'docs',
  filter: { active: true },
  watchProjection: { version: 1 },
  debounce: { wait: 20, maxWait: 200 },
  concurrency: 16,
  retryPolicy: { type: 'fixed', interval: 50, maxAttempts: -1 },
  handler: async ({ docId, getDocument }) => {
    const { version } = await getDocument();
    await sleep(Math.random() * 20);
    if (Math.random() < 0.05) throw new Error('on purpose');
    // Written before the settlement: what is settled was handled, and not the other way round.
    writeLine(file, { what: 'handled', id: String(docId), version });
  },
});

mill.on('leader:gained', () => {
  process.send?.('leads');
});
process.on('SIGTERM', () => {
  void mill.stop({ timeout: '5s' }).then(async () => {
    await client.close();
    process.exit(0);
  });
});
// A parent that was killed takes its children with it.
process.on('disconnect', () => process.exit(1));

let writing = writes === 'yes';
process.on('message', () => (writing = false));

async function write(): Promise<void> {
  while (writing) {
    await writeOnce(docs, Number(documents));
    await sleep(Math.random() * 20);
  }
}

async function begin(): Promise<void> {
  try {
    await mill.start();
  } catch {
    await sleep(200);
    await begin();
  }
}
await Promise.all([begin(), write()]);
