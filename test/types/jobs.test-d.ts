/** Types of the front door, checked by the compiler alone; nothing here runs. */
import type { StandardSchemaV1 } from '@standard-schema/spec';
import { expectTypeOf } from 'vitest';
import {
  defineJob,
  JobStatus,
  Tidemill,
  type EnqueuedJob,
  type Health,
  type Job,
  type JobContext,
  type JobDefinition,
  type JobPage,
  type JobType,
  type ManyItem,
  type MillEvents,
  type RetryPolicy,
  type Schedule,
  type Task,
  type TaskContext,
  type TaskPage,
  type TaskStatus,
  type UpcomingRun,
} from 'tidemill';
import { memory, type MemoryStore, type MemoryTransaction } from 'tidemill/memory';
import { mongodb, type MongodbStore } from 'tidemill/mongodb';
import { virtualClock, type VirtualClock } from 'tidemill/testing';
import type { ClientSession } from 'mongodb';

interface Email {
  readonly to: string;
  readonly copies?: readonly string[];
}

declare const emailSchema: StandardSchemaV1<Email>;
/** Text in, Date out. */
declare const dateSchema: StandardSchemaV1<{ at: string }, { at: Date }>;

const mill = new Tidemill({ store: memory() });

// A definition carries its types, given by hand or by its schema.
const plain = defineJob<Email>('plain', { timeout: '5s' });
const checked = defineJob('checked', { schema: emailSchema });
const changed = defineJob('changed', { schema: dateSchema, retryPolicy: { type: 'fixed', interval: '1s' } });
const open = defineJob('open');

expectTypeOf(plain).toEqualTypeOf<JobDefinition<Email>>();
expectTypeOf(checked).toEqualTypeOf<JobDefinition<Email, Email>>();
expectTypeOf(changed).toEqualTypeOf<JobDefinition<{ at: string }, { at: Date }>>();
expectTypeOf(open).toEqualTypeOf<JobDefinition>();

// The producer gives the input type.
expectTypeOf(mill.enqueue(plain, { to: 'ada' })).toEqualTypeOf<Promise<EnqueuedJob<Email>>>();
expectTypeOf(mill.enqueue(checked, { to: 'ada' }))
  .resolves.toHaveProperty('data')
  .toEqualTypeOf<Email>();
expectTypeOf(mill.enqueue(changed, { at: 'x' }))
  .resolves.toHaveProperty('data')
  .toEqualTypeOf<{ at: string }>();
expectTypeOf(mill.now(plain, { to: 'ada' })).toEqualTypeOf<Promise<EnqueuedJob<Email>>>();
expectTypeOf(mill.schedule('@daily', plain, { to: 'ada' })).toEqualTypeOf<Promise<Job<Email>>>();
void mill.enqueue(open, { anything: [1, 'two'] });
void mill.enqueue('by-name', { anything: 1 });
void mill.enqueue('by-name');

// @ts-expect-error -- a number is not a text
void mill.enqueue(plain, { to: 5 });
// @ts-expect-error -- `to` is missing
void mill.enqueue(plain, {});
// @ts-expect-error -- `cc` is not known
void mill.enqueue(plain, { to: 'ada', cc: 'bob' });
// @ts-expect-error -- the wrong payload for the schema
void mill.enqueue(checked, { to: 5 });
// @ts-expect-error -- what goes in, not what comes out
void mill.enqueue(changed, { at: new Date() });
// @ts-expect-error -- a number is not a text
void mill.now(plain, { to: 5 });
// @ts-expect-error -- a number is not a text
void mill.schedule('@daily', plain, { to: 5 });

