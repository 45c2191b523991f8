import type { Document } from 'mongodb';
import { byTaskOrder } from '../../core/records/claim-order.js';
import type { TaskRecord } from '../../core/records/task.js';
import { fairShare } from '../../core/batches/fair-share.js';
import {
  isPausedIn,
  type ClaimAnswer,
  type ClaimRequest,
  type ClusterBrief,
  type DueSummary,
  type Instance,
  type NameLimit,
} from '../../store/port.js';
import type { Source, TaskPlan } from '../../store/reactive/reactive.js';
import { literal, run } from '../context.js';
import { hash } from '../jobs/document.js';
import { isBadValue } from '../errors.js';
import { aggregateExact, bytesOf, findExact } from '../exact.js';
import { sliceOf, windowOf, type Skips, type Windows } from '../slices.js';
import { readTaskCluster, taskClusterPipeline } from '../jobs/claim/peek.js';
import {
  claimEachKeyed,
  keyedOf,
  together,
  withoutKeyed,
  type KeyedAnswer,
  type Turns,
} from '../limits/keys/claim.js';
import type { ClaimableWork, TakeRules } from '../limits/keys/work.js';
import { inTime } from '../jobs/claim/take.js';
import { keyedTasks } from './keyed.js';
import { OURS, TASK_VERSION, textOf, toRecord, type TaskKey } from './document.js';
import { queryOf } from './plan/filter.js';
import { bisect } from './plan/bisect.js';
import { lookUp, nameOfSource, type Place, type MongodbSources } from './sources.js';

export const RUNNING: readonly string[] = ['processing', 'processing_dirty'];

type Plans = ReadonlyMap<string, TaskPlan>;

/** Groups tasks by the collection they live in. */
function bySource(plans: Plans, tasks: readonly string[]): Map<string, { source: Source; tasks: string[] }> {
  const groups = new Map<string, { source: Source; tasks: string[] }>();
  for (const task of tasks) {
    const source = plans.get(task)?.source;
    if (source === undefined) continue;
    const key = nameOfSource(source);
    const group = groups.get(key) ?? { source, tasks: [] };
    group.tasks.push(task);
    groups.set(key, group);
  }
  return groups;
}

type Pipelines = readonly { readonly place: Place; readonly pipeline: Document[] }[];

/** Like `unite`. If a task collection was dropped, recreates its indexes and tries again. */
async function acrossSources(
  sources: MongodbSources,
  pipelines: Pipelines,
  tasks: readonly string[],
): Promise<Document[]> {
  const brief = taskClusterPipeline(tasks);
  try {
    return await unite(sources, pipelines, brief);
  } catch (error) {
    if (!isBadValue(error)) throw error;
    for (const place of new Set(pipelines.map((one) => one.place))) await sources.mend(place);
    return unite(sources, pipelines, brief);
  }
}

/** Runs one pipeline per source, in as few commands as there are databases. What holds tasks up comes with them. */
async function unite(sources: MongodbSources, pipelines: Pipelines, brief: Document[]): Promise<Document[]> {
  const { globals } = sources.mongo;
  const byDatabase = new Map<string, { place: Place; pipeline: Document[] }[]>();
  for (const one of pipelines) {
    const name = one.place.db.databaseName;
    byDatabase.set(name, [...(byDatabase.get(name) ?? []), one]);
  }
  const ours = byDatabase.get(globals.dbName);
  const commands = [...byDatabase.values()].map(async (group) => {
    const [first, ...rest] = group as [(typeof group)[number], ...typeof group];
    const unions = rest.map(({ place, pipeline }) => ({
      $unionWith: { coll: place.tasks.collectionName, pipeline },
    }));
    const cluster = group === ours ? [{ $unionWith: { coll: globals.collectionName, pipeline: brief } }] : [];
    const pipeline = [...first.pipeline, ...unions, ...cluster];
    return aggregateExact(first.place.tasks, pipeline, { hint: 'tidemill_due' }, ['keys']).toArray();
  });
  if (ours === undefined) commands.push(globals.aggregate(brief).toArray());
  return (await Promise.all(commands)).flat();
}

