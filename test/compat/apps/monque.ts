/** Mails and a report on a collection that older processes have filled. Ends when all is done, and prints what happened. */
import { MongoClient } from 'mongodb';
import { Monque } from 'tidemill/compat/monque';

const client = new MongoClient(process.env['MONGODB_URI'] ?? '');
const db = client.db();
const outbox = db.collection('outbox');
const jobs = db.collection('monque_jobs');

const monque = new Monque(db, { maxRetries: 3, baseRetryInterval: 1, pollInterval: 50 });
const told: string[] = [];
monque.on('job:fail', ({ job, error, willRetry }) =>
  told.push(`${job.name} failed: ${error.message}, ${willRetry ? 'again' : 'for good'}`),
);

monque.register<{ to: string }>('mail', async (job) => {
  if (job.data.to === 'flaky' && job.failCount === 0) throw new Error('mailbox is full');
  await outbox.insertOne({ to: job.data.to });
});
monque.register('broken', () => {
  throw new Error('broken');
});
monque.register<{ kind: string }>(
  'report',
  async (job) => {
    await outbox.insertOne({ to: job.data.kind });
  },
  { concurrency: 1 },
);

await monque.initialize();
monque.start();
const first = await monque.enqueue(
  'mail',
  { to: 'bob' },
  { uniqueKey: 'bob', runAt: new Date('2200-01-01') },
);
const second = await monque.enqueue('mail', { to: 'bob' }, { uniqueKey: 'bob' });
await monque.rescheduleJob(first._id.toHexString(), new Date());
await monque.now('mail', { to: 'flaky' });
await monque.enqueue('broken', {});
const gone = await monque.enqueue('mail', { to: 'nobody' }, { runAt: new Date('2200-01-01') });
await monque.cancelJob(gone._id.toHexString());
const yearly = await monque.schedule('0 0 1 1 *', 'report', { kind: 'yearly' }, { uniqueKey: 'yearly' });

const open = { status: { $in: ['pending', 'processing'] }, name: { $ne: 'report' } };
while ((await jobs.countDocuments(open)) > 0 || told.length < 4)
  await new Promise((resolve) => setTimeout(resolve, 20));
while ((await outbox.countDocuments({ to: 'yearly' })) === 0)
  await new Promise((resolve) => setTimeout(resolve, 20));
await monque.stop();

const { pending, completed, failed, cancelled } = await monque.getQueueStats();
const sent = (await outbox.find().toArray()).map(({ to }) => String(to)).sort();
const schedules = await monque.getJobs({ name: 'report' });
console.log(
  JSON.stringify({
    same: first._id.equals(second._id),
    told: told.sort(),
    sent,
    stats: { pending, completed, failed, cancelled },
    schedules: schedules.map((job) => [job._id.equals(yearly._id), job.nextRunAt > new Date()]),
  }),
);
await client.close();
