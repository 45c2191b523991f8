/** A worker process that says which task it runs, and never ends it. Arguments: uri, lease in milliseconds. */
import { Tidemill } from '../../src/index.js';
import { mongodb } from '../../src/mongodb/index.js';

const [uri = '', leaseMs = '1000'] = process.argv.slice(2);
const mill = new Tidemill({ store: mongodb({ uri }), leaseDuration: Number(leaseMs), logger: false });

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
