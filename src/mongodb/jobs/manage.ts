/** Transitions that people request. Each reads the job, then writes with what it read as the precondition. */
import type { Document, Filter } from 'mongodb';
import { EXPIRED, FINISHED, type JobRecord } from '../../core/records/job.js';
import { orderOf } from '../../core/records/limit-order.js';
import type { JobChanges, JobStore, RetentionMs } from '../../store/port.js';
import { send } from '../cluster/messages.js';
import { literal, run, type Mongo } from '../context.js';
import { keysFor, limitMovedTo, movedTo, toRecord, type JobDocument, type Key } from './document.js';
import { isDuplicate, isTimeLimit } from '../errors.js';
import { loadExisting } from './enqueue/parts.js';
import { get } from './find.js';
import { markKeys } from '../limits/keys/document.js';

type RetentionOf = (name: string) => RetentionMs;
/** A job that changes state between read and write this many times in a row is a fault, not a race. */
const TRIES = 20;

const as = (job: JobRecord, statuses: readonly string[]): Filter<JobDocument> => ({
  _id: { $in: [job.key as Key] },
  status: { $in: statuses as never[] },
  ...(job.part === undefined ? {} : { part: job.part }),
});

async function write(
  mongo: Mongo,
  filter: Filter<JobDocument>,
  update: Document | Document[],
): Promise<JobRecord | undefined> {
  const row = await mongo.jobs.findOneAndUpdate(filter, update, { returnDocument: 'after' });
  if (row === null) return undefined;
  const record = toRecord(row);
  await released(mongo, record);
  return record;
}

/** The end of a job with a successor releases that. */
async function released(mongo: Mongo, { name, uniqueKey, followed, status }: JobRecord): Promise<void> {
  if (followed === true && uniqueKey !== undefined && status !== 'pending' && status !== 'processing')
    await (await loadExisting()).release(mongo, { name, uniqueKey });
}

/** The same for a list, of which few have a unique key. */
async function releasedAfter(mongo: Mongo, jobs: readonly JobRecord[]): Promise<void> {
  if (jobs.some(({ uniqueKey }) => uniqueKey !== undefined))
    await (await loadExisting()).releaseAfter(mongo, jobs);
}

/** Reads the job and runs the step until the state holds still in between. Returns undefined if there is no job. */
async function decide<T>(
  mongo: Mongo,
  id: string,
  step: (job: JobRecord) => Promise<T | undefined>,
): Promise<T | undefined> {
  return run('manage a job', async () => {
    for (let tries = 0; tries < TRIES; tries += 1) {
      const job = await get(mongo, id);
      if (job === undefined) return undefined;
      const answer = await step(job);
      if (answer !== undefined) return answer;
    }
    throw new Error(`job ${id} changed its state ${String(TRIES)} times in a row; try again.`);
  });
}

/** Lets claims look at the keys of these jobs again: one of them may have held its key, or waits for a turn now. */
const lookAgain = (mongo: Mongo, jobs: readonly JobRecord[]): Promise<void> =>
  markKeys(
    mongo,
    jobs.flatMap(({ name, limitKey }) =>
      limitKey === undefined ? [] : [{ name, key: limitKey, from: '$$NOW' as const }],
    ),
  );

/** The same for jobs that have left. The next job of a key may be due, and idle instances wait for the one that left. */
async function left(mongo: Mongo, jobs: readonly JobRecord[]): Promise<void> {
  const names = new Set(jobs.flatMap(({ name, limitKey }) => (limitKey === undefined ? [] : [name])));
  if (names.size === 0) return;
  await lookAgain(mongo, jobs);
  await send(mongo, { kind: 'jobs', due: [...names].map((name) => [name, 1] as const) });
}

/** A successor that waited takes its key and its time along, so that it can be retried. */
function cancelledFields(mongo: Mongo, retentionMs: number, others: Document = {}): Document[] {
  const now = mongo.clock.now();
  return [
    {
      $set: {
        status: 'cancelled',
        finishedAt: new Date(now),
        expiresAt: new Date(now + retentionMs),
        updatedAt: '$$NOW',
        uniqueKey: { $ifNull: ['$successorKey', '$uniqueKey', '$$REMOVE'] },
        nextRunAt: { $ifNull: ['$successorRunAt', '$nextRunAt', '$$REMOVE'] },
        ...others,
      },
    },
    { $unset: ['successorKey', 'successorRunAt'] },
  ];
}

