/** Inserts with `onExisting`, and what becomes of successors. */
import type { ClientSession, Document, Filter } from 'mongodb';
import { StoreError } from '../../../core/errors.js';
import { NEVER, type JobRecord } from '../../../core/records/job.js';
import { ORDER_DUE_DIGITS } from '../../../core/records/limit-order.js';
import type { Inserted, NewJob, UniqueKey } from '../../../store/port.js';
import { literal, run, type Mongo } from '../../context.js';
import { isDuplicate } from '../../errors.js';
import { afterTransaction } from '../../cluster/messages.js';
import { markKeys } from '../../limits/keys/document.js';
import {
  limitMovedTo,
  movedTo,
  partOf,
  SCHEMA_VERSION,
  toDocument,
  toRecord,
  type JobDocument,
} from '../document.js';
import { liveKey } from './winners.js';

const TRIES = 50;

/** How each statement is run: in a caller's transaction, or with a time limit. */
interface Manner {
  readonly session?: ClientSession;
  readonly maxTimeMS?: number;
}

const orRemove = (value: unknown): unknown => (value === undefined ? '$$REMOVE' : literal(value));

const rescheduling = ({ nextRunAt, createdAt }: NewJob): Document[] => [
  {
    $set: {
      ...movedTo(literal(nextRunAt)),
      ...limitMovedTo(nextRunAt, createdAt.getTime()),
      updatedAt: '$$NOW',
      wake: Date.now(),
    },
  },
];

/** As `orderAt` of src/core/records/limit-order.ts, for the due time in `_due`. */
function orderAtDue(order: string): Document {
  const missing = { $subtract: [ORDER_DUE_DIGITS, { $strLenCP: '$$ms' }] };
  const zeros = { $substrCP: ['0'.repeat(ORDER_DUE_DIGITS), 0, missing] };
  return {
    $let: {
      vars: { ms: { $toString: { $max: [0, { $toLong: '$_due' }] } } },
      in: { $concat: [zeros, '$$ms', order.slice(ORDER_DUE_DIGITS)] },
    },
  };
}

/** The place of the job in the order of its key. A debounced job may be due earlier than the call says. */
function placeOf({ limitOrder, nextRunAt }: NewJob): unknown {
  if (limitOrder === undefined) return '$$REMOVE';
  return { $cond: [{ $eq: ['$_due', nextRunAt] }, limitOrder, orderAtDue(limitOrder)] };
}

/** A fresh sequence of attempts with the payload and options of the new job. */
function replacing(job: NewJob): Document[] {
  const { onExisting, nextRunAt, startBy, createdAt } = job;
  const debounce = onExisting?.kind === 'debounce' ? onExisting : undefined;
  const since = { $ifNull: ['$debouncedAt', literal(createdAt)] };
  const due =
    debounce === undefined
      ? literal(nextRunAt)
      : { $min: [literal(nextRunAt), { $add: [since, debounce.maxWaitMs] }] };
  const startsIn = startBy === undefined ? undefined : startBy.getTime() - nextRunAt.getTime();
  return [
    { $set: { _due: due } },
    {
      $set: {
        ...movedTo('$_due'),
        data: literal(job.data),
        priority: job.priority,
        failCount: 0,
        startBy: startsIn === undefined ? '$$REMOVE' : { $add: ['$_due', startsIn] },
        debouncedAt: debounce === undefined ? '$$REMOVE' : since,
        limitKey: orRemove(job.limitKey),
        limitOrder: placeOf(job),
        retryPolicy: orRemove(job.retryPolicy),
        timeoutMs: orRemove(job.timeoutMs),
        trace: orRemove(job.trace),
        updatedAt: '$$NOW',
        wake: Date.now(),
      },
    },
    { $unset: ['_due', 'failReason', 'failKind', 'firstFailedAt', 'result', 'progress'] },
  ];
}

const partFilter = (mongo: Mongo, { name, uniqueKey }: UniqueKey): { readonly part?: number } =>
  mongo.sharded ? { part: partOf(name, uniqueKey, undefined) } : {};

/** Matches the live job of a key. */
const live = (mongo: Mongo, key: UniqueKey): Filter<JobDocument> => ({
  ...liveKey(key.name, key.uniqueKey),
  ...partFilter(mongo, key),
});

/** Matches the successor that waits for a key. */
const waiting = (mongo: Mongo, key: UniqueKey): Filter<JobDocument> => ({
  name: key.name,
  successorKey: { $eq: key.uniqueKey, $type: 'string' },
  status: 'pending',
  ...partFilter(mongo, key),
});