/** One index key per task: its earliest due time. */
export const duePipeline = (tasks: readonly string[]): Document[] => [
  { $match: { ...OURS, task: { $in: tasks }, status: 'pending' } },
  { $sort: { task: 1, status: 1, scheduledAt: 1 } },
  { $group: { _id: '$task', at: { $first: '$scheduledAt' } } },
  { $project: { _id: 0, kind: 'due', task: '$_id', at: 1 } },
];

/** One index key: is there pending work of a later version? */
export const foreignPipeline: Document[] = [
  { $match: { v: { $gt: TASK_VERSION }, status: 'pending' } },
  { $limit: 1 },
  { $project: { _id: 0, kind: 'foreign' } },
];

export async function look(
  sources: MongodbSources,
  plans: Plans,
  tasks: readonly string[],
): Promise<DueSummary> {
  const pipelines = [...bySource(plans, tasks).values()].flatMap((group) => {
    const place = sources.place(group.source);
    return [duePipeline(group.tasks), foreignPipeline].map((pipeline) => ({ place, pipeline }));
  });
  const rows = await run('look for tasks', () => acrossSources(sources, pipelines, [...plans.keys()]));
  const due = rows.filter((row) => row['kind'] === 'due');
  return {
    cluster: readTaskCluster(rows),
    nextDue: new Map(due.map((row) => [row['task'] as string, row['at'] as Date])),
    foreign: rows.some((row) => row['kind'] === 'foreign'),
  };
}

/** The head of one task's queue, or what is behind the first `skip` of it, in order. */
export const queueHead = (task: string, count: number, skip = 0): Document[] => [
  {
    $match: {
      ...OURS,
      task: { $eq: task },
      status: 'pending',
      $expr: { $lte: ['$scheduledAt', '$$NOW'] },
    },
  },
  { $sort: { scheduledAt: 1, _id: 1 } },
  ...(skip === 0 ? [] : [{ $skip: skip }]),
  { $limit: count },
];

/** The keys at the head of one task's queue, in order, as one row. */
export const headPipeline = (task: string, count: number, skip = 0): Document[] => [
  ...queueHead(task, count, skip),
  { $group: { _id: literal(task), keys: { $push: '$_id' } } },
];

interface Candidates {
  readonly keys: ReadonlyMap<string, readonly TaskKey[]>;
  readonly more: boolean;
  readonly cluster: ClusterBrief;
}

/** Reads the heads, and the cluster. If all windows are behind the ends of their queues, reads from the beginnings. */
async function readHeads(
  sources: MongodbSources,
  plans: Plans,
  windows: Windows,
  { limits }: ClaimRequest,
): Promise<{ rows: Document[]; skips: Skips }> {
  const groups = [...bySource(plans, [...limits.keys()]).values()];
  const read = (skips: Skips): Promise<Document[]> => {
    const pipelines = groups.flatMap((group) => {
      const place = sources.place(group.source);
      const headOf = (task: string): Document[] =>
        headPipeline(task, windowOf(limits.get(task) as NameLimit), skips.get(task));
      return group.tasks.map((task) => ({ place, pipeline: headOf(task) }));
    });
    return acrossSources(sources, pipelines, [...limits.keys()]);
  };
  const skips = windows.choose(limits);
  const rows = await read(skips);
  const found = new Set(rows.filter((row) => row['keys'] !== undefined).map((row) => row['_id'] as string));
  if (!windows.missed(skips, found)) return { rows, skips };
  return { rows: await read(new Map()), skips: new Map() };
}

async function candidates(
  sources: MongodbSources,
  plans: Plans,
  windows: Windows,
  request: ClaimRequest,
): Promise<Candidates> {
  const limitOf = (task: string): NameLimit => request.limits.get(task) as NameLimit;
  const { rows, skips } = await readHeads(sources, plans, windows, request);
  const cluster = readTaskCluster(rows);
  const heads = rows.filter(
    (row) => row['keys'] !== undefined && !isPausedIn(cluster.paused, row['_id'] as string),
  );
  const picked = new Map(
    heads.map((row) => {
      const task = row['_id'] as string;
      return [task, sliceOf(row['keys'] as TaskKey[], limitOf(task), ({ id }) => hash(textOf(id)))];
    }),
  );
  const shares = fairShare(new Map([...picked].map(([task, keys]) => [task, keys.length])), request.total);
  const keys = new Map([...picked].map(([task, offered]) => [task, offered.slice(0, shares.get(task) ?? 0)]));
  const more = heads.some((row) => {
    const task = row['_id'] as string;
    const seen = (row['keys'] as TaskKey[]).length;
    return (skips.get(task) ?? 0) > 0 || seen > (shares.get(task) ?? 0) || seen >= windowOf(limitOf(task));
  });
  return { keys, more, cluster };
}

