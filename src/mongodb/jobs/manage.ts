/** Transitions that people request. Each reads the job, then writes with what it read as the precondition. */
import type { Document, Filter } from 'mongodb';
import { FINISHED, type JobRecord } from '../../core/records/job.js';
import type { JobStore, RetentionMs } from '../../store/port.js';
import { run, type Mongo } from '../context.js';
import { toRecord, type JobDocument, type Key } from './document.js';
import { isDuplicate } from '../errors.js';
import { get } from './find.js';

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
  update: Document,
): Promise<JobRecord | undefined> {
  const row = await mongo.jobs.findOneAndUpdate(filter, update, { returnDocument: 'after' });
  return row === null ? undefined : toRecord(row);
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

function cancelledFields(mongo: Mongo, retentionMs: number): Document {
  const now = mongo.clock.now();
  return {
    $set: { status: 'cancelled', finishedAt: new Date(now), expiresAt: new Date(now + retentionMs) },
    $currentDate: { updatedAt: true },
  };
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
    return cancelled && { outcome: 'cancelled' as const, job: cancelled };
  });

/** Starts a fresh sequence of attempts: clears what the last one left behind, and keeps the history. */
const retried = (now: Date, replacement: { readonly data?: unknown } = {}): Document => ({
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
      const again = await write(mongo, as(job, ['failed', 'cancelled']), retried(now, replacement));
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
    return deletedCount === 1 ? { outcome: 'removed' as const, job } : undefined;
  });

export const reschedule = (mongo: Mongo, id: string, at: Date): ReturnType<JobStore['reschedule']> =>
  decide(mongo, id, async (job) => {
    if (job.status === 'processing') return { outcome: 'running' as const, job };
    if (job.status !== 'pending') return { outcome: 'finished' as const, job };
    const update = { $set: { nextRunAt: at, wake: mongo.clock.now() }, $currentDate: { updatedAt: true } };
    const moved = await write(mongo, as(job, ['pending']), update);
    return moved && { outcome: 'rescheduled' as const, job: moved };
  });

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
    return count + (await mongo.jobs.updateMany(running, askToCancel)).modifiedCount;
  });
}

/** A job with a unique key may conflict with a live twin, so each is written by itself; the rest go in one write. */
export async function retryBatch(mongo: Mongo, jobs: readonly JobRecord[], now: Date): Promise<number> {
  return run('retry many', async () => {
    const keyed = jobs.filter((job) => job.uniqueKey !== undefined);
    const plain = jobs.filter((job) => job.uniqueKey === undefined);
    let count = (await mongo.jobs.updateMany(among(plain, ['failed', 'cancelled']), retried(now)))
      .modifiedCount;
    for (const job of keyed) if ((await retry(mongo, job.id, now))?.outcome === 'retried') count += 1;
    return count;
  });
}

export async function removeBatch(mongo: Mongo, jobs: readonly JobRecord[]): Promise<number> {
  const filter = among(jobs, ['pending', ...FINISHED]);
  return run('remove many', async () => (await mongo.jobs.deleteMany(filter)).deletedCount);
}
