import type { Document } from 'mongodb';
import {
  EVERYTHING,
  type Cluster,
  type ClusterBrief,
  type DueSummary,
  type InstanceState,
  type Leader,
  type Leases,
  type Runs,
} from '../../../store/port.js';
import type { TaskState } from '../../../store/reactive/reactive.js';
import { run, type GlobalDocument, type Mongo } from '../../context.js';
import { SCHEMA_VERSION } from '../document.js';
import { markKeys, type Mark } from '../../limits/keys/document.js';
import { ANY_DATE } from '../../indexes.js';

/** The rows as one document, which exists even if there are none, with the server's time. */
const gathered: Document[] = [
  { $facet: { rows: [{ $project: { _id: 0, kind: 1, name: 1, until: 1, state: 1 } }] } },
  { $project: { kind: 'brief', rows: 1, now: '$$NOW' } },
];

/** The id of the pause of a name of jobs, or of everything. */
export const pauseId = (name: string): string => `pause:${name}`;
const PAUSED = pauseId(EVERYTHING);

/** The server's time, and the paused names of jobs. */
export const clusterPipeline: Document[] = [{ $match: { kind: 'pause' } }, ...gathered];

/** The server's time, the pauses of tasks, and the definitions in force of the tasks asked about. */
export const taskClusterPipeline = (tasks: readonly string[]): Document[] => [
  {
    $match: {
      $or: [{ kind: 'pause-task' }, { _id: { $in: [PAUSED, ...tasks.map((task) => `task:${task}`)] } }],
    },
  },
  {
    $project: { kind: 1, name: 1, until: 1, 'state.task': 1, 'state.trigger': 1, 'state.version': 1 },
  },
  ...gathered,
];

function briefRow(rows: readonly Document[]): { readonly now: Date; readonly rows: readonly Document[] } {
  return rows.find((row) => row['kind'] === 'brief') as unknown as { now: Date; rows: Document[] };
}

/** Reads what `clusterPipeline` has added to a result. */
export function readCluster(rows: readonly Document[]): ClusterBrief {
  const brief = briefRow(rows);
  return { now: brief.now, paused: new Set(brief.rows.map((row) => row['name'] as string)) };
}

/** Reads what `taskClusterPipeline` has added to a result. */
export function readTaskCluster(rows: readonly Document[]): ClusterBrief {
  const brief = briefRow(rows);
  const holds = (row: Document): boolean => !(row['until'] instanceof Date) || row['until'] > brief.now;
  const paused = brief.rows.filter(
    (row) => row['kind'] === 'pause' || (row['kind'] === 'pause-task' && holds(row)),
  );
  const ends = paused.flatMap((row) => (row['until'] instanceof Date ? row['until'].getTime() : []));
  const states = brief.rows.filter((row) => row['kind'] === 'task').map((row) => row['state'] as TaskState);
  return {
    now: brief.now,
    paused: new Set(paused.map((row) => row['name'] as string)),
    inForce: new Map(states.map(({ task, trigger, version }) => [task, { trigger, version }])),
    ...(ends.length === 0 ? {} : { resumeAt: new Date(Math.min(...ends)) }),
  };
}

const lease = { instanceId: 1, life: 1, dead: 1, plans: 1, leftMs: { $subtract: ['$leaseUntil', '$$NOW'] } };
const leading = { term: 1, partitions: 1, next: 1 };

/** The whole cluster: instances with all that they run, paused names of jobs and the leader. */
export const wholePipeline: Document[] = [
  { $match: { kind: { $in: ['instance', 'pause', 'planner'] } } },
  { $project: { _id: 0, kind: 1, name: 1, names: 1, tasks: 1, ...lease, ...leading, now: '$$NOW' } },
];

/** Reads the result of `wholePipeline`. `otherwise` is the time if it has no row. */
export function readWhole(rows: readonly Document[], otherwise: number): Cluster {
  const of = (kind: GlobalDocument['kind']): readonly Document[] =>
    rows.filter((row) => row['kind'] === kind);
  const [leader] = of('planner') as unknown as readonly Leader[];
  return {
    now: (rows[0]?.['now'] as Date | undefined) ?? new Date(otherwise),
    paused: new Set(of('pause').map((row) => row['name'] as string)),
    instances: of('instance').map((row) => ({
      ...row,
      tasks: (row['tasks'] ?? []) as unknown,
    })) as unknown as InstanceState[],
    ...(leader === undefined ? {} : { leader }),
  };
}

export async function cluster(mongo: Mongo): Promise<Cluster> {
  return run('read instances', async () =>
    readWhole(await mongo.globals.aggregate(wholePipeline).toArray(), mongo.clock.now()),
  );
}

const leasesPipeline: Document[] = [
  { $match: { kind: { $in: ['instance', 'planner'] } } },
  { $project: { _id: 0, kind: 1, runs: 1, ...lease, ...leading, now: '$$NOW' } },
];

