import { BSON, type Collection, type Document, type IndexDescriptionInfo } from 'mongodb';
import { StoreError } from '../core/errors.js';
import { KEEP_MINUTES_MS } from '../store/metrics.js';
import { isMissing, isUnanswered } from './errors.js';

/** The earliest date that there is. */
const EARLIEST = new Date(-8_640_000_000_000_000);

export interface IndexPlan {
  readonly name: string;
  readonly key: Readonly<Record<string, 1 | -1>>;
  readonly partialFilterExpression?: Document;
  readonly unique?: boolean;
  readonly expireAfterSeconds?: number;
  /** Default: that of the collection. */
  readonly collation?: { readonly locale: string };
}

/** The condition that makes the `due` index the only one that serves a peek, and keeps it out of claims (ADR 3). */
export const ANY_DATE: { readonly $gte: Date } = { $gte: EARLIEST };

/**
 * Matches completed, failed and cancelled jobs: in the alphabet these come before pending and processing. A range, since
 * the server sees of a range, and not of a list, that a query for some of them needs nothing outside a partial index.
 */
const FINISHED_ONLY: Document = { status: { $lt: 'pending' } };

/** Jobs without a key cost these indexes nothing. */
const KEYED: Document = { limitKey: { $type: 'string' } };

/**
 * Every index with the queries it serves. A claim and a settlement must change as few of them as possible: of the lists,
 * only `tidemill_by_name` has the status of unfinished jobs, which counts need.
 */
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
    // insert and release: one successor waits for each name and unique key.
    {
      name: 'tidemill_successor',
      key: { ...(sharded ? { part: 1 as const } : {}), name: 1, successorKey: 1 },
      unique: true,
      partialFilterExpression: { successorKey: { $type: 'string' }, ...pending },
    },
    // peek, expire: the pending jobs with a time limit, by that.
    {
      name: 'tidemill_start_by',
      key: { startBy: 1 },
      partialFilterExpression: { startBy: { $type: 'date' }, ...pending },
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
    // claim of a name with limits per key: the first jobs of a key by priority, and its next due time.
    {
      name: 'tidemill_of_key',
      key: { v: 1, name: 1, status: 1, limitKey: 1, priority: -1, nextRunAt: 1, _id: 1 },
      partialFilterExpression: { ...pending, ...KEYED },
    },
    // the same by the order of the jobs of a key.
    {
      name: 'tidemill_order',
      key: { v: 1, name: 1, status: 1, limitKey: 1, limitOrder: 1, nextRunAt: 1, _id: 1 },
      partialFilterExpression: { ...pending, ...KEYED },
    },
    // find without a filter, newest first.
    { name: 'tidemill_created', key: { createdAt: 1, _id: 1 } },
    // find by name and status, newest first, such as the failed jobs of one name; names and counts for stats.
    { name: 'tidemill_by_name', key: { name: 1, status: 1, createdAt: -1, _id: -1 } },
    // find by status, last changed first, such as the failed jobs of all names.
    {
      name: 'tidemill_ended',
      key: { status: 1, updatedAt: 1, _id: 1 },
      partialFilterExpression: FINISHED_ONLY,
    },
    // retention: MongoDB deletes what has expired.
    {
      name: 'tidemill_expiry',
      key: { expiresAt: 1 },
      expireAfterSeconds: 0,
      partialFilterExpression: { expiresAt: { $type: 'date' } },
    },
  ];
}

/** Indexes that only earlier versions use. They are dropped by hand; the doctor reports them. */
const FORMER: readonly string[] = ['tidemill_by_status', 'tidemill_by_age'];

/** How long after the end of its lease, or after its release, a lock is deleted. */
const LOCK_KEPT_SECONDS = 7 * 86_400;

export const auditIndexes: readonly IndexPlan[] = [
  // list: newest first.
  { name: 'tidemill_by_age', key: { at: -1, _id: -1 } },
  // retention.
  { name: 'tidemill_expiry', key: { expiresAt: 1 }, expireAfterSeconds: 0 },
];

export const metricsIndexes: readonly IndexPlan[] = [
  // series: minutes in order; MongoDB deletes them after a day.
  { name: 'tidemill_minutes', key: { minute: 1 }, expireAfterSeconds: KEEP_MINUTES_MS / 1_000 },
];

/** Every index of a task collection with the queries it serves. */
export const taskIndexes: readonly IndexPlan[] = [
  // peek and claim: the head of the queue of each task; also tasks of a later version.
  {
    name: 'tidemill_due',
    key: { v: 1, task: 1, status: 1, scheduledAt: 1, _id: 1 },
    partialFilterExpression: { status: 'pending' },
  },
  // reclaim and stray detection: the work in flight, by holder and age.
  {
    name: 'tidemill_held',
    key: { claimedBy: 1, lockedAt: 1 },
    partialFilterExpression: { status: { $in: ['processing', 'processing_dirty'] } },
  },
  // claim of a task with limits per key: the first tasks of a key, and its next due time.
  {
    name: 'tidemill_of_key',
    key: { v: 1, task: 1, status: 1, limitKey: 1, scheduledAt: 1, _id: 1 },
    partialFilterExpression: { status: 'pending', ...KEYED },
  },
  // find by task and status, by due time; counts; resets of finished ones.
  { name: 'tidemill_by_status', key: { task: 1, status: 1, scheduledAt: -1, _id: -1 } },
];

/**
 * For a source with a collation of its own. Snapshots are compared under the simple collation, under which the index on
 * `_id` finds no ids that are or contain text. The second field is in no document: an index on `_id` alone is not allowed.
 */
export const exactIdIndex: IndexPlan = {
  name: 'tidemill_exact_ids',
  key: { _id: 1, tidemill: 1 },
  collation: { locale: 'simple' },
};

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
  // keys of names with limits per key: those that are offered to claims, those that are blocked.
  {
    name: 'tidemill_keys',
    key: { name: 1, full: 1, at: 1, from: 1 },
    partialFilterExpression: { kind: 'key' },
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

/** Returns undefined if the collection does not exist. */
const indexesOf = (collection: Collection): Promise<IndexDescriptionInfo[] | undefined> =>
  collection.indexes().catch((error: unknown) => {
    if (isMissing(error)) return undefined;
    throw error;
  });

/** Returns the names of indexes on the collection of jobs that only earlier versions need. */
export async function formerIndexes(jobs: Collection): Promise<readonly string[]> {
  const existing = new Set((await indexesOf(jobs))?.map(({ name }) => name));
  return FORMER.filter((name) => existing.has(name));
}

/** Returns the indexes that are missing or different, or undefined if the collection does not exist. */
export async function faultyIndexes(
  collection: Collection,
  plans: readonly IndexPlan[],
): Promise<readonly IndexFault[] | undefined> {
  const existing = await indexesOf(collection);
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
