// runs in: npm run check
//
// Documents of a MongoDB collection that say themselves when they are due, beside everything else that is in them.
import assert from 'node:assert/strict';
import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { Tidemill } from 'tidemill';
import { mongodb } from 'tidemill/mongodb';
import { until } from './support/until.js';

await using server = await startMongo();
const uri = server.uri.replace('/?', '/app?');
const client = await new MongoClient(uri).connect();

interface Subscription {
  _id: string;
  email: string;
  billing: { nextAt: Date | null; every: string; until?: Date };
}
const subscriptions = client.db().collection<Subscription>('subscriptions');
// What a poll needs; `schedule.indexFaults()` says so where it is missing.
await subscriptions.createIndexes([{ key: { 'billing.nextAt': 1 } }]);
await subscriptions.insertMany([
  { _id: 'ada', email: 'ada@example.com', billing: { nextAt: new Date(), every: '0 9 1 * *' } },
  { _id: 'grace', email: 'grace@example.com', billing: { nextAt: new Date(), every: 'on Mondays' } },
  { _id: 'alan', email: 'alan@example.com', billing: { nextAt: null, every: '@monthly' } },
]);

const billed: string[] = [];
const errors: string[] = [];
const mill = new Tidemill({ store: mongodb({ uri }) });
const schedule = mill.documents<Subscription>({
  collection: 'subscriptions',
  fields: { sleepUntil: 'billing.nextAt', interval: 'billing.every', repeatUntil: 'billing.until' },
  timezone: 'Europe/Prague',
  concurrency: 5,
  retryPolicy: { type: 'exponential', min: '1m', maxAttempts: 5 },
  onDocument: ({ email }) => void billed.push(email),
  onError: (error) => void errors.push(error.message),
});
await mill.start();
await until('all are billed', () => billed.length === 2);
await until('it is idle', () => schedule.isIdle());

assert.deepEqual(await schedule.indexFaults(), []);
// Nine in the morning of the first, in Prague.
const ada = await subscriptions.findOne({ _id: 'ada' });
assert.match(String(ada?.billing.nextAt?.toISOString()), /-01T0[78]:00:00.000Z$/u);
// An interval that nobody can read parks its document, with the reason in it.
const grace = await subscriptions.findOne({ _id: 'grace' });
assert.equal(grace?.billing.nextAt, null);
assert.match(String(errors[0]), /document grace: cron needs 5 fields/u);
console.log({ billed, next: ada?.billing.nextAt, errors });

await mill.stop();
await client.close();
