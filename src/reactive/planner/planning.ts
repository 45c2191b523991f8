import type { Store } from '../../store/port.js';
import type { TaskState, TaskStats } from '../../store/reactive.js';
import { retired } from './plans-in-force.js';
import { reactiveOf } from '../reactive-of.js';

/** Of each status so many tasks are counted, shared among the names. */
export const COUNT_CAP = 100_000;

/** The planner as people look at it. */
export interface Planning {
  /** The instance that plans; null where nobody does. */
  readonly leader: string | null;
  /** How long the oldest task has been due that waits; null where none does. */
  readonly lagMs: number | null;
  /**
   * Tasks whose documents are to be looked at again, or are being looked at; `processed`: how many documents, and then
   * tasks, have been; `total`: of about how many.
   */
  readonly reconciling: readonly {
    readonly task: string;
    readonly processed: number;
    readonly total: number;
  }[];
  /** Tasks that the leader cannot prepare, and plans without; what they miss is reconciled when it can. */
  readonly leftOut: readonly { readonly task: string; readonly since: Date; readonly reason: string }[];
}

/** Due times cost a key each, and counts many: these are read only where something is being looked at again. */
export async function planningOf(
  store: Store,
  statsUpTo: (cap: number) => Promise<readonly TaskStats[]>,
): Promise<Planning> {
  const { planner } = reactiveOf(store);
  const [cluster, states, stats] = await Promise.all([
    store.instances.list(),
    planner.states(),
    statsUpTo(1),
  ]);
  const { leader } = cluster;
  const lives = cluster.instances.some(
    ({ life, dead, leftMs }) => life === leader?.life && !dead && leftMs > 0,
  );
  const due = stats.flatMap(({ nextDue }) => (nextDue === undefined ? [] : [nextDue.getTime()]));
  const lagMs = cluster.now.getTime() - Math.min(...due);
  const known = states.filter((state) => !retired(state, cluster));
  return {
    leader: lives && leader !== undefined ? leader.instanceId : null,
    lagMs: due.length > 0 && lagMs > 0 ? lagMs : null,
    reconciling: await progressOf(
      store,
      known.filter(({ wanted, done, leftOutSince }) => wanted > done && !(leftOutSince instanceof Date)),
      () => statsUpTo(COUNT_CAP),
    ),
    leftOut: known.flatMap(({ task, leftOutSince, leftOutReason }) =>
      leftOutSince instanceof Date ? [{ task, since: leftOutSince, reason: leftOutReason ?? '' }] : [],
    ),
  };
}

/** One checkpoint belongs to all tasks of a source. */
async function progressOf(
  store: Store,
  waiting: readonly TaskState[],
  counted: () => Promise<readonly TaskStats[]>,
): Promise<Planning['reconciling']> {
  if (waiting.length === 0) return [];
  const stats = await counted();
  const { planner, planning } = reactiveOf(store);
  const known = (task: string): number => {
    const counts = stats.find((one) => one.task === task)?.counts;
    return Object.values<number>(counts ?? {}).reduce((sum, count) => sum + count, 0);
  };
  const sources = new Map((await planner.plans()).map(({ plan }) => [plan.task, plan.source]));
  return Promise.all(
    waiting.map(async ({ task }) => {
      const source = sources.get(task);
      const checkpoint = source && (await planner.checkpoint(source));
      const documents = source === undefined ? 0 : await planning.size(source);
      return { task, processed: checkpoint?.processed ?? 0, total: documents + known(task) };
    }),
  );
}
