import { isAlive, type Store } from '../../store/port.js';
import type { TaskState, TaskStore } from '../../store/reactive.js';
import { retired } from './plans-in-force.js';
import { reactiveOf } from '../reactive-of.js';

/** The state of planning, as `tasks.planning()` returns it. */
export interface Planning {
  /** The instance that plans; null if none does. */
  readonly leader: string | null;
  /** How long the oldest waiting task has been due; null if none is due. */
  readonly lagMs: number | null;
  /**
   * Tasks that are being reconciled or wait to be. `processed`: documents processed so far; `total`: about how many
   * documents there are.
   */
  readonly reconciling: readonly {
    readonly task: string;
    readonly processed: number;
    readonly total: number;
  }[];
  /** Tasks that the leader cannot prepare and leaves out of planning; what they miss is reconciled when it can. */
  readonly leftOut: readonly { readonly task: string; readonly since: Date; readonly reason: string }[];
}

/** Reads due times, which cost one key each, and no counts of tasks. */
export async function planningOf(store: Store, tasks: Pick<TaskStore, 'stats'>): Promise<Planning> {
  const { planner } = reactiveOf(store);
  const [cluster, states, stats] = await Promise.all([
    store.instances.list(),
    planner.states(),
    tasks.stats(1),
  ]);
  const { leader } = cluster;
  const lives = cluster.instances.some((one) => one.life === leader?.life && isAlive(one));
  const due = stats.flatMap(({ nextDue }) => (nextDue === undefined ? [] : [nextDue.getTime()]));
  const lagMs = cluster.now.getTime() - Math.min(...due);
  const known = states.filter((state) => !retired(state, cluster));
  return {
    leader: lives && leader !== undefined ? leader.instanceId : null,
    lagMs: due.length > 0 && lagMs > 0 ? lagMs : null,
    reconciling: await progressOf(
      store,
      known.filter(({ wanted, done, leftOutSince }) => wanted > done && !(leftOutSince instanceof Date)),
    ),
    leftOut: known.flatMap(({ task, leftOutSince, leftOutReason }) =>
      leftOutSince instanceof Date ? [{ task, since: leftOutSince, reason: leftOutReason ?? '' }] : [],
    ),
  };
}

/** All tasks of a source share one checkpoint. */
async function progressOf(store: Store, waiting: readonly TaskState[]): Promise<Planning['reconciling']> {
  if (waiting.length === 0) return [];
  const { planner, planning } = reactiveOf(store);
  const sources = new Map((await planner.plans()).map(({ plan }) => [plan.task, plan.source]));
  return Promise.all(
    waiting.map(async ({ task }) => {
      const source = sources.get(task);
      const checkpoint = source && (await planner.checkpoint(source));
      const documents = source === undefined ? 0 : await planning.size(source);
      return { task, processed: checkpoint?.processed ?? 0, total: documents };
    }),
  );
}
