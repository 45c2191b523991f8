import { isAlive, type Store } from '../../store/port.js';
import type { PlannerStore, TaskState, TaskStore } from '../../store/reactive/reactive.js';
import { partitionsOf } from './partitions/division.js';
import { retired } from './plans-in-force.js';
import { reactiveOf } from '../reactive-of.js';

/** The state of planning, as `tasks.planning()` returns it. */
export interface Planning {
  /** The instance that plans, or leads the first of several partitions; null if none does. */
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
  const [cluster, stats] = await Promise.all([store.instances.list(), tasks.stats(1)]);
  const { leader } = cluster;
  const planners = plannersOf(store, partitionsOf(cluster));
  const states = (await Promise.all(planners.map((planner) => planner.states()))).flat();
  const lives = cluster.instances.some((one) => one.life === leader?.life && isAlive(one));
  const due = stats.flatMap(({ nextDue }) => (nextDue === undefined ? [] : [nextDue.getTime()]));
  const lagMs = cluster.now.getTime() - Math.min(...due);
  const known = states.filter((state) => !retired(state, cluster));
  const behind = known.filter(
    ({ wanted, done, leftOutSince }) => wanted > done && !(leftOutSince instanceof Date),
  );
  const leftOut = known.flatMap(({ task, leftOutSince, leftOutReason }) =>
    leftOutSince instanceof Date ? [{ task, since: leftOutSince, reason: leftOutReason ?? '' }] : [],
  );
  return {
    leader: lives && leader !== undefined ? leader.instanceId : null,
    lagMs: due.length > 0 && lagMs > 0 ? lagMs : null,
    reconciling: await progressOf(store, planners, firstOf(behind)),
    leftOut: firstOf(leftOut),
  };
}

/** The planner's records of each partition in force. */
function plannersOf(store: Store, of: number): readonly PlannerStore[] {
  const { planner, partitioning } = reactiveOf(store);
  if (of === 1 || partitioning === undefined) return [planner];
  return Array.from({ length: of }, (_, index) => partitioning.within({ index, of }).planner);
}

/** One entry for each task, whatever the number of partitions it is from. */
const firstOf = <T extends { readonly task: string }>(all: readonly T[]): readonly T[] =>
  all.filter(({ task }, at) => all.findIndex((one) => one.task === task) === at);

/** All tasks of a source share one checkpoint in each partition. */
async function progressOf(
  store: Store,
  planners: readonly PlannerStore[],
  waiting: readonly TaskState[],
): Promise<Planning['reconciling']> {
  if (waiting.length === 0) return [];
  const { planner, planning } = reactiveOf(store);
  const sources = new Map((await planner.plans(waiting)).map(({ plan }) => [plan.task, plan.source]));
  return Promise.all(
    waiting.map(async ({ task }) => {
      const source = sources.get(task);
      const checkpoints = source ? await Promise.all(planners.map((one) => one.checkpoint(source))) : [];
      const documents = source === undefined ? 0 : await planning.size(source);
      const processed = checkpoints.reduce((sum, one) => sum + (one?.processed ?? 0), 0);
      return { task, processed, total: documents };
    }),
  );
}
