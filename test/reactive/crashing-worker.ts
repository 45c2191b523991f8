/** A worker process that reports which task it runs, and never ends it. Arguments: address, lease in milliseconds. */
import { Tidemill } from '../../src/index.js';
import { storeAt } from './shared/store-at.js';

const [address = '', leaseMs = '1000'] = process.argv.slice(2);
const mill = new Tidemill({ store: storeAt(address), leaseDuration: Number(leaseMs), logger: false });

await mill.reactiveTask({
  task: 'long',
  collection: 'things',
  debounce: 0,
  retryPolicy: { type: 'fixed', interval: '1h', maxAttempts: 2 },
  handler: async ({ docId, attempt }) => {
    process.send?.({ docId, attempt });
    await new Promise(() => setInterval(() => undefined, 1_000));
  },
});
await mill.start({ roles: ['work'] });