const askToCancel = { $currentDate: { cancelRequestedAt: true, updatedAt: true } } as const;

export const cancel = (mongo: Mongo, id: string, retention: RetentionOf): ReturnType<JobStore['cancel']> =>
  decide(mongo, id, async (job) => {
    if (FINISHED.includes(job.status)) return { outcome: 'finished' as const, job };
    if (job.status === 'processing') {
      const asked = await write(mongo, as(job, ['processing']), askToCancel);
      return asked && { outcome: 'requested' as const, job: asked };
    }
    const cancelled = await write(
      mongo,
      as(job, ['pending']),
      cancelledFields(mongo, retention(job.name).cancelled),
    );
    if (cancelled !== undefined) await left(mongo, [cancelled]);
    return cancelled && { outcome: 'cancelled' as const, job: cancelled };
  });

/** A job that is retried by hand goes behind those of its key. */
const orderAgain = ({ limitOrder }: JobRecord, now: Date): { readonly limitOrder?: string } =>
  limitOrder === undefined ? {} : { limitOrder: orderOf(now.getTime(), now.getTime()) };

/** Starts a fresh sequence of attempts: clears what the last one left behind, and keeps the history. */
const retried = (
  now: Date,
  replacement: { readonly data?: unknown; readonly limitOrder?: string } = {},
): Document => ({
  $set: {
    status: 'pending',
    nextRunAt: now,
    failCount: 0,
    lockedAt: null,
    wake: now.getTime(),
    ...replacement,
  },
  $unset: {
    failKind: '',
    firstFailedAt: '',
    startBy: '',
    debouncedAt: '',
    followed: '',
    finishedAt: '',
    expiresAt: '',
    cancelRequestedAt: '',
    leaseToken: '',
    result: '',
    progress: '',
  },
  $currentDate: { updatedAt: true },
});

export const retry = (
  mongo: Mongo,
  id: string,
  now: Date,
  replacement?: { readonly data: unknown },
): ReturnType<JobStore['retry']> =>
  decide(mongo, id, async (job) => {
    if (job.status === 'completed') return { outcome: 'finished' as const, job };
    if (!FINISHED.includes(job.status)) return { outcome: 'unfinished' as const, job };
    try {
      const order = orderAgain(job, now);
      const again = await write(
        mongo,
        as(job, ['failed', 'cancelled']),
        retried(now, { ...replacement, ...order }),
      );
      if (again !== undefined) await lookAgain(mongo, [again]);
      return again && { outcome: 'retried' as const, job: again };
    } catch (error) {
      if (isDuplicate(error)) return { outcome: 'live' as const, job };
      throw error;
    }
  });

export const remove = (mongo: Mongo, id: string): ReturnType<JobStore['remove']> =>
  decide(mongo, id, async (job) => {
    if (job.status === 'processing') return { outcome: 'running' as const, job };
    const { deletedCount } = await mongo.jobs.deleteMany(as(job, ['pending', ...FINISHED]));
    if (deletedCount === 0) return undefined;
    await left(mongo, [job]);
    await releasedAfter(mongo, [job]);
    return { outcome: 'removed' as const, job };
  });

export const reschedule = (mongo: Mongo, id: string, at: Date): ReturnType<JobStore['reschedule']> =>
  decide(mongo, id, async (job) => {
    if (job.status === 'processing') return { outcome: 'running' as const, job };
    if (job.status !== 'pending') return { outcome: 'finished' as const, job };
    const moved = await write(mongo, as(job, ['pending']), changing(mongo, { nextRunAt: at }));
    if (moved !== undefined) await lookAgain(mongo, [moved]);
    return moved && { outcome: 'rescheduled' as const, job: moved };
  });

const changing = (mongo: Mongo, { data, priority, nextRunAt, limitKey }: JobChanges): Document[] => [
  {
    $set: {
      ...(data === undefined ? {} : { data: literal(data.value) }),
      ...(priority === undefined ? {} : { priority }),
      ...(limitKey === undefined ? {} : { limitKey: literal(limitKey) }),
      ...(nextRunAt === undefined
        ? {}
        : { ...movedTo(literal(nextRunAt)), ...limitMovedTo(nextRunAt, mongo.clock.now()) }),
      wake: mongo.clock.now(),
      updatedAt: '$$NOW',
    },
  },
];

