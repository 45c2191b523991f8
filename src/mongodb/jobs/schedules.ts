import type { Document } from 'mongodb';
import { FINISHED, NEVER, scheduleId, type JobRecord } from '../../core/records/job.js';
import type { JobStore, ScheduleChange } from '../../store/port.js';
import { literal, run, type Mongo } from '../context.js';
import { partOf, SCHEMA_VERSION, toRecord } from './document.js';
import { isDuplicate } from '../errors.js';

const optional = (value: unknown): Document | null => (value === undefined ? null : literal(value));

/**
 * The fields that a call of `schedule` may change. The times are separate: only a change of those moves the next run.
 */
function wanted(change: ScheduleChange): { times: Document; rest: Document } {
  return {
    times: {
      repeatInterval: literal(change.cron),
      timezone: literal(change.timezone),
      startAt: optional(change.startAt),
      repeatUntil: optional(change.repeatUntil),
    },
    rest: {
      data: literal(change.data),
      missed: literal(change.missed),
      priority: change.priority,
      ...(change.limitKey === undefined ? {} : { limitKey: literal(change.limitKey) }),
      retryPolicy: optional(change.retryPolicy),
      timeoutMs: optional(change.timeoutMs),
    },
  };
}

const differs = (fields: Document): Document => ({
  $or: Object.entries(fields).map(([field, value]) => ({ $ne: [{ $ifNull: [`$${field}`, null] }, value] })),
});

/**
 * One statement for new, changed, ended and unchanged schedules. A run in progress keeps its lease: its settlement sees
 * the new revision and computes the next run from it.
 */
function putPipeline(change: ScheduleChange, part: number | undefined): Document[] {
  const { times, rest } = wanted(change);
  const fresh = { $or: [{ $eq: [{ $type: '$name' }, 'missing'] }, { $in: ['$status', [...FINISHED]] }] };
  const moved = { $and: ['$_moved', { $ne: ['$status', 'processing'] }, { $ne: ['$paused', true] }] };
  const next = (field: string): Document => ({
    $cond: [{ $or: ['$_fresh', moved] }, change.firstRunAt, { $ifNull: [`$${field}`, change.firstRunAt] }],
  });
  return [
    { $set: { _fresh: fresh, _moved: differs(times), _changed: differs({ ...times, ...rest }) } },
    {
      $set: {
        v: SCHEMA_VERSION,
        name: literal(change.name),
        scheduleKey: literal(change.key),
        ...(part === undefined ? {} : { part }),
        ...times,
        ...rest,
        nextRunAt: next('nextRunAt'),
        scheduledFor: next('scheduledFor'),
        status: { $cond: ['$_fresh', 'pending', '$status'] },
        paused: { $cond: ['$_fresh', false, { $ifNull: ['$paused', false] }] },
        failCount: { $cond: [{ $or: ['$_fresh', moved] }, 0, { $ifNull: ['$failCount', 0] }] },
        firstFailedAt: { $cond: [{ $or: ['$_fresh', moved] }, null, '$firstFailedAt'] },
        failKind: { $cond: [{ $or: ['$_fresh', moved] }, null, '$failKind'] },
        lockedAt: { $cond: ['$_fresh', null, '$lockedAt'] },
        finishedAt: { $cond: ['$_fresh', null, '$finishedAt'] },
        expiresAt: null,
        cancelRequestedAt: { $cond: ['$_fresh', null, '$cancelRequestedAt'] },
        scheduleRev: {
          $add: [{ $ifNull: ['$scheduleRev', 0] }, { $cond: [{ $or: ['$_fresh', '$_changed'] }, 1, 0] }],
        },
        createdAt: { $ifNull: ['$createdAt', '$$NOW'] },
        updatedAt: { $cond: [{ $or: ['$_fresh', '$_changed'] }, '$$NOW', '$updatedAt'] },
        wake: { $cond: [{ $or: ['$_fresh', '$_moved'] }, change.now.getTime(), '$wake'] },
      },
    },
    { $unset: ['_fresh', '_moved', '_changed'] },
  ];
}

