/** Reminders and a digest, as documents of one collection. Ends when nothing is left to do, and prints what happened. */
import { MongoClient } from 'mongodb';
import { MongoCron } from 'tidemill/compat/mongodb-cron';

const client = new MongoClient(process.env['MONGODB_URI'] ?? '');
const db = client.db();
const reminders = db.collection('reminders');
const outbox = db.collection('outbox');

const now = Date.now();
const second = Math.ceil(now / 1_000) * 1_000 + 1_000;
await reminders.createIndexes([{ key: { 'plan.at': 1 }, sparse: true }]);
// Of two processes in a row, the second finds the documents of the first.
const isFirst = (await reminders.estimatedDocumentCount()) === 0;
if (isFirst)
  await reminders.insertMany([
    { kind: 'mail', to: 'ada', plan: { at: new Date(now) } },
    { kind: 'mail', to: 'bob', plan: { at: new Date(now), removed: true } },
    { kind: 'mail', to: 'later', plan: { at: new Date('2200-01-01') } },
    { kind: 'mail', to: 'nobody' },
    { kind: 'mail', to: 'flaky', plan: { at: new Date(now) } },
    {
      kind: 'digest',
      to: 'team',
      plan: { at: new Date(second), every: '* * * * * *', until: new Date(second + 2_000), removed: true },
    },
    { kind: 'other', to: 'another worker', plan: { at: new Date(now) } },
  ]);

const told: string[] = [];
let flaws = 0;

const cron = new MongoCron({
  collection: () => reminders,
  condition: { kind: { $in: ['mail', 'digest'] } },
  sleepUntilFieldPath: 'plan.at',
  intervalFieldPath: 'plan.every',
  repeatUntilFieldPath: 'plan.until',
  autoRemoveFieldPath: 'plan.removed',
  nextDelay: 5,
  idleDelay: 50,
  lockDuration: 1_000,
  onStart: () => told.push('start'),
  onStop: () => told.push('stop'),
  onError: (error: Error) => told.push(error.message),
  onDocument: async (doc) => {
    if (doc['to'] === 'flaky' && (flaws += 1) === 1) throw new Error('mailbox is full');
    await outbox.insertOne({ to: doc['to'], at: new Date() });
  },
  onIdle: () => {
    if (!told.includes('idle')) told.push('idle');
  },
});

await cron.start();
const open = { kind: { $ne: 'other' }, 'plan.at': { $lt: new Date('2199-01-01') } };
const enough = Number(process.env['STOP_AFTER'] ?? Infinity);
const goesOn = async (): Promise<boolean> =>
  (await outbox.countDocuments()) < enough && (await reminders.countDocuments(open)) > 0;
while (await goesOn()) await new Promise((resolve) => setTimeout(resolve, 20));
await cron.stop();
while (cron.isProcessing()) await new Promise((resolve) => setTimeout(resolve, 20));

const sent = (await outbox.find().toArray()).map(({ to }) => String(to)).sort();
const left = await reminders.find({}, { projection: { _id: 0, to: 1, plan: 1 }, sort: { to: 1 } }).toArray();
const plans = left.map(({ to, plan }) => {
  const { at } = (plan ?? {}) as { at?: Date | null };
  return [String(to), at === undefined ? 'none' : at === null ? 'done' : 'planned'];
});
console.log(JSON.stringify({ told, sent, plans, running: cron.isRunning() }));
await client.close();
