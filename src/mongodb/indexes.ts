import { BSON, type Collection, type Document } from 'mongodb';
import { StoreError } from '../core/errors.js';
import { isMissing, isUnanswered } from './errors.js';

/** The earliest date that there is. */
const EARLIEST = new Date(-8_640_000_000_000_000);

export interface IndexPlan {
  readonly name: string;
  readonly key: Readonly<Record<string, 1 | -1>>;
  readonly partialFilterExpression?: Document;
  readonly unique?: boolean;
  readonly expireAfterSeconds?: number;
}

/** The condition that makes the `due` index the only one that serves a peek, and keeps it out of claims (ADR 3). */
export const ANY_DATE: { readonly $gte: Date } = { $gte: EARLIEST };

/** Every index with the queries it serves. Finished one-off jobs are in the last four only. */
export function jobIndexes(sharded: boolean): readonly IndexPlan[] {
  const pending = { status: 'pending' } as const;
  return [
    // claim: the head of the queue of each name; also jobs without a version (hand-written) and of a later version.
    {
      name: 'tidemill_claim',
      key: { v: 1, name: 1, status: 1, priority: -1, nextRunAt: 1, _id: 1 },
      partialFilterExpression: pending,
    },
    // peek, depths: the earliest due times of each name; find pending jobs by nextRunAt.
    {
      name: 'tidemill_due',
      key: { name: 1, status: 1, nextRunAt: 1, _id: 1, v: 1 },
      partialFilterExpression: { ...pending, nextRunAt: ANY_DATE },
    },
    // insert and retry: one live job per name and unique key.
    {
      name: 'tidemill_unique',
      key: { ...(sharded ? { part: 1 as const } : {}), name: 1, uniqueKey: 1 },
      unique: true,
      partialFilterExpression: { uniqueKey: { $type: 'string' }, status: { $in: ['pending', 'processing'] } },
    },
    // heartbeat, reclaim, strays, handing back: the work in flight, by holder and age.
    {
      name: 'tidemill_held',
      key: { claimedBy: 1, lockedAt: 1 },
      partialFilterExpression: { status: 'processing' },
    },
    // schedules: list and look up recurring jobs.
    {
      name: 'tidemill_schedules',
      key: { name: 1, scheduleKey: 1 },
      partialFilterExpression: { repeatInterval: { $type: 'string' } },
    },
    // find by name and status, newest first, such as the failed jobs of one name; names and counts for stats.
    { name: 'tidemill_by_name', key: { name: 1, status: 1, createdAt: -1, _id: -1 } },
    // find by status, last changed first, such as the failed jobs of all names.
    { name: 'tidemill_by_status', key: { status: 1, updatedAt: -1, _id: -1 } },
    // find without a filter, newest first.
    { name: 'tidemill_by_age', key: { createdAt: -1, _id: -1 } },
    // retention: MongoDB deletes what has expired.
    {
      name: 'tidemill_expiry',
      key: { expiresAt: 1 },
      expireAfterSeconds: 0,
      partialFilterExpression: { expiresAt: { $type: 'date' } },
    },
  ];
}

/** How long after the end of its lease, or after its release, a lock is deleted. */
const LOCK_KEPT_SECONDS = 7 * 86_400;

/** Coordination. There may be very many locks, so no other query may have to read past them. */
export const globalsIndexes: readonly IndexPlan[] = [
  // instances, pauses, tasks: every query by kind.
  { name: 'tidemill_kind', key: { kind: 1 } },
  // locks: delete old ones. The lease of a held lock ends in the future, so a held lock is never deleted.
  {
    name: 'tidemill_locks',
    key: { leaseUntil: 1 },
    expireAfterSeconds: LOCK_KEPT_SECONDS,
    partialFilterExpression: { kind: 'lock' },
  },
  // one live registration per instance id.
  {
    name: 'tidemill_instance',
    key: { instanceId: 1 },
    unique: true,
    partialFilterExpression: { kind: 'instance', dead: false },
  },
];

/**
 * Creates the indexes. On a large collection that may take longer than a connection waits for a response. The server
 * continues to build them, and the next call waits for the same indexes.
 */
export async function createIndexes(collection: Collection, plans: readonly IndexPlan[]): Promise<void> {
  const indexes = plans.map(({ key, ...options }) => ({
    key: key as unknown as Record<string, 1>,
    ...options,
  }));
  for (;;) {
    try {
      await collection.createIndexes(indexes);
      return;
    } catch (error) {
      if (!isUnanswered(error)) throw error;
    }
  }
}

/** The properties that define an index. */
const DEFINING = ['key', 'unique', 'partialFilterExpression', 'expireAfterSeconds'] as const;

/** An index that is missing or has another definition. */
export interface IndexFault {
  readonly plan: IndexPlan;
  readonly kind: 'missing' | 'different';
}

/** Returns the indexes that are missing or different, or undefined if the collection does not exist. */
export async function faultyIndexes(
  collection: Collection,
  plans: readonly IndexPlan[],
): Promise<readonly IndexFault[] | undefined> {
  const existing = await collection.indexes().catch((error: unknown) => {
    if (isMissing(error)) return undefined;
    throw error;
  });
  return (
    existing &&
    plans.flatMap((plan): IndexFault[] => {
      const found = existing.find((index) => index.name === plan.name);
      if (found === undefined) return [{ plan, kind: 'missing' }];
      const same = DEFINING.every(
        (part) => BSON.EJSON.stringify([found[part]]) === BSON.EJSON.stringify([plan[part]]),
      );
      return same ? [] : [{ plan, kind: 'different' }];
    })
  );
}

export const faultText = (collection: Collection, { plan, kind }: IndexFault): string =>
  `${collection.collectionName}: index ${plan.name} is ${kind === 'missing' ? 'missing' : 'not as required'}`;

/** Returns the indexes that are missing or different, as text; all of them if the collection does not exist. */
export async function indexFaults(
  collection: Collection,
  plans: readonly IndexPlan[],
): Promise<readonly string[]> {
  const all = plans.map((plan): IndexFault => ({ plan, kind: 'missing' }));
  const faults = (await faultyIndexes(collection, plans)) ?? all;
  return faults.map((fault) => faultText(collection, fault));
}

/** Returns the shell commands that create the indexes, for operators who do not let the application create them. */
export function indexScript(collection: string, plans: readonly IndexPlan[]): string {
  return plans
    .map(({ key, ...options }) => {
      const text = JSON.stringify(options, (_name, value: unknown) =>
        value === EARLIEST.toISOString() ? { $date: { $numberLong: String(EARLIEST.getTime()) } } : value,
      );
      return `db.getCollection(${JSON.stringify(collection)}).createIndex(${JSON.stringify(key)}, EJSON.parse(${JSON.stringify(text)}));`;
    })
    .join('\n');
}

export function missingIndexError(faults: readonly string[]): StoreError {
  return new StoreError(
    `MongoDB lacks indexes that Tidemill needs (${faults.join('; ')}). ` +
      'Create them with the commands of `store.indexScript()` (reactive tasks: with `sources`), or leave `createIndexes` on.',
  );
}
