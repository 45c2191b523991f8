// runs in: npm run check
//
// A reactive task: work that a change of data starts. Nobody enqueues anything; a user who becomes active is welcomed,
// whoever wrote the document. The part between the markers stands in README.md as well.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { Tidemill } from 'tidemill';
import { mongodb } from 'tidemill/mongodb';
import { quiet, until } from './support/until.js';

interface User {
  _id: string;
  email: string;
  status: 'new' | 'active';
  welcomed?: Date;
}

await using server = await startMongo();
await using client = await new MongoClient(server.uri).connect();
const users = client.db('welcome').collection<User>('users');
await using mill = new Tidemill({ store: mongodb({ client, database: 'welcome' }), logger: false });

const sent: string[] = [];
const send = async (to: string): Promise<void> => void sent.push(to);

// README: from here
await mill.reactiveTask<User>({
  task: 'welcome-email',
  collection: 'users',
  filter: { status: 'active' }, // who gets one
  watchProjection: { email: 1 }, // what makes it run again
  debounce: '50ms', // how long a document must be quiet first; a second by default
  handler: async ({ docId, getDocument }) => {
    const user = await getDocument();
    if (user.welcomed) return; // it may run twice, so it looks first
    await send(user.email);
    await users.updateOne({ _id: docId as string }, { $set: { welcomed: new Date() } });
  },
});
// README: to here

// There before the task was: found when the task is seen for the first time.
await users.insertOne({ _id: 'ada', email: 'ada@example.com', status: 'active' });
await mill.start();
await until('ada is welcomed', () => sent.includes('ada@example.com'));

// Not active yet: no task, no mail. She becomes active later: the task begins.
await users.insertOne({ _id: 'grace', email: 'grace@example.com', status: 'new' });
await quiet(200);
assert.deepEqual(sent, ['ada@example.com']);
await users.updateOne({ _id: 'grace' }, { $set: { status: 'active' } });
await until('grace is welcomed', () => sent.includes('grace@example.com'));

// The handler's own write to `welcomed` is not watched, so it starts nothing.
await quiet(200);
const { items } = await mill.getReactiveTasks({ task: 'welcome-email' }, { sort: { createdAt: 1 } });
assert.deepEqual(
  items.map(({ sourceDocId, status, attempts }) => ({ sourceDocId, status, attempts })),
  [
    { sourceDocId: 'ada', status: 'completed', attempts: 1 },
    { sourceDocId: 'grace', status: 'completed', attempts: 1 },
  ],
);
console.log('welcomed:', sent.join(', '));

const own = readFileSync(import.meta.filename, 'utf8').split(/^\/\/ README: .*$/mu)[1];
const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
assert.ok(own !== undefined && readme.includes(own.trim()), 'the reactive task of README.md differs');
