import { BSON, Long, ObjectId, type Document } from 'mongodb';
import type { TaskRecord, TaskStatus } from '../../core/records/task.js';
import { setOwn } from '../../core/set-own.js';
import { EXACT, exactText, OrderedDocument, readExact } from '../exact.js';
import { isBsonRegExp, regExpOf } from '../values.js';

/**
 * The version of the document shape below. Tasks of a later version are left alone, and changes of their documents are
 * ignored: a release that raises it must request a reconciliation when it becomes the leader.
 */
export const TASK_VERSION = 1;
/** In a query: of this version. */
export const OURS: { readonly v: typeof TASK_VERSION } = { v: TASK_VERSION };
/** In a pipeline that writes: of a later version. */
export const LATER: Document = { $gt: ['$v', TASK_VERSION] };

/** The `_id` of a task. It makes the task the only one of its name for a document. */
export interface TaskKey {
  readonly task: string;
  readonly id: unknown;
}

export const keyOf = (task: string, id: unknown): TaskKey => ({ task, id });

/** Returns a text that no other id has; ids may be of any type. */
export const textOf = (id: unknown): string =>
  id instanceof ObjectId ? `{"id":{"$oid":"${id.toHexString()}"}}` : exactText({ id });

export function fromText(text: string): unknown {
  const { id, bytes } = BSON.EJSON.parse(text, { relaxed: false }) as { id?: unknown; bytes?: unknown };
  if (typeof bytes !== 'string') return id;
  return (readExact(Buffer.from(bytes, 'base64'), EXACT, ['id']) as { id: unknown }).id;
}

/**
 * Converts a value that was read exactly to what users see: longs become numbers if a number can hold them. A
 * subdocument whose order no object can keep stays a Map, so that it still finds its document.
 */
function readable(value: unknown): unknown {
  if (value instanceof Long) {
    const number = value.toNumber();
    return Number.isSafeInteger(number) ? number : value;
  }
  if (Array.isArray(value)) return value.map(readable);
  if (value instanceof OrderedDocument)
    return new OrderedDocument([...value].map(([key, item]) => [key, readable(item)]));
  if (typeof value !== 'object' || value === null) return value;
  if (isBsonRegExp(value)) return regExpOf(value);
  if (Object.getPrototypeOf(value) !== Object.prototype) return value;
  const copy: Record<string, unknown> = {};
  for (const [key, item] of Object.entries(value)) setOwn(copy, key, readable(item));
  return copy;
}

const FIELDS = [
  'limitKey',
  'firstErrorAt',
  'lastError',
  'lastSuccess',
  'lastFinalizedAt',
  'executionHistory',
  'claimedBy',
  'leaseToken',
  'startedToken',
  'failKind',
  'trace',
] as const;

const date = (value: unknown, otherwise: Date): Date => (value instanceof Date ? value : otherwise);

/** Converts a stored task, read exactly, to the record that the engine and users see. */
export function toRecord(row: Document): TaskRecord {
  const key = row['_id'] as TaskKey;
  const createdAt = date(row['createdAt'], new Date(0));
  const scheduledAt = date(row['scheduledAt'], createdAt);
  const record: Record<string, unknown> = {
    key,
    id: `${key.task}/${textOf(key.id)}`,
    name: key.task,
    _id: readable(key),
    task: key.task,
    sourceDocId: readable(key.id),
    status: row['status'] as TaskStatus,
    scheduledAt,
    initialScheduledAt: date(row['initialScheduledAt'], scheduledAt),
    attempts: Number(row['attempts'] ?? 0),
    createdAt,
    updatedAt: date(row['updatedAt'], createdAt),
    lockedAt: row['lockedAt'] instanceof Date ? row['lockedAt'] : null,
  };
  for (const field of FIELDS) {
    const value: unknown = row[field];
    if (value !== undefined && value !== null) record[field] = readable(value);
  }
  if (row['lastObservedValues'] !== undefined)
    record['lastObservedValues'] = readable(row['lastObservedValues']);
  if (typeof row['matches'] === 'boolean') record['matches'] = row['matches'];
  return record as unknown as TaskRecord;
}