// The worker gets the output type.
mill.work(plain, (job) => {
  expectTypeOf(job.data).toEqualTypeOf<Email>();
});
mill.work(changed, { concurrency: 5 }, (job) => {
  expectTypeOf(job.data).toEqualTypeOf<{ at: Date }>();
  expectTypeOf(job.id).toEqualTypeOf<string>();
  expectTypeOf(job.attempt).toEqualTypeOf<number>();
  expectTypeOf(job.signal).toEqualTypeOf<AbortSignal>();
  expectTypeOf(job.scheduledFor).toEqualTypeOf<Date | undefined>();
  expectTypeOf(job.defer).parameter(0).toEqualTypeOf<string | number | Date>();
  expectTypeOf(job.defer).returns.toBeVoid();
  expectTypeOf(job.progress).returns.toBeVoid();
  expectTypeOf(job.log).returns.toBeVoid();
});
mill.batch(plain, { byKey: true, size: 10 }, (jobs, { limitKey }) => {
  expectTypeOf(jobs.map((job) => job.limitKey)).toEqualTypeOf<string[]>();
  expectTypeOf(limitKey).toEqualTypeOf<string | undefined>();
});
// @ts-expect-error - the key is that of the definition, or given at enqueue
mill.batch(plain, { byKey: 'to' }, () => undefined);
mill.work(open, (job) => {
  expectTypeOf(job.data).toEqualTypeOf<unknown>();
});
// @ts-expect-error -- definitions know nothing of concurrency
defineJob('x', { concurrency: 5 });
// @ts-expect-error -- work knows nothing of timeouts
mill.work(plain, { timeout: '5s' }, () => 1);

// The short form does both.
const quick = mill.job<Email>('quick', (job) => {
  expectTypeOf(job.data).toEqualTypeOf<Email>();
});
expectTypeOf(quick).toEqualTypeOf<JobType<Email, MemoryTransaction>>();
const schemed = mill.job('schemed', { schema: dateSchema, concurrency: 2 }, (job) => {
  expectTypeOf(job.data).toEqualTypeOf<{ at: Date }>();
});
expectTypeOf<Parameters<(typeof schemed)['enqueue']>[0]>().toEqualTypeOf<{ at: string }>();
expectTypeOf(quick.enqueue({ to: 'ada' })).resolves.toEqualTypeOf<EnqueuedJob<Email>>();
expectTypeOf(quick.enqueueMany([{ data: { to: 'ada' }, priority: 1 }])).resolves.toEqualTypeOf<
  EnqueuedJob<Email>[]
>();
const loose = mill.job('loose', (job) => {
  expectTypeOf(job.data).toEqualTypeOf<unknown>();
});
void loose.enqueue({ anything: 1 });
// @ts-expect-error -- a number is not a text
void quick.enqueue({ to: 5 });
// @ts-expect-error -- a number is not a text
void quick.enqueueMany([{ data: { to: 5 } }]);
// @ts-expect-error -- data is missing
void quick.enqueueMany([{ priority: 1 }]);
// @ts-expect-error -- a number is not a text
void quick.schedule('@daily', { to: 5 });
// @ts-expect-error -- what goes in, not what comes out
void schemed.enqueue({ at: new Date() });

// The store types the transaction.
declare const mongoMill: Tidemill<MongodbStore>;
declare const session: ClientSession;
declare const inMemory: MemoryTransaction;
expectTypeOf(new Tidemill({ store: memory() })).toEqualTypeOf<Tidemill<MemoryStore>>();
expectTypeOf(new Tidemill({ store: mongodb({ uri: 'mongodb://localhost/app' }) })).toEqualTypeOf<
  Tidemill<MongodbStore>
