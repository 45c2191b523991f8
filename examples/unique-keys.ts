// runs in: npm run check
//
// At most one job of a name and key is pending or processing at any time. A unique index holds that, so it does not
// matter how many processes ask at once.
import assert from 'node:assert/strict';
import { startMongo } from '@tidemill/servers';
import { Tidemill } from 'tidemill';
import { mongodb } from 'tidemill/mongodb';

await using server = await startMongo();
const store = () => mongodb({ uri: server.uri, database: 'unique_keys' });

// Two mills with connections of their own stand for two processes.
const mills = [new Tidemill({ store: store() }), new Tidemill({ store: store() })];
const mill = mills[0]!;

const answers = await Promise.all(
  Array.from({ length: 200 }, (_, i) =>
    mills[i % 2]!.enqueue('sync-account', { account: 7 }, { uniqueKey: 'account-7', delay: '1h' }),
  ),
);

// Every call is answered with the one job; one of them made it.
assert.equal(new Set(answers.map(({ id }) => id)).size, 1);
assert.equal(answers.filter(({ outcome }) => outcome === 'created').length, 1);
assert.equal(await mill.jobs.count({ name: 'sync-account' }), 1);
const { id } = answers[0]!;

// The key is scoped by the name.
const other = await mill.enqueue('sync-invoices', {}, { uniqueKey: 'account-7', delay: '1h' });
assert.equal(other.outcome, 'created');

// Finished jobs block nothing.
await mill.jobs.cancel(id);
const second = await mill.enqueue('sync-account', { account: 7 }, { uniqueKey: 'account-7', delay: '1h' });
assert.equal(second.outcome, 'created');
// The first one cannot come back while the second is live, and the answer says so.
assert.equal((await mill.jobs.retry(id)).outcome, 'live');

// An `id` of your own is for safe repeats: the same call twice is one job, finished or not.
const order = { id: 'invoice-42', delay: '1h' };
assert.equal((await mill.enqueue('invoice', {}, order)).outcome, 'created');
assert.equal((await mill.enqueue('invoice', {}, order)).outcome, 'existing');

await Promise.all(mills.map((one) => one.stop()));
console.log('200 calls, 1 job');
