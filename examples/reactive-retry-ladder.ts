// runs in: npm run check
//
// A ladder of delays, and what comes after its last rung: the task is `failed`, which is the dead letter queue. It can
// be counted, listed with its errors, and run again by a query on the source documents.
import assert from 'node:assert/strict';
import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { Tidemill } from 'tidemill';
import { mongodb } from 'tidemill/mongodb';
import { until } from './support/until.js';

interface Invoice {
  _id: string;
  customer: string;
  vip: boolean;
}

await using server = await startMongo();
await using client = await new MongoClient(server.uri).connect();
const invoices = client.db('ladder').collection<Invoice>('invoices');
await using mill = new Tidemill({ store: mongodb({ client, database: 'ladder' }), logger: false });

let broken = true;
const printed: string[] = [];

await mill.reactiveTask<Invoice>({
  task: 'print-invoice',
  collection: 'invoices',
  watchProjection: { customer: 1 },
  debounce: 0,
  // In earnest: ['1m', '5m', '15m']. The first attempt and a retry per rung; the last rung would repeat.
  retryPolicy: { type: 'series', intervals: ['20ms', '100ms', '200ms'], maxAttempts: 4 },
  handler: async ({ docId, getDocument }) => {
    const { customer } = await getDocument();
    if (broken) throw new Error(`no template for ${customer}`);
    printed.push(String(docId));
  },
});
await invoices.insertMany([
  { _id: 'i1', customer: 'ada', vip: true },
  { _id: 'i2', customer: 'grace', vip: false },
]);
await mill.start();

const dead = { task: 'print-invoice', status: 'failed' } as const;
await until('both are dead letters', async () => (await mill.countReactiveTasks(dead)) === 2);

// Each keeps its last error, and its last attempts with their stacks.
const { items } = await mill.getReactiveTasks({ ...dead, error: 'no template for ada' });
const [task] = items;
assert.deepEqual([items.length, task?.sourceDocId, task?.attempts], [1, 'i1', 4]);
const times = task?.executionHistory?.map(({ startedAt }) => startedAt.getTime()) ?? [];
const gaps = times.slice(1).map((at, i) => at - (times[i] ?? 0));
assert.ok(
  [20, 100, 200].every((rung, i) => gaps[i]! >= rung - 10),
  'a rung between every two attempts (clocks are only estimated)',
);

// Repaired. First the important ones, then the rest; a retry begins a fresh sequence of attempts.
broken = false;
assert.deepEqual(await mill.retryReactiveTasks({ ...dead, sourceDocFilter: { vip: true } }), {
  modifiedCount: 1,
});
await until('the important one is printed', () => printed.length === 1);
assert.deepEqual(printed, ['i1']);
assert.deepEqual(await mill.retryReactiveTasks(dead), { modifiedCount: 1 });
await until('no dead letter is left', async () => (await mill.countReactiveTasks(dead)) === 0);
await until('the other one is printed, too', () => printed.length === 2);
console.log('failed four times, then printed:', printed.join(', '));