/**
 * Every precondition is in the write. An attempt counts from here; the settlement takes it back if it must not count.
 */
async function take(
  place: Place,
  keys: readonly TaskKey[],
  request: ClaimRequest,
  { also = inTime(request, '$task'), ...limit }: Partial<TakeRules> = {},
): Promise<number> {
  const due = { $lte: ['$scheduledAt', '$$NOW'] };
  const $expr = also === undefined ? due : { $and: [due, also] };
  const { matchedCount } = await place.tasks.updateMany(
    { _id: { $in: keys as never[] }, ...OURS, status: 'pending', $expr },
    [
      {
        $set: {
          status: 'processing',
          claimedBy: literal(request.instance.instanceId),
          leaseToken: literal(request.token),
          lockedAt: '$$NOW',
          attempts: { $add: [{ $ifNull: ['$attempts', 0] }, 1] },
        },
      },
      { $unset: ['waitingSince', 'deferredUntil', 'touched', 'overtaken'] },
    ],
    limit,
  );
  return matchedCount;
}

/** Reads what the token holds, and whether each document exists and matches. */
export function heldPipeline(
  place: Place,
  plan: TaskPlan,
  keys: readonly TaskKey[],
  token: string,
  query: Document,
): Document[] {
  return [
    { $match: { _id: { $in: keys }, leaseToken: token, status: { $in: RUNNING } } },
    lookUp(place, query),
    { $set: { matches: { $gt: [{ $size: '$found' }, 0] } } },
    { $unset: 'found' },
  ];
}

/** Reads the claimed tasks. A document on which the filter fails does not match, and does not hold up the rest. */
async function readTaken(
  place: Place,
  plan: TaskPlan,
  keys: readonly TaskKey[],
  token: string,
): Promise<TaskRecord[]> {
  const records: TaskRecord[] = [];
  const choked = await bisect(keys, async (some) => {
    records.push(...(await readMatching(place, plan, some, token)));
  });
  if (choked.length === 0) return records;
  const odd = choked.map(({ item }) => item);
  const filter = { _id: { $in: odd as never[] }, leaseToken: token, status: { $in: RUNNING } };
  const rows = await findExact(place.tasks, filter).toArray();
  return [...records, ...rows.map((row) => toRecord({ ...row, matches: false }))];
}

async function readMatching(
  place: Place,
  plan: TaskPlan,
  keys: readonly TaskKey[],
  token: string,
): Promise<TaskRecord[]> {
  if (place.collation === undefined) {
    const pipeline = heldPipeline(place, plan, keys, token, queryOf(plan));
    const rows = await aggregateExact(place.tasks, pipeline, { batchSize: keys.length + 1 }).toArray();
    return rows.map((row) => ({ ...toRecord(row), ...bytesOf(row) }));
  }
  // If the source has a collation, its index finds string ids only under that collation, which a `$lookup` cannot use.
  const held = { _id: { $in: keys as never[] }, leaseToken: token, status: { $in: RUNNING } };
  const rows = await findExact(place.tasks, held, { batchSize: keys.length + 1 }).toArray();
  const idOf = (row: Document): unknown => (row['_id'] as TaskKey).id;
  const matching = await findExact(
    place.source,
    { $and: [{ _id: { $in: rows.map(idOf) as never[] } }, queryOf(plan)] },
    { projection: { _id: 1 }, collation: place.collation as never },
  ).toArray();
  const match = new Set(matching.map((row) => textOf(row['_id'])));
  return rows.map((row) => ({
    ...toRecord({ ...row, matches: match.has(textOf(idOf(row))) }),
    ...bytesOf(row),
  }));
}