>();
void mongoMill.enqueue('a', {}, { transaction: session });
void mongoMill.enqueue('a', {}, { session });
void mongoMill.enqueueMany([{ name: 'a', transaction: session }]);
void mill.enqueue('a', {}, { transaction: inMemory });
// @ts-expect-error -- a session of MongoDB is no transaction of the memory store
void mill.enqueue('a', {}, { transaction: session });
// @ts-expect-error -- and the other way round
void mongoMill.enqueue('a', {}, { transaction: inMemory });
// @ts-expect-error -- not a handle at all
void mongoMill.enqueueMany([{ name: 'a', transaction: true }]);
void mongoMill.withTransaction(async (transaction) => {
  expectTypeOf(transaction).toEqualTypeOf<ClientSession>();
  return Promise.resolve(5);
});
expectTypeOf(mongoMill.withTransaction(() => Promise.resolve(5))).toEqualTypeOf<Promise<number>>();
mongoMill.job('a', (job) => {
  expectTypeOf(job.complete).parameter(0).toHaveProperty('transaction').toEqualTypeOf<ClientSession>();
});
mill.job('a', (job) => job.complete({ transaction: inMemory, result: 1 }));
// @ts-expect-error -- a session of MongoDB is no transaction of the memory store
mill.job('a', (job) => job.complete({ transaction: session }));

// Options are typed, not just objects.
// @ts-expect-error -- did you mean runAt?
void mill.enqueue('a', {}, { runat: new Date() });
// @ts-expect-error -- a date, not a text
void mill.enqueue('a', {}, { runAt: '2025-01-01' });
// @ts-expect-error -- not a policy
void mill.schedule('@daily', 'a', {}, { missed: 'twice' });
// @ts-expect-error -- an interval is needed
export const noInterval: RetryPolicy = { type: 'fixed' };
// @ts-expect-error -- a fixed policy has no factor
export const fixedWithFactor: RetryPolicy = { type: 'fixed', interval: 1, factor: 2 };
// @ts-expect-error -- a store is needed
new Tidemill({});

// Events carry one typed object.
mill.on('job:complete', (event) => {
  expectTypeOf(event).toEqualTypeOf<MillEvents['job:complete']>();
  expectTypeOf(event.job).toEqualTypeOf<Job>();
  expectTypeOf(event.durationMs).toEqualTypeOf<number>();
  expectTypeOf(event.result).toEqualTypeOf<unknown>();
});
mill.on('job:fail', ({ error, willRetry, attempt }) => {
  expectTypeOf(error).toEqualTypeOf<Error>();
  expectTypeOf(willRetry).toEqualTypeOf<boolean>();
  expectTypeOf(attempt).toEqualTypeOf<number>();
});
mill.on('job:retry', ({ runAt }) => {
  expectTypeOf(runAt).toEqualTypeOf<Date>();
});
mill.on('stale:recovered', ({ count }) => {
  expectTypeOf(count).toEqualTypeOf<number>();
});
mill.on('error', ({ error, where, instanceId }) => {
  expectTypeOf(error).toEqualTypeOf<Error>();
  expectTypeOf([where, instanceId]).toEqualTypeOf<string[]>();
});
expectTypeOf(mill.on('job:start', () => undefined)).toEqualTypeOf<typeof mill>();
// @ts-expect-error -- no such event
mill.on('job:done', () => undefined);

// A payload may be left out only if its type allows that.
declare const typed: JobDefinition<Email>;
declare const untyped: JobDefinition;
void mill.enqueue(typed, { to: 'ada@example.com' });
void mill.enqueue(untyped);
void mill.enqueue('by-name');
// @ts-expect-error -- a mail needs an address
void mill.enqueue(typed);
// @ts-expect-error -- a mail needs an address
void mill.now(typed);

// Reactive tasks: the document's type flows into the handler.
void mongoMill.reactiveTask<Email>({
  task: 'mail',
  collection: 'mails',
  handler: async ({ getDocument, watchedValues, markCompleted }) => {
    expectTypeOf(await getDocument()).toEqualTypeOf<Email>();
    expectTypeOf(watchedValues).toEqualTypeOf<Record<string, unknown>>();
    expectTypeOf(markCompleted)
      .parameter(0)
      .toHaveProperty('session')
      .toEqualTypeOf<ClientSession | undefined>();
  },
});
// @ts-expect-error -- the name is wrong
void mongoMill.reactiveTask({ task: 'mail', collection: 'mails', filters: {}, handler: () => undefined });
expectTypeOf<HasAny<Task>>().toEqualTypeOf<false>();
expectTypeOf<HasAny<TaskPage>>().toEqualTypeOf<false>();
expectTypeOf<HasAny<TaskContext<Email, ClientSession>>>().toEqualTypeOf<false>();
expectTypeOf<TaskStatus>().toEqualTypeOf<
  'pending' | 'processing' | 'processing_dirty' | 'completed' | 'failed'