/** Reads no field that grows with what an instance runs. */
export async function leases(mongo: Mongo): Promise<Leases> {
  const rows = await run('read leases', () => mongo.globals.aggregate(leasesPipeline).toArray());
  const { leader, instances, now } = readWhole(rows, mongo.clock.now());
  return {
    now,
    instances: instances.map(({ instanceId, life, dead, leftMs, plans = null, ...rest }) => {
      const { runs } = rest as { readonly runs?: Runs };
      return { instanceId, life, dead, leftMs, plans, ...(runs === undefined ? {} : { runs }) };
    }),
    ...(leader === undefined ? {} : { leader }),
  };
}

/** One index key per name: its earliest due time, due or not. */
export function duePipeline(names: readonly string[]): Document[] {
  return [
    { $match: { name: { $in: names }, status: 'pending', v: SCHEMA_VERSION, nextRunAt: ANY_DATE } },
    { $sort: { name: 1, status: 1, nextRunAt: 1 } },
    { $group: { _id: '$name', nextRunAt: { $first: '$nextRunAt' } } },
    { $project: { _id: 0, kind: 'due', name: '$_id', nextRunAt: 1 } },
  ];
}

/** One index key each: is there pending work without a version, or of a later one? */
export const oddPipelines: readonly Document[][] = [
  [{ $match: { v: null, status: 'pending' } }, { $limit: 1 }, { $project: { _id: 0, kind: 'handwritten' } }],
  [
    { $match: { v: { $gt: SCHEMA_VERSION }, status: 'pending' } },
    { $limit: 1 },
    { $project: { _id: 0, kind: 'foreign' } },
  ],
];

/** One index key: when does the first job expire? */
export const expiryPipeline: Document[] = [
  { $match: { startBy: { $type: 'date' }, status: 'pending' } },
  { $sort: { startBy: 1 } },
  { $limit: 1 },
  { $project: { _id: 0, kind: 'expires', startBy: 1 } },
];

/** Everything that an idle instance needs to know, in one command. */
function lookPipeline(mongo: Mongo, names: readonly string[]): Document[] {
  return [
    ...duePipeline(names),
    ...[...oddPipelines, expiryPipeline].map((pipeline) => ({
      $unionWith: { coll: mongo.jobs.collectionName, pipeline },
    })),
    { $unionWith: { coll: mongo.globals.collectionName, pipeline: clusterPipeline } },
  ];
}

export async function look(mongo: Mongo, names: readonly string[], again = false): Promise<DueSummary> {
  const rows = await run('look', () =>
    mongo.jobs.aggregate<GlobalDocument>(lookPipeline(mongo, names), { hint: 'tidemill_due' }).toArray(),
  );
  if (!again && rows.some((row: Document) => row['kind'] === 'handwritten')) {
    await adopt(mongo);
    return look(mongo, names, true);
  }
  const due = rows.filter((row: Document) => row['kind'] === 'due');
  const [first] = rows.filter((row: Document) => row['kind'] === 'expires') as readonly Document[];
  return {
    cluster: readCluster(rows),
    ...(first === undefined ? {} : { expiresAt: first['startBy'] as Date }),
    nextDue: new Map(due.map((row: Document) => [row['name'] as string, row['nextRunAt'] as Date])),
    foreign: rows.some((row: Document) => row['kind'] === 'foreign'),
  };
}

/** The keys of jobs that were written by hand. `repairKeys` finds those beyond the limit. */
async function handwrittenKeys(mongo: Mongo): Promise<readonly Mark[]> {
  const rows = await mongo.jobs
    .find({ v: null, status: 'pending', limitKey: { $type: 'string' } })
    .project<{ name: unknown; limitKey: string }>({ name: 1, limitKey: 1 })
    .limit(MOST_ADOPTED_KEYS)
    .toArray();
  return rows.flatMap(({ name, limitKey }) =>
    typeof name === 'string' ? [{ name, key: limitKey, from: '$$NOW' as const }] : [],
  );
}

const MOST_ADOPTED_KEYS = 1_000;

/**
 * Jobs written by hand, or by another program, have no version. They get one, along with a valid priority, failure
 * count and due time, so that one index orders everything. A missing priority counts as 0, a missing due time as now.
 */
async function adopt(mongo: Mongo): Promise<void> {
  const keys = await run('adopt', () => handwrittenKeys(mongo));
  const number = (field: string): Document => ({ $isNumber: field });
  await run('adopt', () =>
    mongo.jobs.updateMany({ v: null, status: 'pending' }, [
      {
        $set: {
          v: SCHEMA_VERSION,
          priority: {
            $cond: [
              number('$priority'),
              {
                $convert: {
                  input: { $max: [-10, { $min: [10, '$priority'] }] },
                  to: 'int',
                  onError: 0,
                  onNull: 0,
                },
              },
              0,
            ],
          },
          failCount: { $cond: [number('$failCount'), '$failCount', 0] },
          nextRunAt: { $cond: [{ $eq: [{ $type: '$nextRunAt' }, 'date'] }, '$nextRunAt', '$$NOW'] },
        },
      },
    ]),
  );
  // After the write: a claim that looks at a key must find its jobs.
  await run('adopt', () => markKeys(mongo, keys));
}
