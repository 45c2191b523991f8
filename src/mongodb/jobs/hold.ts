/** Reads and writes of a job between claim and settlement. */
import type { AnyBulkWriteOperation, ClientSession, Document, Filter } from 'mongodb';
import { failedRunId, LOG_LIMIT, type JobRecord } from '../../core/records/job.js';
import type { FailedRun, Instance, Lease, Note, StrayQuery } from '../../store/port.js';
import { BSON_OPTIONS, run, tokensOf, type Mongo } from '../context.js';
import { SCHEMA_VERSION, toRecord, toText, type JobDocument, type Key } from './document.js';
import { isDuplicate } from '../errors.js';
import { findExact } from '../exact.js';

/**
 * For best-effort writes, which must never wait long for a user's transaction. They do not wait for a majority: the
 * time limit would cover that wait as well, and report a completed write as failed.
 */
const BRIEFLY = { maxTimeMS: 1_000, writeConcern: { w: 1 } } as const;
/** Deciding what becomes of a job needs no payload. */
const WITHOUT_PAYLOAD = { data: 0, result: 0, progress: 0, logs: 0 } as const;

const mine = (lease: Lease): Filter<JobDocument> => ({
  _id: lease.key as Key,
  status: 'processing',
  leaseToken: lease.token,
  ...(lease.holder === undefined ? {} : { claimedBy: lease.holder }),
  ...(lease.part === undefined ? {} : { part: lease.part }),
});

export async function held(
  mongo: Mongo,
  leases: readonly Lease[],
  options: { readonly session?: ClientSession } = {},
): Promise<readonly (JobRecord | undefined)[]> {
  const filter = { _id: { $in: leases.map((lease) => lease.key as Key) }, status: 'processing' as const };
  const rows = await findExact(mongo.jobs, filter, options, BSON_OPTIONS).toArray();
  const byId = new Map(rows.map((row) => [toText(row._id), row]));
  return leases.map((lease) => {
    const row = byId.get(toText(lease.key));
    const isHeld =
      (row?.['leaseToken'] ?? null) === lease.token && (row?.['claimedBy'] ?? undefined) === lease.holder;
    return row !== undefined && isHeld ? toRecord(row) : undefined;
  });
}

export async function settledUnder(mongo: Mongo, lease: Lease): Promise<boolean> {
  const row = await run('read a settled job', () =>
    mongo.jobs.findOne({ _id: lease.key as Key }, { projection: { leaseToken: 1, status: 1 } }),
  );
  return row === null || (row.status !== 'processing' && row['leaseToken'] === lease.token);
}

export async function begin(mongo: Mongo, lease: Lease): Promise<'begun' | 'lost'> {
  const { matchedCount } = await run('begin', () =>
    mongo.jobs.updateOne(mine(lease), { $set: { startedToken: lease.token } }),
  );
  return matchedCount === 1 ? 'begun' : 'lost';
}

export async function note(mongo: Mongo, notes: readonly Note[]): Promise<void> {
  const operations = notes.map(({ lease, progress, logs = [] }): AnyBulkWriteOperation<JobDocument> => {
    const update: Document = {
      ...(progress === undefined ? {} : { $set: { progress: progress.value } }),
      ...(logs.length === 0 ? {} : { $push: { logs: { $each: [...logs], $slice: -LOG_LIMIT } } }),
    };
    return { updateOne: { filter: mine(lease), update } };
  });
  await run('note', () => mongo.jobs.bulkWrite(operations, { ordered: false, ...BRIEFLY }));
}

/**
 * A heartbeat passes over jobs that were claimed or refreshed within this many of their intervals: short jobs cost no
 * write, and long ones a write per two heartbeats, which stays within the three that older programs wait for.
 */
const BEATS_APART = 1.5;

export async function beat(mongo: Mongo, instance: Instance, except: readonly Lease[]): Promise<void> {
  const filter = {
    claimedBy: instance.instanceId,
    status: 'processing' as const,
    leaseToken: tokensOf(instance.life),
    _id: { $nin: except.map((lease) => lease.key as Key) },
    $expr: {
      $lte: [
        '$lastHeartbeat',
        { $subtract: ['$$NOW', { $multiply: [BEATS_APART, { $ifNull: ['$heartbeatInterval', 0] }] }] },
      ],
    },
  };
  const now = { $currentDate: { lastHeartbeat: true as const, updatedAt: true as const } };
  await run('heartbeat', () => mongo.jobs.updateMany(filter, now, { hint: 'tidemill_held', ...BRIEFLY }));
}

