/**
 * A process that reports which documents it runs and never finishes one: it waits or, with a retry policy, kills
 * itself. Arguments: store URL, collection, lock in ms, concurrency, maxAttempts.
 */
import { Tidemill } from '../../src/index.js';

const [store = '', collection = '', lockMs = '1000', concurrency = '1', attempts] = process.argv.slice(2);
const mill = new Tidemill({ store, logger: false });

mill.documents({
  collection,
  lockDuration: Number(lockMs),
  concurrency: Number(concurrency),
  ...(attempts === undefined
    ? {}
    : { retryPolicy: { type: 'fixed', interval: 0, maxAttempts: Number(attempts) } as const }),
  onDocument: async (_document, { job }) => {
    process.send?.(String(job.id));
    if (attempts !== undefined) process.kill(process.pid, 'SIGKILL');
    await new Promise(() => setInterval(() => undefined, 1_000));
  },
});
await mill.start();
