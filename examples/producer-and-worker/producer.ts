// Asks for work and waits for one answer. It never calls `start`: only workers do.
import { Tidemill } from 'tidemill';
import { resize } from './jobs.js';

const mill = new Tidemill({ store: process.env['DEMO_URI']! });

const first = await mill.enqueue(resize, { file: 'ada.png', width: 200 }, { priority: 5 });
await mill.enqueueMany(
  ['grace.png', 'alan.png'].map((file) => ({ name: resize.name, data: { file, width: 100 } })),
);
console.log(await mill.jobs.result(first.id, { timeout: '20s' }));

await mill.stop();
