/** Reads and writes of a task between claim and settlement. */
import type { Document } from 'mongodb';
import type { TaskRecord } from '../../core/records/task.js';
import type { Instance, Lease, StrayQuery } from '../../store/port.js';
import type { Source } from '../../store/reactive/reactive.js';
import { run, tokensOf } from '../context.js';
import { findExact } from '../exact.js';
import { RUNNING } from './claim.js';
import { textOf, toRecord, type TaskKey } from './document.js';
import { nameOfSource, type MongodbSources, type SourceOf } from './sources.js';

/** Deciding what becomes of a task needs no snapshot. */
const WITHOUT_SNAPSHOT = { lastObservedValues: 0 } as const;

function bySource(
  leases: readonly Lease[],
  sourceOf: SourceOf,
): Map<string, { source: Source; keys: TaskKey[] }> {
  const groups = new Map<string, { source: Source; keys: TaskKey[] }>();
  for (const { key } of leases) {
    const source = sourceOf((key as TaskKey).task);
    const group = groups.get(nameOfSource(source)) ?? { source, keys: [] };
    group.keys.push(key as TaskKey);
    groups.set(nameOfSource(source), group);
  }
  return groups;
}

export async function held(
  sources: MongodbSources,
  leases: readonly Lease[],
  sourceOf: SourceOf,
): Promise<readonly (TaskRecord | undefined)[]> {
  const found = await run('read held tasks', () =>
    Promise.all(
      [...bySource(leases, sourceOf).values()].map(({ source, keys }) => {
        const filter = { _id: { $in: keys as never[] }, status: { $in: RUNNING } };
        return findExact(sources.place(source).tasks, filter).toArray();
      }),
    ),
  );
  const byKey = new Map(found.flat().map((row) => [textOf(row['_id']), row]));
  return leases.map((lease) => {
    const row = byKey.get(textOf(lease.key));
    return row !== undefined && row['leaseToken'] === lease.token ? toRecord(row) : undefined;
  });
}

export async function settledUnder(
  sources: MongodbSources,
  lease: Lease,
  sourceOf: SourceOf,
): Promise<boolean> {
  const { tasks } = sources.place(sourceOf((lease.key as TaskKey).task));
  const row = await run('read a settled task', () =>
    tasks.findOne({ _id: lease.key as never }, { projection: { leaseToken: 1, status: 1 } }),
  );
  return row === null || (!RUNNING.includes(row['status'] as string) && row['leaseToken'] === lease.token);
}

export async function begin(
  sources: MongodbSources,
  lease: Lease,
  sourceOf: SourceOf,
): Promise<'begun' | 'lost'> {
  const { tasks } = sources.place(sourceOf((lease.key as TaskKey).task));
  const { matchedCount } = await run('begin a task', () =>
    tasks.updateOne(
      { _id: lease.key as never, status: { $in: RUNNING }, leaseToken: lease.token },
      { $set: { startedToken: lease.token } },
    ),
  );
  return matchedCount === 1 ? 'begun' : 'lost';
}

async function everywhere(
  sources: MongodbSources,
  all: readonly Source[],
  filter: Document,
  limit: number,
): Promise<readonly TaskRecord[]> {
  const options = { hint: 'tidemill_held', limit, batchSize: limit + 1, projection: WITHOUT_SNAPSHOT };
  const found: TaskRecord[] = [];
  for (const source of all) {
    const rows = await findExact(sources.place(source).tasks, filter, options).toArray();
    found.push(...rows.map(toRecord));
  }
  return found.slice(0, limit);
}

export async function heldBy(
  sources: MongodbSources,
  all: readonly Source[],
  instance: Instance,
  limit: number,
): Promise<readonly TaskRecord[]> {
  const filter = {
    claimedBy: instance.instanceId,
    status: { $in: RUNNING },
    leaseToken: tokensOf(instance.life),
  };
  return run('read a dead instance', () => everywhere(sources, all, filter, limit));
}

/** Finds tasks held under no valid lease: a claim that landed after its owner's death. */
export async function strays(
  sources: MongodbSources,
  all: readonly Source[],
  { lives, olderThanMs, limit }: StrayQuery,
): Promise<readonly TaskRecord[]> {
  const known = new RegExp(`^(?:${lives.map(({ life }) => life).join('|') || '-'})\\.`, 'u');
  const filter = {
    status: { $in: RUNNING },
    leaseToken: { $not: known },
    $expr: { $lt: ['$lockedAt', { $subtract: ['$$NOW', olderThanMs] }] },
  };
  return run('look for stray tasks', () => everywhere(sources, all, filter, limit));
}