>();

// The second type of a definition is that of its result: the handler returns it, `jobs.result` resolves to it.
interface Receipt {
  readonly messageId: string;
}
const sent = defineJob<Email, Receipt>('sent');
const sentChecked = defineJob<typeof dateSchema, Receipt>('sent-checked', { schema: dateSchema });
expectTypeOf(sent).toEqualTypeOf<JobDefinition<Email, Email, Receipt>>();
expectTypeOf(sentChecked).toEqualTypeOf<JobDefinition<{ at: string }, { at: Date }, Receipt>>();
mill.work(sent, () => ({ messageId: 'x' }));
mill.work(sent, { concurrency: 2 }, async (job) => {
  await Promise.resolve();
  if (job.attempt === 1) {
    job.defer('5m');
    return;
  }
  return { messageId: job.data.to };
});
mill.work(sent, async (job) => {
  await job.complete({ transaction: inMemory, result: { messageId: 'x' } });
});
mill.work(sent, ({ defer }) => {
  defer('5m');
});
// @ts-expect-error -- the result has another type
mill.work(sent, () => ({ messageId: 5 }));
// @ts-expect-error -- the result has another type
mill.work(sent, async () => {
  await Promise.resolve();
  return { messageId: 5 };
});
expectTypeOf(mill.jobs.result(sent, 'id')).toEqualTypeOf<Promise<Receipt>>();
expectTypeOf(mill.jobs.result(sentChecked, 'id', { timeout: '5s' })).toEqualTypeOf<Promise<Receipt>>();
expectTypeOf(mill.jobs.result(plain, 'id')).toEqualTypeOf<Promise<unknown>>();
// @ts-expect-error -- the id is missing
void mill.jobs.result(sent);

// Items of enqueueMany name their job, or have its definition, which types their data.
expectTypeOf(
  mill.enqueueMany([
    { job: plain, data: { to: 'ada' }, priority: 5 },
    { job: changed, data: { at: 'x' } },
    { name: 'by-name', data: { anything: 1 } },
    { job: open },
  ]),
).toEqualTypeOf<Promise<[EnqueuedJob<Email>, EnqueuedJob<{ at: string }>, EnqueuedJob, EnqueuedJob]>>();
const addresses: string[] = [];
expectTypeOf(mill.enqueueMany(addresses.map((to) => ({ job: plain, data: { to } })))).toEqualTypeOf<
  Promise<EnqueuedJob<Email>[]>
>();
expectTypeOf(mill.enqueueMany(addresses.map((name) => ({ name })))).toEqualTypeOf<Promise<EnqueuedJob[]>>();
declare const many: readonly ManyItem<Email, MemoryTransaction>[];
expectTypeOf(mill.enqueueMany(many)).toEqualTypeOf<Promise<EnqueuedJob<Email>[]>>();
void mongoMill.enqueueMany([{ job: plain, data: { to: 'ada' }, session }]);
// @ts-expect-error -- a number is not a text
void mill.enqueueMany([{ job: plain, data: { to: 5 } }]);
// @ts-expect-error -- a mail needs an address
void mill.enqueueMany([{ job: plain }]);
void mill.enqueueMany([
  { job: plain, data: { to: 'ada' } },
  // @ts-expect-error -- what goes in, not what comes out
  { job: changed, data: { at: new Date() } },
]);
// @ts-expect-error -- a session of MongoDB is no transaction of the memory store
void mill.enqueueMany([{ job: plain, data: { to: 'ada' }, transaction: session }]);
// @ts-expect-error -- did you mean runAt?
void mill.enqueueMany([{ job: plain, data: { to: 'ada' }, runat: new Date() }]);

