/** A process that has an embedded store open and works until it is killed. Prints what it accepted and what it ran. */
import { Tidemill } from '../../src/index.js';
import { embedded } from '../../src/embedded/index.js';

const [dir = '', count = '0'] = process.argv.slice(2);
const mill = new Tidemill({ store: embedded({ dir }), logger: false, concurrency: 2 });
mill.job<number>('slow', async (job) => {
  console.log(`ran ${String(job.data)}`);
  await new Promise((resolve) => setTimeout(resolve, 20));
});
await mill.start();
console.log('open');
for (let n = 0; n < Number(count); n += 1) {
  await mill.enqueue('slow', n);
  console.log(`accepted ${String(n)}`);
}
