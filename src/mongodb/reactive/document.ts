import { BSON, Long, ObjectId, type Document } from 'mongodb';
import type { TaskRecord, TaskStatus } from '../../core/task.js';

/**
 * The version of the shape below. Tasks of a later one are left alone, changes of their documents included: whoever raises
 * it must ask for a reconciliation when it comes to lead.
 */
export const TASK_VERSION = 1;
/** In a query: of this version. */
export const OURS: { readonly v: typeof TASK_VERSION } = { v: TASK_VERSION };
/** In a pipeline that writes: of a later version. */
export const LATER: Document = { $gt: ['$v', TASK_VERSION] };

/** `_id` of a task: what makes it the one task of this name for that document. */
export interface TaskKey {
  readonly task: string;
  readonly id: unknown;
}

export const keyOf = (task: string, id: unknown): TaskKey => ({ task, id });

/** A text that no other id has; ids may be of any type. */
export const textOf = (id: unknown): string =>
  id instanceof ObjectId
    ? `{"id":{"$oid":"${id.toHexString()}"}}`
    : BSON.EJSON.stringify({ id }, { relaxed: false });

export const fromText = (text: string): unknown =>
  (BSON.EJSON.parse(text, { relaxed: false }) as { id: unknown }).id;

/** Read with `promoteLongs: false`, so that a 64-bit id comes back as it went in. */
export const EXACT = { promoteLongs: false, promoteBuffers: false } as const;

/** What users see of a value that was read exactly: longs as numbers where a number can hold them. */
function readable(value: unknown): unknown {
  if (value instanceof Long) {
    const number = value.toNumber();
    return Number.isSafeInteger(number) ? number : value;
  }
  if (Array.isArray(value)) return value.map(readable);
  if (typeof value !== 'object' || value === null || Object.getPrototypeOf(value) !== Object.prototype)
    return value;
  const copy: Record<string, unknown> = {};
  for (const [key, item] of Object.entries(value)) {
    Object.defineProperty(copy, key, {
      value: readable(item),
      enumerable: true,
      configurable: true,
      writable: true,
    });
  }
  return copy;
}

const FIELDS = [
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

/** A stored task, read exactly, as the engine and users see it. */
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
