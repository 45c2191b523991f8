/** Code that was written for other libraries keeps its types. */
import type { Collection, Db } from 'mongodb';
import { MongoCron, type MongoCronCfg } from 'tidemill/compat/mongodb-cron';
import { Monque, type Job, type PersistedJob } from 'tidemill/compat/monque';

interface Reminder {
  readonly to: string;
  readonly sleepUntil: Date | null;
}

declare const reminders: Collection<Reminder>;
declare const db: Db;
declare function send(to: string): Promise<void>;

// Documents and errors have any field, as in mongodb-cron; a handler may say what it expects.
const config: MongoCronCfg = {
  collection: () => reminders,
  condition: { to: { $ne: 'nobody' } },
  lockDuration: 0,
  onDocument: async (doc: Reminder) => send(doc.to),
  onError: (error) => console.error(error.message, error['code']),
};
const cron: MongoCron = new MongoCron(config);
new MongoCron({
  collection: reminders,
  onDocument: (doc) => send(doc['to'] as string),
  async onIdle() {
    await this.stop();
  },
  onStop: async (stopped) => {
    if (stopped.isRunning()) await stopped.stop();
  },
});
await cron.start();

class OwnCron extends MongoCron {
  name(): string {
    return this.getCollection().collectionName;
  }
}
new OwnCron({ collection: reminders }).name();

// @ts-expect-error -- a collection is needed
new MongoCron({});
// @ts-expect-error -- no such option
new MongoCron({ collection: reminders, idleDelays: 1 });

const monque = new Monque(db, { maxRetries: 3, jobRetention: { completed: 1_000 } });
monque.register<{ to: string }>('mail', async (job: Job<{ to: string }>) => send(job.data.to));
const job: PersistedJob<{ to: string }> = await monque.enqueue('mail', { to: 'ada' });
job._id.toHexString();
monque.on('job:fail', ({ job: failed, error, willRetry }) =>
  console.log(failed.name, error.message, willRetry),
);
monque.once('stale:recovered', ({ count }) => console.log(count.toFixed()));
// @ts-expect-error -- no such event
monque.on('job:done', () => undefined);
