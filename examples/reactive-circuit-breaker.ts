// runs in: npm run check
//
// A system that is down should not be asked again and again. Whoever notices holds back all tasks of the name
// (`throttleAll`, on this instance; `{ scope: 'cluster' }` is for all instances), and puts its own task off
// (`defer`), since a throttle never touches the one that runs.
import assert from 'node:assert/strict';
import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { Tidemill } from 'tidemill';
import { mongodb } from 'tidemill/mongodb';
import { until } from './support/until.js';

interface User {
  _id: number;
  name: string;
}

await using server = await startMongo();
await using client = await new MongoClient(server.uri).connect();
const users = client.db('crm').collection<User>('users');
await using mill = new Tidemill({ store: mongodb({ client, database: 'crm' }), logger: false });

/** The other system: down until somebody repairs it. */
const crm = { down: true, refused: [] as number[], names: new Map<number, string>() };
async function update({ _id, name }: User): Promise<void> {
  if (crm.down) {
    crm.refused.push(performance.now());
    throw Object.assign(new Error('503 Service Unavailable'), { status: 503 });
  }
  crm.names.set(_id, name);
}

await mill.reactiveTask<User>({
  task: 'sync-to-crm',
  collection: 'users',
  debounce: 0,
  concurrency: 1, // one asks at a time, so one call per pause meets the outage
  handler: async ({ getDocument, throttleAll, defer }) => {
    try {
      await update(await getDocument());
    } catch (error) {
      if ((error as { status?: number }).status !== 503) throw error;
      throttleAll('300ms');
      defer('300ms');
    }
  },
});
await users.insertMany(Array.from({ length: 20 }, (_, _id) => ({ _id, name: `user ${String(_id)}` })));
await mill.start();

await until('it was asked three times', () => crm.refused.length === 3);
const [first = 0, second = 0, third = 0] = crm.refused;
assert.ok(second - first >= 250 && third - second >= 250, 'nothing was asked in between');

crm.down = false;
await until('all are there', () => crm.names.size === 20);
await until('all are recorded', async () => {
  return (await mill.countReactiveTasks({ task: 'sync-to-crm', status: 'completed' })) === 20;
});
assert.equal(await mill.countReactiveTasks({ hasError: true }), 0, 'nothing counts as failed');
console.log(`20 users in the CRM; it was asked ${String(crm.refused.length)} times while it was down`);
