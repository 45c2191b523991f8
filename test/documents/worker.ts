/** A process that says which documents it runs, and never ends one. Arguments: store URL, collection, lock in ms, concurrency. */
import { Tidemill } from '../../src/index.js';

const [store = '', collection = '', lockMs = '1000', concurrency = '1'] = process.argv.slice(2);
const mill = new Tidemill({ store, logger: false });

mill.documents({
  collection,
  lockDuration: Number(lockMs),
  concurrency: Number(concurrency),
  onDocument: async (_document, { job }) => {
    process.send?.(String(job.id));
    await new Promise(() => setInterval(() => undefined, 1_000));
  },
});
await mill.start();