/** Tasks of names whose keys do not matter. */
async function claimPlain(
  sources: MongodbSources,
  plans: Plans,
  windows: Windows,
  request: ClaimRequest,
): Promise<KeyedAnswer<TaskRecord>> {
  const { keys, more, cluster } = await candidates(sources, plans, windows, request);
  const groups = [...bySource(plans, [...keys.keys()]).values()];
  const taken = await Promise.allSettled(
    groups.map(async ({ source, tasks }) => {
      const place = await sources.open(source);
      const all = tasks.flatMap((task) => keys.get(task) ?? []);
      if (all.length === 0 || (await take(place, all, request)) === 0) return [];
      const reads = tasks.map((task) =>
        readTaken(place, plans.get(task) as TaskPlan, keys.get(task) ?? [], request.token),
      );
      return (await Promise.all(reads)).flat();
    }),
  );
  // All writes have ended by now. If one failed, the caller can reliably read what the token holds.
  const jobs = taken.flatMap((one) => {
    if (one.status === 'rejected') throw one.reason;
    return one.value;
  });
  for (const [task, list] of keys) {
    const took = jobs.filter(({ name }) => name === task).length;
    windows.learn(task, request.limits.get(task) as NameLimit, list.length, took);
  }
  const asked = [...keys.values()].reduce((sum, list) => sum + list.length, 0);
  return { rows: jobs, answer: { asked, more, cluster } };
}

/** The tasks of a name whose keys have limits. */
function claimable(place: Place, plan: TaskPlan, { limits }: ClaimRequest): ClaimableWork<TaskRecord> {
  return {
    ...keyedTasks(place.tasks, plan.task, [...limits.keys()]),
    take: async (ids, request, rules) => {
      const keys = ids as readonly TaskKey[];
      if ((await take(place, keys, request, rules)) === 0) return [];
      const rows = await readTaken(place, plan, keys, request.token);
      return rows.map((row) => ({ id: row.key, lockedAt: row.lockedAt as Date, row }));
    },
  };
}

/** What claims remember from one to the next. */
export interface ClaimMemory {
  readonly windows: Windows;
  readonly turns: Turns;
}

export async function claim(
  sources: MongodbSources,
  plans: Plans,
  { windows, turns }: ClaimMemory,
  request: ClaimRequest,
): Promise<ClaimAnswer<TaskRecord>> {
  return run('claim tasks', async () => {
    const keyed = await Promise.all(
      keyedOf(request).flatMap(([task, limit]) => {
        const plan = plans.get(task);
        if (plan === undefined) return [];
        return sources.open(plan.source).then((place) => ({ work: claimable(place, plan, request), limit }));
      }),
    );
    const parts = keyed.length === 0 ? [] : await claimEachKeyed(sources.mongo, turns, request, keyed);
    const took = parts.reduce((sum, { rows }) => sum + rows.length, 0);
    const rest = keyed.length === 0 ? request : withoutKeyed(request, took);
    if (rest.limits.size > 0 && rest.total > 0) parts.push(await claimPlain(sources, plans, windows, rest));
    const jobs = parts.flatMap(({ rows }) => rows);
    return { jobs: jobs.sort(byTaskOrder), ...together(parts.map(({ answer }) => answer)) };
  });
}

export async function claimedUnder(
  sources: MongodbSources,
  plans: Plans,
  instance: Instance,
  token: string,
): Promise<readonly TaskRecord[]> {
  return run('read a claim again', async () => {
    const groups = [...bySource(plans, [...plans.keys()]).values()];
    const found = await Promise.all(
      groups.map(async ({ source, tasks }) => {
        const place = await sources.open(source);
        const filter = { claimedBy: instance.instanceId, status: { $in: RUNNING }, leaseToken: token };
        const options = { hint: 'tidemill_held', projection: { _id: 1 } };
        const rows = await findExact(place.tasks, filter, options).toArray();
        const keys = rows.map((row) => row['_id'] as TaskKey);
        const reads = tasks.map((task) =>
          readTaken(
            place,
            plans.get(task) as TaskPlan,
            keys.filter((key) => key.task === task),
            token,
          ),
        );
        return (await Promise.all(reads)).flat();
      }),
    );
    return found.flat().sort(byTaskOrder);
  });
}
