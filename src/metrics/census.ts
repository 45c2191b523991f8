import { TASK_STATUSES } from '../core/records/task.js';
import type { MeasuredKind } from '../store/metrics.js';
import {
  isAlive,
  type Cluster,
  type Depth,
  type DepthRequest,
  type Instance,
  type Store,
} from '../store/port.js';
import type { TaskPlan } from '../store/reactive/reactive.js';
import type { ClusterView } from './families.js';

type Census = Omit<ClusterView, 'limits'>;

export interface CensusOptions {
  /** The reactive tasks that have a handler here. The store finds the others itself. */
  readonly plans: () => ReadonlyMap<string, TaskPlan>;
  /** The due documents of each collection scheduled by this instance. */
  readonly documents: (cap: number) => Promise<readonly Depth[]>;
}

const JOB_STATUSES = ['pending', 'processing', 'failed'];
const TASK_DEPTHS = TASK_STATUSES.filter((status) => status !== 'completed');

/** Counts the live instances and the work in the cluster, up to a cap. */
export async function census(
  store: Store,
  cluster: Cluster,
  { plans, documents }: CensusOptions,
  request: DepthRequest,
): Promise<Census> {
  const alive = cluster.instances.filter(isAlive);
  const [jobs, tasks, document, outbox] = await Promise.all([
    store.jobs.depths(request),
    store.reactive?.tasks(plans).depths(request) ?? [],
    documents(request.cap),
    store.reactive?.planning.outbox?.(),
  ]);
  const jobNames = alive.flatMap(({ names }) => names);
  const taskNames = alive.flatMap((one) => one.tasks.map(({ task }) => task));
  return {
    instances: alive.length,
    depths: {
      job: inUse(jobs, jobNames, JOB_STATUSES),
      task: inUse(tasks, taskNames, TASK_DEPTHS),
      document,
    },
    ...(outbox === undefined ? {} : { outbox }),
  };
}

/** Keeps names that have work or a live instance that runs them. The metrics of any other name disappear. */
function inUse(
  depths: readonly Depth[],
  run: readonly string[],
  statuses: readonly string[],
): readonly Depth[] {
  const isRun = new Set(run);
  const known = new Set(depths.map(({ name }) => name));
  const there = depths.filter(
    ({ name, counts }) => isRun.has(name) || Object.values(counts).some((count) => count > 0),
  );
  const none = Object.fromEntries(statuses.map((status) => [status, 0]));
  const idle = [...isRun].filter((name) => !known.has(name));
  return [...there, ...idle.map((name) => ({ name, counts: none, due: 0, lagMs: 0 }))];
}

/** True if `self` reports for the cluster: it is the live leader or, without one, the first live instance by life. */
export function speaks(cluster: Cluster, self: Instance): boolean {
  const lives = cluster.instances.filter(isAlive).map(({ life }) => life);
  const leader = cluster.leader?.life;
  if (leader !== undefined && leader !== null && lives.includes(leader)) return leader === self.life;
  return lives.sort()[0] === self.life;
}

export const waitingOf = ({
  depths,
}: Census): { kind: MeasuredKind; name: string; due: number; lagMs: number }[] =>
  (Object.entries(depths) as [MeasuredKind, readonly Depth[]][]).flatMap(([kind, ofKind]) =>
    ofKind.map(({ name, due, lagMs }) => ({ kind, name, due, lagMs })),
  );