export async function putSchedule(mongo: Mongo, change: ScheduleChange): Promise<JobRecord> {
  const part = mongo.sharded ? partOf(change.name, change.key, undefined) : undefined;
  const filter = { _id: scheduleId(change.name, change.key), ...(part === undefined ? {} : { part }) };
  const put = () =>
    mongo.jobs.findOneAndUpdate(filter, putPipeline(change, part), { upsert: true, returnDocument: 'after' });
  return run(
    'schedule',
    async () => {
      // If two upserts of one id meet, the loser finds the winner's document on its second try.
      const row = await put().catch((error: unknown) =>
        isDuplicate(error) ? put() : Promise.reject(error as Error),
      );
      if (row === null) throw new Error('the upsert returned no document');
      return toRecord(row);
    },
    true,
  );
}

export async function schedules(mongo: Mongo, name?: string): Promise<readonly JobRecord[]> {
  const filter = { repeatInterval: { $type: 'string' as const }, ...(name === undefined ? {} : { name }) };
  const sort = { name: 1, scheduleKey: 1 } as const;
  return run('list schedules', async () =>
    (await mongo.jobs.find(filter, { hint: 'tidemill_schedules', sort }).toArray()).map(toRecord),
  );
}

const theOne = (mongo: Mongo, name: string, key: string): { _id: string; part?: number } => ({
  _id: scheduleId(name, key),
  ...(mongo.sharded ? { part: partOf(name, key, undefined) } : {}),
});

export async function schedule(mongo: Mongo, name: string, key: string): Promise<JobRecord | undefined> {
  const row = await run('read a schedule', () => mongo.jobs.findOne(theOne(mongo, name, key)));
  return row === null ? undefined : toRecord(row);
}

/** Also removes a schedule that runs: the settlement then finds nothing, and there is no next run. */
export async function removeSchedule(mongo: Mongo, name: string, key: string): Promise<boolean> {
  return run(
    'remove a schedule',
    async () => (await mongo.jobs.deleteOne(theOne(mongo, name, key))).deletedCount === 1,
  );
}

export async function pauseSchedule(
  mongo: Mongo,
  name: string,
  key: string,
  paused: boolean,
  nextRunAt: Date,
): Promise<JobRecord | undefined> {
  const at = paused ? NEVER : nextRunAt;
  const waiting = { $eq: ['$status', 'pending'] };
  const update = [
    {
      $set: {
        paused,
        nextRunAt: { $cond: [waiting, at, '$nextRunAt'] },
        scheduledFor: { $cond: [waiting, at, '$scheduledFor'] },
        scheduleRev: { $add: [{ $ifNull: ['$scheduleRev', 0] }, 1] },
        updatedAt: '$$NOW',
        wake: mongo.clock.now(),
      },
    },
  ];
  const filter = {
    ...theOne(mongo, name, key),
    status: { $in: ['pending' as const, 'processing' as const] },
    paused: { $ne: paused },
  };
  const row = await run('pause a schedule', () =>
    mongo.jobs.findOneAndUpdate(filter, update, { returnDocument: 'after' }),
  );
  return row === null ? schedule(mongo, name, key) : toRecord(row);
}

export const runScheduleNow = async (
  mongo: Mongo,
  name: string,
  key: string,
  now: Date,
): ReturnType<JobStore['runScheduleNow']> => {
  // An overdue run keeps its time: moving it to now would lose the runs missed before.
  const sooner = (field: string): Document => ({ $cond: [{ $gt: ['$nextRunAt', now] }, now, `$${field}`] });
  const times = { nextRunAt: sooner('nextRunAt'), scheduledFor: sooner('scheduledFor') };
  const update = [{ $set: { ...times, wake: now.getTime(), updatedAt: '$$NOW' } }];
  const filter = { ...theOne(mongo, name, key), status: 'pending' as const };
  const row = await run('run a schedule now', () =>
    mongo.jobs.findOneAndUpdate(filter, update, { returnDocument: 'after' }),
  );
  if (row !== null) return { outcome: 'due', job: toRecord(row) };
  const job = await schedule(mongo, name, key);
  return job?.status === 'processing' ? { outcome: 'running', job } : undefined;
};