const change = (
  mongo: Mongo,
  filter: Filter<JobDocument>,
  update: Document[],
  manner: Manner,
): Promise<JobDocument | null> =>
  mongo.jobs.findOneAndUpdate(filter, update, { returnDocument: 'after', ...manner });

/** Marks a live job: its end must release the successor. Returns false if there is none. */
async function follow(mongo: Mongo, filter: Filter<JobDocument>, manner: Manner): Promise<boolean> {
  const mark = { $set: { followed: true }, $currentDate: { updatedAt: true as const } };
  return (await mongo.jobs.updateOne(filter, mark, manner)).matchedCount === 1;
}

/** Lets claims look at keys again, after the transaction if there is one. Until then, `repairKeys` finds their jobs. */
async function lookAgain(
  mongo: Mongo,
  name: string,
  keys: readonly unknown[],
  { session }: Manner,
): Promise<void> {
  const marks = keys.flatMap((key) =>
    typeof key === 'string' ? [{ name, key, from: '$$NOW' as const }] : [],
  );
  if (marks.length === 0) return;
  if (session === undefined) await markKeys(mongo, marks);
  else afterTransaction(session, () => markKeys(mongo, marks));
}

/** Inserts a document; returns false if its id or its key is taken. */
async function inserted(mongo: Mongo, document: JobDocument, manner: Manner): Promise<boolean> {
  try {
    await mongo.jobs.insertOne(document, manner);
    return true;
  } catch (error) {
    if (manner.session === undefined && isDuplicate(error)) return false;
    throw error;
  }
}

/**
 * Gives a successor its key, if no live job has that. Otherwise it waits for that job, which is marked. Returns the
 * released job.
 */
export async function release(
  mongo: Mongo,
  key: UniqueKey,
  manner: Manner = {},
): Promise<JobDocument | undefined> {
  const take = [
    {
      $set: {
        uniqueKey: '$successorKey',
        nextRunAt: '$successorRunAt',
        updatedAt: '$$NOW',
        wake: Date.now(),
      },
    },
    { $unset: ['successorKey', 'successorRunAt'] },
  ];
  for (let tries = 0; tries < TRIES; tries += 1) {
    try {
      const released = (await change(mongo, waiting(mongo, key), take, manner)) ?? undefined;
      if (released !== undefined) await lookAgain(mongo, key.name, [released['limitKey']], manner);
      return released;
    } catch (error) {
      if (manner.session !== undefined || !isDuplicate(error)) throw error;
    }
    if (await follow(mongo, live(mongo, key), manner)) return undefined;
  }
  throw tooManyTries();
}

/** Releases the successors that wait for the keys of these jobs, and returns how many. */
export async function releaseAfter(mongo: Mongo, jobs: readonly JobRecord[]): Promise<number> {
  const keys = new Map<string, string[]>();
  for (const { name, uniqueKey } of jobs)
    if (uniqueKey !== undefined) keys.set(name, [...(keys.get(name) ?? []), uniqueKey]);
  let count = 0;
  for (const [name, some] of keys) {
    const filter = {
      name,
      successorKey: { $in: some, $type: 'string' as const },
      status: 'pending' as const,
    };
    count += await releaseFound(mongo, filter);
  }
  return count;
}

const MOST_RELEASED = 1_000;

async function releaseFound(mongo: Mongo, filter: Filter<JobDocument>): Promise<number> {
  const options = { projection: { name: 1, successorKey: 1 }, limit: MOST_RELEASED };
  let count = 0;
  for (const { name, successorKey } of await mongo.jobs.find(filter, options).toArray()) {
    const uniqueKey = String(successorKey);
    if ((await release(mongo, { name, uniqueKey })) !== undefined) count += 1;
  }
  return count;
}

/** Tries each successor that waits: there are few of them, and the unique index tells which of them are free. */
export const releaseSuccessors = (mongo: Mongo): Promise<number> =>
  run('release successors', () =>
    releaseFound(mongo, { successorKey: { $type: 'string' }, status: 'pending' }),
  );

/**
 * Stores a job, or changes the one that has its unique key. Each step has its precondition in the write. Between storing
 * a successor and marking its predecessor, that one may end; then the successor is released here.
 */
