/**
 * A process that writes documents, runs the tasks on them and records what it handled. Arguments: address, effects log,
 * lease in milliseconds, number of documents, whether it writes, number of partitions. The message 'quiet' ends its
 * writes. It tells its parent which partitions it comes to lead.
 */
import { closeSync, openSync } from 'node:fs';
import { Tidemill } from '../../src/index.js';
import type { Partitioned } from '../../src/store/reactive/partitions.js';
import { documentsAt, writeOnce, type Doc } from './documents.js';
import { takeDetours } from './detour.js';
import { random, sleep } from './chaos-database.js';
import { writeLine } from './journal.js';
import { workerDatabaseAt } from './worker-database.js';
import { live } from './worker-life.js';

const [given = '', file = '', leaseMs = '2000', count = '200', writes = 'no', partitions = '1'] =
  process.argv.slice(2);
const address = takeDetours(given);
const database = workerDatabaseAt(address);
const documents = documentsAt(address);
const mill = new Tidemill({
  store: database.store,
  leaseDuration: Number(leaseMs),
  logger: false,
  reactive: { partitions: Number(partitions) },
});

/** The first process that is about to change a number to another one dies then: it has been announced. */
function dieUndivided({ partitioning }: Partitioned): void {
  if (partitioning === undefined) return;
  const divide = partitioning.divide.bind(partitioning);
  const dying: typeof divide = (term, division) => {
    if (!isFirst(`${String(division.from)}-${String(division.to)}`)) return divide(term, division);
    writeLine(file, { what: 'undivided' });
    process.kill(process.pid, 'SIGKILL');
    return new Promise(() => undefined);
  };
  Object.assign(partitioning, { divide: dying });
}

/** Of all processes, one is the first to do something. */
function isFirst(what: string): boolean {
  try {
    closeSync(openSync(`${file}.${what}`, 'wx'));
    return true;
  } catch {
    return false;
  }
}

dieUndivided(database.store.reactive ?? {});

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

mill.on('leader:gained', ({ partition }) => {
  process.send?.(partition);
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
