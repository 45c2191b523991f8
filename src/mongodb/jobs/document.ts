import { BSON, ObjectId, type Document } from 'mongodb';
import type { JobRecord, JobStatus } from '../../core/records/job.js';
import { orderOf } from '../../core/records/limit-order.js';
import type { Claimant, NewJob } from '../../store/port.js';
import { wakeFlag } from '../cluster/silent-writers.js';
import { exactText, isOrdered } from '../exact.js';
import { readable } from '../values.js';

/** The version of the document shape below. Pending jobs of a later version are left alone and reported. */
export const SCHEMA_VERSION = 1;

/** Number of parts of a sharded collection; docs/sharding.md explains why. */
const PARTS = 4096;

/** Ids are ObjectIds or strings. Jobs with other ids run as well, but cannot be requested by id. */
export type Key = ObjectId | string;

/** A job as stored. All fields but these may be missing, because other programs write here too. */
export interface JobDocument extends Document {
  _id: Key;
  name: string;
  status: JobStatus;
}

/** An id that looks like an ObjectId is one: hand-written documents have ObjectIds, and `job.id` is their text. */
const toKey = (id: string): Key => (/^[0-9a-f]{24}$/u.test(id) ? new ObjectId(id) : id);

/** Returns the keys that an id given by a user may stand for. */
export const keysFor = (id: string): Key[] => {
  const key = toKey(id);
  return typeof key === 'string' ? [key] : [key, id];
};

/** Returns the text of an id. For an id that is neither an ObjectId nor a string, no other id has the same text. */
export function toText(key: unknown): string {
  if (key instanceof ObjectId) return key.toHexString();
  if (typeof key === 'string') return key;
  return isOrdered(key) ? exactText({ key }) : BSON.EJSON.stringify(key, { relaxed: false });
}

/** FNV-1a: spreads keys evenly, and gives the same result in every process. */
export function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i += 1) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
  return value >>> 0;
}

/**
 * Returns the part of a new job. Jobs with the same name and unique key share a part: the unique index includes the
 * part, so it could not keep them apart otherwise.
 */
export function partOf(name: string, uniqueKey: string | undefined, id: string | undefined): number {
  if (uniqueKey !== undefined) return hash(`${name}\0${uniqueKey}`) % PARTS;
  return id === undefined ? Math.floor(Math.random() * PARTS) : hash(id) % PARTS;
}

/** `sends`: this process also tells idle instances by a message; see silent-writers.ts. */
export function toDocument(job: NewJob, sharded: boolean, sends: boolean): JobDocument {
  return {
    _id: job.id === undefined ? new ObjectId() : toKey(job.id),
    v: SCHEMA_VERSION,
    name: job.name,
    data: job.data,
    status: job.claim === undefined ? job.status : 'processing',
    priority: job.priority,
    nextRunAt: job.nextRunAt,
    lockedAt: null,
    ...(job.claim === undefined ? {} : claimFields(job.claim, job.createdAt)),
    failCount: 0,
    createdAt: job.createdAt,
    updatedAt: job.createdAt,
    ...(sharded ? { part: partOf(job.name, job.uniqueKey, job.ownId === true ? job.id : undefined) } : {}),
    ...(job.uniqueKey === undefined ? {} : { uniqueKey: job.uniqueKey }),
    ...(job.limitKey === undefined ? {} : { limitKey: job.limitKey }),
    ...(job.limitOrder === undefined ? {} : { limitOrder: job.limitOrder }),
    ...(job.retryPolicy === undefined ? {} : { retryPolicy: job.retryPolicy }),
    ...(job.timeoutMs === undefined ? {} : { timeoutMs: job.timeoutMs }),
    ...(job.trace === undefined ? {} : { trace: job.trace }),
    ...(job.startBy === undefined ? {} : { startBy: job.startBy }),
    ...job.past,
    ...(job.onExisting?.kind === 'debounce' ? { debouncedAt: job.createdAt } : {}),
    ...(job.wake === undefined ? {} : { wake: wakeFlag(job.wake, sends) }),
  };
}

/** Uses the producer's estimate of the server's time, because an insert cannot ask for the time itself. */
const claimFields = ({ instance, token, heartbeatMs }: Claimant, now: Date): object => ({
  lockedAt: now,
  lastHeartbeat: now,
  claimedBy: instance.instanceId,
  leaseToken: token,
  heartbeatInterval: heartbeatMs,
});

const isSuccessor = { $eq: [{ $type: '$successorKey' }, 'string'] };
/** Moves a job to the due time that an expression says. Its time limit moves along; a successor stays where it is. */
export const movedTo = (at: unknown): Document => ({
  nextRunAt: { $cond: [isSuccessor, '$nextRunAt', at] },
  successorRunAt: { $cond: [isSuccessor, at, '$$REMOVE'] },
});

/** Moves `startBy` and the place in the order of the key along with the due time. */
export const limitMovedTo = (at: Date, calledAt: number): Document => ({
  limitOrder: {
    $cond: [{ $eq: [{ $type: '$limitOrder' }, 'string'] }, orderOf(at.getTime(), calledAt), '$$REMOVE'],
  },
  startBy: {
    $cond: [
      { $eq: [{ $type: '$startBy' }, 'date'] },
      { $add: ['$startBy', { $subtract: [at, { $ifNull: ['$successorRunAt', '$nextRunAt'] }] }] },
      '$$REMOVE',
    ],
  },
});

/** Fields that a record has under the same name. Null counts as missing. */
const PLAIN = [
  'finishedAt',
  'claimedBy',
  'lastHeartbeat',
  'heartbeatInterval',
  'failReason',
  'failKind',
  'firstFailedAt',
  'uniqueKey',
  'limitKey',
  'limitOrder',
  'followed',
  'successorKey',
  'successorRunAt',
  'startBy',
  'debouncedAt',
  'retryPolicy',
  'timeoutMs',
  'cancelRequestedAt',
  'history',
  'repeatInterval',
  'timezone',
  'startAt',
  'repeatUntil',
  'missed',
  'paused',
  'scheduleId',
  'scheduledFor',
  'scheduleRev',
  'leaseToken',
  'startedToken',
  'trace',
  'part',
] as const;

/** The user's values, for which null is a value. */
const VALUES = ['data', 'result', 'progress', 'logs'] as const;

/** Payloads are returned as they were stored. */
const PAYLOAD = { references: 'plain' } as const;

const date = (value: unknown, otherwise: Date): Date => (value instanceof Date ? value : otherwise);

export function toRecord(document: JobDocument): JobRecord {
  const createdAt = date(
    document['createdAt'],
    document._id instanceof ObjectId ? document._id.getTimestamp() : EPOCH,
  );
  const record: Record<string, unknown> = {
    key: document._id,
    id: toText(document._id),
    name: document.name,
    status: document.status,
    priority: typeof document['priority'] === 'number' ? document['priority'] : 0,
    nextRunAt: date(document['nextRunAt'], createdAt),
    createdAt,
    updatedAt: date(document['updatedAt'], createdAt),
    lockedAt: document['lockedAt'] instanceof Date ? document['lockedAt'] : null,
    failCount: typeof document['failCount'] === 'number' ? document['failCount'] : 0,
  };
  for (const field of PLAIN) {
    const value: unknown = document[field];
    if (value !== undefined && value !== null) record[field] = value;
  }
  if (document['scheduleKey'] !== undefined) record['uniqueKey'] = document['scheduleKey'];
  for (const field of VALUES)
    if (document[field] !== undefined) record[field] = readable(document[field], PAYLOAD);
  return record as unknown as JobRecord;
}

const EPOCH = new Date(0);
