// runs in: npm run check
//
// A collection of events with several listeners. An `_id` never changes, so a task that watches nothing else runs once
// per inserted event. The event is stored in the same transaction as the data it tells of: both or neither.
import assert from 'node:assert/strict';
import { startMongo } from '@tidemill/servers';
import { MongoClient, ObjectId } from 'mongodb';
import { Tidemill } from 'tidemill';
import { mongodb } from 'tidemill/mongodb';
import { quiet, until } from './support/until.js';

interface AppEvent {
  _id: ObjectId;
  type: string;
  user: string;
  seen?: boolean;
}

await using server = await startMongo();
await using client = await new MongoClient(server.uri).connect();
const db = client.db('bus');
const events = db.collection<AppEvent>('app_events');
const users = db.collection<{ _id: string }>('users');
await using mill = new Tidemill({ store: mongodb({ client, database: 'bus' }), logger: false });

const heard: string[] = [];
const onlyInserts = { watchProjection: { _id: 1 }, debounce: 0 };

await mill.reactiveTask<AppEvent>({
  ...onlyInserts,
  task: 'start-welcome-sequence',
  collection: 'app_events',
  filter: { type: 'user-registered' },
  handler: async ({ getDocument }) => void heard.push(`welcome ${(await getDocument()).user}`),
});
// Another listener of the same collection; each has its own task, retries and state.
await mill.reactiveTask<AppEvent>({
  ...onlyInserts,
  task: 'count-everything',
  collection: 'app_events',
  handler: async ({ getDocument }) => void heard.push(`count ${(await getDocument()).type}`),
});
await mill.start();

async function register(user: string): Promise<void> {
  await mill.withTransaction(async (session) => {
    await users.insertOne({ _id: user }, { session });
    await events.insertOne({ _id: new ObjectId(), type: 'user-registered', user }, { session });
    if (user === 'mallory') throw new Error('not welcome');
  });
}
await register('ada');
await assert.rejects(register('mallory'), /not welcome/u);
await events.insertOne({ _id: new ObjectId(), type: 'logged-in', user: 'ada' });
await until('three deliveries', () => heard.length === 3);

// What happens to an event afterwards is nobody's news.
await events.updateMany({}, { $set: { seen: true } });
await quiet(300);
assert.deepEqual(heard.sort(), ['count logged-in', 'count user-registered', 'welcome ada']);
console.log(heard.join('; '));
