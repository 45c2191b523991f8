/**
 * A process that enqueues jobs and runs them in an embedded database until it is killed. Arguments: folder, effects
 * log, a prefix for ids.
 */
import { embedded } from '../../src/embedded/index.js';
import { Tidemill } from '../../src/index.js';
import { random, sleep } from './chaos-database.js';
import { writeLine } from './journal.js';

const [dir = '', file = '', prefix = ''] = process.argv.slice(2);
const store = embedded({ dir });
const mill = new Tidemill({ store, logger: false });
const retryPolicy = { type: 'fixed', interval: 20, maxAttempts: -1 } as const;

mill.job('short', { concurrency: 4, retryPolicy }, async (job) => {
  const line = { id: job.id, attempt: job.attempt };
  writeLine(file, { what: 'start', ...line });
  await sleep(random(20));
  writeLine(file, { what: 'end', ...line });
  if (random(10) === 0) throw new Error('on purpose');
});
mill.job('exact', { concurrency: 4, retryPolicy }, (job) =>
  store.transaction(async (transaction) => {
    await transaction.query('insert into effects (job) values ($1)', [job.id]);
    await job.complete({ transaction });
  }),
);
mill.on('job:complete', ({ job }) => writeLine(file, { what: 'settled', id: job.id }));
process.on('disconnect', () => process.exit(1));

await mill.jobs.count();
await store.transaction((transaction) => transaction.query('create table if not exists effects (job text)'));
await mill.start();
for (let n = 0; process.connected; n += 1) {
  const id = `${prefix}-${String(n)}`;
  await mill.enqueue(n % 3 === 0 ? 'exact' : 'short', {}, { id });
  writeLine(file, { what: 'accepted', id });
}