export const update = (
  mongo: Mongo,
  id: string,
  changes: JobChanges,
): ReturnType<NonNullable<JobStore['update']>> =>
  decide(mongo, id, async (job) => {
    if (job.status === 'processing') return { outcome: 'running' as const, job };
    if (job.status !== 'pending') return { outcome: 'finished' as const, job };
    const updated = await write(mongo, as(job, ['pending']), changing(mongo, changes));
    if (updated !== undefined) await lookAgain(mongo, [job, updated]);
    return updated && { outcome: 'updated' as const, job: updated };
  });

/** How many jobs one call cancels, and how many of them at once. */
const MOST_EXPIRED = 500;
const AT_ONCE = 50;
/** An open transaction may hold one of them: it is passed over. */
const BRIEFLY_MS = 500;

const late = {
  status: 'pending' as const,
  startBy: { $type: 'date' as const },
  $expr: { $lte: ['$startBy', '$$NOW'] },
};

export async function expire(
  mongo: Mongo,
  retention: RetentionOf,
  ids?: readonly string[],
): Promise<readonly JobRecord[]> {
  return run('expire', async () => {
    const filter = ids === undefined ? late : { ...late, _id: { $in: ids.flatMap(keysFor) } };
    const options = { projection: { name: 1 }, sort: { startBy: 1 as const }, limit: MOST_EXPIRED };
    const found = await mongo.jobs.find(filter, options).toArray();
    const expired: JobRecord[] = [];
    for (let from = 0; from < found.length; from += AT_ONCE) {
      const some = found.slice(from, from + AT_ONCE);
      expired.push(...(await Promise.all(some.map((row) => expireOne(mongo, row, retention)))).flat());
    }
    return expired;
  });
}

async function expireOne(mongo: Mongo, row: JobDocument, retention: RetentionOf): Promise<JobRecord[]> {
  const fields = cancelledFields(mongo, retention(row.name).cancelled, { failReason: EXPIRED });
  try {
    const options = { returnDocument: 'after', maxTimeMS: BRIEFLY_MS } as const;
    const expired = await mongo.jobs.findOneAndUpdate({ _id: row._id, ...late }, fields, options);
    if (expired === null) return [];
    await left(mongo, [toRecord(expired)]);
    await released(mongo, toRecord(expired));
    return [toRecord(expired)];
  } catch (error) {
    if (isTimeLimit(error)) return [];
    throw error;
  }
}

const among = (jobs: readonly JobRecord[], statuses: readonly string[]): Filter<JobDocument> => ({
  _id: { $in: jobs.map((job) => job.key as Key) },
  status: { $in: statuses as never[] },
});

export async function cancelBatch(
  mongo: Mongo,
  jobs: readonly JobRecord[],
  retention: RetentionOf,
): Promise<number> {
  return run('cancel many', async () => {
    let count = 0;
    for (const name of new Set(jobs.map((job) => job.name))) {
      const named = jobs.filter((job) => job.name === name);
      const done = await mongo.jobs.updateMany(
        among(named, ['pending']),
        cancelledFields(mongo, retention(name).cancelled),
      );
      count += done.modifiedCount;
    }
    const running = { ...among(jobs, ['processing']), cancelRequestedAt: null };
    await left(mongo, jobs);
    count += (await mongo.jobs.updateMany(running, askToCancel)).modifiedCount;
    await releasedAfter(mongo, jobs);
    return count;
  });
}

/**
 * A job with a unique key may conflict with a live twin, and each with an order gets another one, so these are written one
 * by one; the rest go in one write.
 */
export async function retryBatch(mongo: Mongo, jobs: readonly JobRecord[], now: Date): Promise<number> {
  return run('retry many', async () => {
    const isAlone = (job: JobRecord): boolean => job.uniqueKey !== undefined || job.limitOrder !== undefined;
    const alone = jobs.filter(isAlone);
    const plain = jobs.filter((job) => !isAlone(job));
    let count = (await mongo.jobs.updateMany(among(plain, ['failed', 'cancelled']), retried(now)))
      .modifiedCount;
    await lookAgain(mongo, plain);
    for (const job of alone) if ((await retry(mongo, job.id, now))?.outcome === 'retried') count += 1;
    return count;
  });
}

export async function removeBatch(mongo: Mongo, jobs: readonly JobRecord[]): Promise<number> {
  const filter = among(jobs, ['pending', ...FINISHED]);
  return run('remove many', async () => {
    const { deletedCount } = await mongo.jobs.deleteMany(filter);
    await releasedAfter(mongo, jobs);
    await left(mongo, jobs);
    return deletedCount;
  });
}