export async function cancelRequests(mongo: Mongo, leases: readonly Lease[]): Promise<readonly Lease[]> {
  const filter = {
    _id: { $in: leases.map((lease) => lease.key as Key) },
    cancelRequestedAt: { $type: 'date' as const },
  };
  const rows = await run('read cancel requests', () =>
    findExact(mongo.jobs, filter, { projection: { _id: 1 } }, BSON_OPTIONS).toArray(),
  );
  const asked = new Set(rows.map((row) => toText(row._id)));
  return leases.filter((lease) => asked.has(toText(lease.key)));
}

export async function heldBy(mongo: Mongo, instance: Instance, limit: number): Promise<readonly JobRecord[]> {
  const filter = {
    claimedBy: instance.instanceId,
    status: 'processing' as const,
    leaseToken: tokensOf(instance.life),
  };
  const options = { hint: 'tidemill_held', limit, batchSize: limit + 1, projection: WITHOUT_PAYLOAD };
  return run('read a dead instance', async () =>
    (await findExact(mongo.jobs, filter, options, BSON_OPTIONS).toArray()).map(toRecord),
  );
}

/** Finds jobs held under no valid lease: a claim that landed after its owner's death, or work of an older program. */
export async function strays(mongo: Mongo, query: StrayQuery): Promise<readonly JobRecord[]> {
  const { lives, olderThanMs, legacyAfterMs, limit } = query;
  const before = (time: Document | string, ms: Document | number): Document => ({
    $lt: [time, { $subtract: ['$$NOW', ms] }],
  });
  const lastSign = { $max: ['$lockedAt', '$lastHeartbeat'] };
  const patience = (ms: number): Document => ({
    $max: [ms, { $multiply: [3, { $ifNull: ['$heartbeatInterval', 0] }] }],
  });
  const registered = lives.map(({ instanceId, life }) => ({
    claimedBy: instanceId,
    leaseToken: tokensOf(life),
  }));
  const filter: Filter<JobDocument> = {
    status: 'processing',
    // An older program that claims a job leaves the token of its last holder: it is held only by whom both fields name.
    ...(registered.length === 0 ? {} : { $nor: registered }),
    $or: [
      { leaseToken: { $type: 'string' }, $expr: before(lastSign, patience(olderThanMs)) },
      { leaseToken: null, $expr: before(lastSign, patience(legacyAfterMs)) },
    ],
  };
  const options = { hint: 'tidemill_held', limit, batchSize: limit + 1, projection: WITHOUT_PAYLOAD };
  return run('look for strays', async () =>
    (await findExact(mongo.jobs, filter, options, BSON_OPTIONS).toArray()).map(toRecord),
  );
}

/**
 * Stores the failed copy of a run that used up its attempts. The id follows from the run, so a repeat stores nothing.
 */
export async function insertFailedRun(mongo: Mongo, of: JobRecord, failure: FailedRun): Promise<void> {
  const { entry, historyLimit, ...fields } = failure;
  await run('save a failed run', async () => {
    const schedule = await mongo.jobs.findOne({ _id: of.key as Key });
    if (schedule === null) return;
    const now = failure.finishedAt;
    const copy: Document = {
      _id: failedRunId(of.id, failure.scheduledFor),
      v: SCHEMA_VERSION,
      name: of.name,
      data: schedule['data'] as unknown,
      status: 'failed',
      priority: of.priority,
      nextRunAt: failure.scheduledFor,
      lockedAt: null,
      createdAt: now,
      updatedAt: now,
      scheduleId: of.id,
      ...(of.part === undefined ? {} : { part: of.part }),
      ...(schedule['limitKey'] === undefined ? {} : { limitKey: schedule['limitKey'] as string }),
      ...(of.retryPolicy === undefined ? {} : { retryPolicy: of.retryPolicy }),
      ...(of.timeoutMs === undefined ? {} : { timeoutMs: of.timeoutMs }),
      ...fields,
      history: [...(of.history ?? []), ...(entry === undefined ? [] : [entry])].slice(
        -Math.max(1, historyLimit),
      ),
    };
    try {
      await mongo.jobs.insertOne(copy as never);
    } catch (error) {
      if (!isDuplicate(error)) throw error;
    }
  });
}