export async function place(mongo: Mongo, job: NewJob, manner: Manner): Promise<Inserted> {
  const key = keyOf(job);
  const document = toDocument(job, mongo.sharded, mongo.wakes !== undefined);
  for (let tries = 0; tries < TRIES; tries += 1) {
    const known =
      (await changed(mongo, job, key, manner)) ?? (await stored(mongo, job, document, key, manner));
    if (known !== undefined) return known;
    const ahead = await mongo.jobs.findOne(live(mongo, key), manner);
    if (ahead === null) continue;
    if (job.onExisting?.kind === 'reschedule') {
      if (ahead.status === 'processing') return { job: toRecord(ahead), outcome: 'existing' };
      continue;
    }
    // It may be replaced now.
    if (ahead.status === 'pending') continue;
    const successor = successorOf(document, key);
    if (!(await inserted(mongo, successor, manner))) continue;
    const isMarked = await follow(mongo, { ...live(mongo, key), _id: ahead._id }, manner);
    const released = isMarked ? undefined : await release(mongo, key, manner);
    return { job: toRecord(released ?? successor), outcome: 'created' };
  }
  throw tooManyTries();
}

/** The successor that waits is newer than the live job, so it is replaced first. */
async function changed(
  mongo: Mongo,
  job: NewJob,
  key: UniqueKey,
  manner: Manner,
): Promise<Inserted | undefined> {
  const pending = { ...live(mongo, key), $and: [{ status: 'pending' as const }] };
  if (job.onExisting?.kind === 'reschedule') {
    const moved = await change(mongo, pending, rescheduling(job), manner);
    if (moved === null) return undefined;
    await lookAgain(mongo, key.name, [moved['limitKey']], manner);
    return { job: toRecord(moved), outcome: 'rescheduled' };
  }
  const update = replacing(job);
  const keys = await limitKeysOf(mongo, job, key, manner);
  const successor = await change(mongo, waiting(mongo, key), update, manner);
  if (successor !== null) {
    const isAhead = await mongo.jobs.findOne(live(mongo, key), { ...manner, projection: { _id: 1 } });
    const released = isAhead === null ? await release(mongo, key, manner) : undefined;
    await lookAgain(mongo, key.name, keys, manner);
    return { job: toRecord(released ?? successor), outcome: 'replaced' };
  }
  const replaced = await change(mongo, pending, update, manner);
  if (replaced === null) return undefined;
  await lookAgain(mongo, key.name, keys, manner);
  return { job: toRecord(replaced), outcome: 'replaced' };
}

/** The limit keys of what may be replaced: it may have held one of them, and leaves it. */
async function limitKeysOf(
  mongo: Mongo,
  { limitKey }: NewJob,
  key: UniqueKey,
  manner: Manner,
): Promise<readonly unknown[]> {
  if (limitKey === undefined) return [];
  const filter = {
    $or: [waiting(mongo, key), { ...live(mongo, key), $and: [{ status: 'pending' as const }] }],
  };
  return (await mongo.jobs.find(filter, { ...manner, projection: { limitKey: 1 } }).toArray()).map(
    (row): unknown => row['limitKey'],
  );
}

/** Undefined: a live job has the key. */
async function stored(
  mongo: Mongo,
  job: NewJob,
  document: JobDocument,
  key: UniqueKey,
  manner: Manner,
): Promise<Inserted | undefined> {
  // A duplicate key would end the transaction. A key that becomes taken meanwhile makes it conflict.
  const isTaken =
    manner.session !== undefined &&
    (await mongo.jobs.findOne({ $or: [{ _id: document._id }, live(mongo, key)] }, manner)) !== null;
  if (!isTaken && (await inserted(mongo, document, manner)))
    return { job: toRecord(document), outcome: 'created' };
  const same = await mongo.jobs.findOne({ _id: document._id }, manner);
  if (same === null) return undefined;
  return { job: toRecord(same), outcome: job.ownId === true ? 'existing' : 'created' };
}

const keyOf = ({ name, uniqueKey = '' }: NewJob): UniqueKey => ({ name, uniqueKey });

function successorOf({ uniqueKey, ...document }: JobDocument, key: UniqueKey): JobDocument {
  return {
    ...document,
    v: SCHEMA_VERSION,
    successorKey: key.uniqueKey,
    successorRunAt: document['nextRunAt'] as Date,
    nextRunAt: NEVER,
  };
}

const tooManyTries = (): StoreError =>
  new StoreError('enqueue: a unique key was taken and freed again many times in a row; try again.', {
    transient: true,
    outcomeUnknown: true,
  });