// Schedules by distance, and policies that are only a limit.
expectTypeOf(mill.schedule({ every: '90s' }, plain, { to: 'ada' })).toEqualTypeOf<Promise<Job<Email>>>();
void quick.schedule({ every: 90_000 }, { to: 'ada' });
// @ts-expect-error -- not a duration
void mill.schedule({ every: new Date() }, 'a');
export const limitOnly: RetryPolicy = { maxAttempts: 3 };
export const durationOnly: RetryPolicy = { maxDuration: '1h' };
// @ts-expect-error -- neither a type nor a limit
export const nothing: RetryPolicy = {};
// @ts-expect-error -- an interval needs a type
export const intervalOnly: RetryPolicy = { interval: '5s' };

// Managing: outcomes are closed sets.
expectTypeOf(mill.jobs.get('x')).resolves.toEqualTypeOf<Job | undefined>();
expectTypeOf(mill.jobs.find({ status: 'failed' })).resolves.toEqualTypeOf<JobPage>();
expectTypeOf(mill.jobs.cancel('x'))
  .resolves.toHaveProperty('outcome')
  .toEqualTypeOf<'cancelled' | 'requested' | 'finished' | 'missing'>();
expectTypeOf(mill.jobs.removeMany({ all: true })).resolves.toEqualTypeOf<{ count: number }>();
expectTypeOf(mill.jobs.result('x')).resolves.toEqualTypeOf<unknown>();
expectTypeOf(mill.schedules.list()).resolves.toEqualTypeOf<readonly Schedule[]>();
expectTypeOf(mill.schedules.next('a', 5)).resolves.toEqualTypeOf<readonly Date[]>();
expectTypeOf(mill.schedules.next(5)).resolves.toEqualTypeOf<readonly UpcomingRun[]>();
// @ts-expect-error -- not a status
void mill.jobs.find({ status: 'done' });
// @ts-expect-error -- an object where a text is wanted
void mill.jobs.find({ name: { $ne: 'x' } });
// @ts-expect-error -- what it is about must be said
void mill.jobs.removeMany();
// @ts-expect-error -- `all` is true or not there
void mill.jobs.removeMany({ all: false });

// Statuses are values and types under one name.
expectTypeOf<JobStatus>().toEqualTypeOf<'pending' | 'processing' | 'completed' | 'failed' | 'cancelled'>();
expectTypeOf(JobStatus.FAILED).toEqualTypeOf<'failed'>();

// Time.
expectTypeOf(virtualClock('2025-01-01')).toEqualTypeOf<VirtualClock>();
void memory({ clock: virtualClock() });

// Nothing of what users get is `any`.
type AnyIn<T> = 0 extends 1 & T ? true : false;
type HasAny<T> = T extends object ? { [K in keyof T]-?: AnyIn<T[K]> }[keyof T] : AnyIn<T>;
expectTypeOf<HasAny<Job>>().toEqualTypeOf<false>();
expectTypeOf<HasAny<EnqueuedJob>>().toEqualTypeOf<false>();
expectTypeOf<HasAny<Health>>().toEqualTypeOf<false>();
expectTypeOf<HasAny<Schedule>>().toEqualTypeOf<false>();
expectTypeOf<HasAny<JobPage>>().toEqualTypeOf<false>();
expectTypeOf<{ [K in keyof MillEvents]: HasAny<MillEvents[K]> }[keyof MillEvents]>().toEqualTypeOf<false>();
expectTypeOf<HasAny<JobContext<Email, MemoryTransaction>>>().toEqualTypeOf<false>();
expectTypeOf<AnyIn<Awaited<ReturnType<typeof mill.jobs.result>>>>().toEqualTypeOf<false>();
expectTypeOf<AnyIn<Parameters<typeof loose.enqueue>[0]>>().toEqualTypeOf<false>();
