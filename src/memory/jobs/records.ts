import type { JobRecord } from '../../core/records/job.js';
import { orderOf } from '../../core/records/limit-order.js';
import { setOwn } from '../../core/set-own.js';
import type { Claimant } from '../../store/port.js';
import type { KeyedKind } from '../limits/keys.js';

/** A record that the store may modify. What leaves the store is always a copy. */
export type Row = { -readonly [K in keyof JobRecord]: JobRecord[K] } & {
  expiresAt?: Date;
  scheduleKey?: string;
  serial: number;
};

/** A deep copy, so that neither the caller nor the store sees later changes of the other. */
export function copyOf<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value;
  if (value instanceof Date) return new Date(value.getTime()) as T;
  if (Array.isArray(value)) return value.map(copyOf) as T;
  const copy: Record<string, unknown> = {};
  for (const [key, item] of Object.entries(value)) setOwn(copy, key, copyOf(item));
  return copy as T;
}

/** The record of a row, for users and the engine: a copy without the store's own fields. */
export function toRecord(row: Row): JobRecord {
  const record: Record<string, unknown> = { ...row };
  if (row.scheduleKey !== undefined) record['uniqueKey'] = row.scheduleKey;
  delete record['expiresAt'];
  delete record['scheduleKey'];
  delete record['serial'];
  return copyOf(record) as unknown as JobRecord;
}

/** Fields that are removed when they are set to null or undefined. Payload fields may be null. */
const OPTIONAL = [
  'failReason',
  'failKind',
  'firstFailedAt',
  'finishedAt',
  'expiresAt',
  'cancelRequestedAt',
  'leaseToken',
  'claimedBy',
  'lastHeartbeat',
  'heartbeatInterval',
  'startedToken',
  'uniqueKey',
  'limitKey',
  'limitOrder',
  'retryPolicy',
  'timeoutMs',
  'trace',
  'startBy',
  'debouncedAt',
  'followed',
  'successorKey',
  'successorRunAt',
] as const;

export function assign(row: Row, fields: object): void {
  Object.assign(row, copyOf(fields));
  for (const field of OPTIONAL) if ((row[field] ?? null) === null) Reflect.deleteProperty(row, field);
}

/** The fields that a claim writes besides the status. */
export const claimFields = ({ instance, token, heartbeatMs }: Claimant, now: Date): object => ({
  claimedBy: instance.instanceId,
  leaseToken: token,
  heartbeatInterval: heartbeatMs,
  lockedAt: now,
  lastHeartbeat: now,
  updatedAt: now,
});

export const byTurn = (a: Row, b: Row): number =>
  b.priority - a.priority || a.nextRunAt.getTime() - b.nextRunAt.getTime() || a.serial - b.serial;

/**
 * Moves a job's due time. Its `startBy` and its place in the order of its key move along, and a successor that waits
 * stays where it is.
 */
export function movedTo(row: Row, at: Date, calledAt: number): Partial<Row> {
  const byMs = at.getTime() - (row.successorRunAt ?? row.nextRunAt).getTime();
  return {
    ...(row.successorRunAt === undefined ? { nextRunAt: at } : { successorRunAt: at }),
    ...(row.startBy === undefined ? {} : { startBy: new Date(row.startBy.getTime() + byMs) }),
    ...(row.limitOrder === undefined ? {} : { limitOrder: orderOf(at.getTime(), calledAt) }),
  };
}

const byOrder = (a: Row, b: Row): number => {
  const [first, second] = [a.limitOrder ?? '', b.limitOrder ?? ''];
  if (first !== second) return first < second ? -1 : 1;
  return a.serial - b.serial;
};

/** Jobs as limits of keys see them. */
export const KEYED_JOBS: KeyedKind<Row> = {
  read: ({ id, nextRunAt, limitOrder }) => ({
    id,
    dueAt: nextRunAt,
    ...(limitOrder === undefined ? {} : { limitOrder }),
  }),
  byTurn,
  byOrder,
};
