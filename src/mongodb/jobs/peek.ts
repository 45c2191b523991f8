import type { Document } from 'mongodb';
import type { Cluster, DueSummary, InstanceState, Leader } from '../../store/port.js';
import type { TaskState } from '../../store/reactive.js';
import { run, type GlobalDocument, type Mongo } from '../context.js';
import { SCHEMA_VERSION } from './document.js';
import { ANY_DATE } from '../indexes.js';

/** Instances, pauses, the leader and the tasks in force, by the server's clock. */
export const clusterPipeline: Document[] = [
  { $match: { kind: { $in: ['instance', 'pause', 'pause-task', 'planner', 'task'] } } },
  {
    $project: {
      _id: 0,
      kind: 1,
      name: 1,
      until: 1,
      term: 1,
      instanceId: 1,
      life: 1,
      names: 1,
      tasks: 1,
      'state.task': 1,
      'state.trigger': 1,
      'state.version': 1,
      dead: 1,
      now: '$$NOW',
      leftMs: { $subtract: ['$leaseUntil', '$$NOW'] },
    },
  },
];

/**
 * Reads the cluster as jobs see it from the coordination rows of a result. `otherwise` is the time if no row has it.
 */
export function readCluster(rows: readonly Document[], otherwise: number): Cluster {
  const of = (kind: GlobalDocument['kind']): readonly Document[] =>
    rows.filter((row) => row['kind'] === kind);
  const now =
    (rows.find((row) => row['now'] instanceof Date)?.['now'] as Date | undefined) ?? new Date(otherwise);
  const [leader] = of('planner') as unknown as readonly Leader[];
  return {
    now,
    paused: new Set(of('pause').map((row) => row['name'] as string)),
    instances: of('instance').map((row) => ({
      ...row,
      tasks: (row['tasks'] ?? []) as unknown,
    })) as unknown as InstanceState[],
    ...(leader === undefined ? {} : { leader }),
  };
}

/** The same, as reactive tasks see it. */
export function readTaskCluster(rows: readonly Document[], otherwise: number): Cluster {
  const cluster = readCluster(rows, otherwise);
  const holds = (row: Document): boolean => !(row['until'] instanceof Date) || row['until'] > cluster.now;
  const paused = rows.filter((row) => row['kind'] === 'pause-task' && holds(row));
  const ends = paused.flatMap((row) => (row['until'] instanceof Date ? row['until'].getTime() : []));
  const states = rows.filter((row) => row['kind'] === 'task').map((row) => row['state'] as TaskState);
  return {
    ...cluster,
    inForce: new Map(states.map(({ task, trigger, version }) => [task, { trigger, version }])),
    ...(ends.length === 0 ? {} : { resumeAt: new Date(Math.min(...ends)) }),
    paused: new Set(paused.map((row) => row['name'] as string)),
    instances: cluster.instances.map((one) => ({ ...one, names: one.tasks.map(({ task }) => task) })),
  };
}

export async function cluster(mongo: Mongo): Promise<Cluster> {
  return run('read instances', async () =>
    readCluster(await mongo.globals.aggregate(clusterPipeline).toArray(), mongo.clock.now()),
  );
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

/** Everything that an idle instance needs to know, in one command. */
function lookPipeline(mongo: Mongo, names: readonly string[]): Document[] {
  return [
    ...duePipeline(names),
    ...oddPipelines.map((pipeline) => ({ $unionWith: { coll: mongo.jobs.collectionName, pipeline } })),
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
  return {
    cluster: readCluster(rows, mongo.clock.now()),
    nextDue: new Map(due.map((row: Document) => [row['name'] as string, row['nextRunAt'] as Date])),
    foreign: rows.some((row: Document) => row['kind'] === 'foreign'),
  };
}

/**
 * Jobs written by hand, or by another program, have no version. They get one, along with a valid priority, failure
 * count and due time, so that one index orders everything. A missing priority counts as 0, a missing due time as now.
 */
async function adopt(mongo: Mongo): Promise<void> {
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
}
