import type { PartitionRecords } from '../../../store/reactive/partitions.js';
import { isAlive, type Leases } from '../../../store/port.js';
import type { TaskState } from '../../../store/reactive/reactive.js';

/** The number of partitions in force. */
export const partitionsOf = ({ leader }: Pick<Leases, 'leader'>): number => leader?.partitions ?? 1;

/** How many live instances plan. */
export const plannersOf = ({ instances }: Pick<Leases, 'instances'>): number =>
  instances.filter((one) => isAlive(one) && (one.plans ?? 0) > 0).length;

/**
 * Returns the number of partitions that should be in force: the one that every instance that plans is set to. While
 * they disagree, as during a deployment, it stays as it is. An instance of a version without partitions would plan
 * every document, so beside one there is a single partition.
 */
export function wantedPartitions(leases: Pick<Leases, 'instances' | 'leader'>): number {
  const alive = leases.instances.filter(isAlive);
  if (alive.some(({ plans }) => plans === undefined || plans === null)) return 1;
  const [number, ...others] = new Set(alive.flatMap(({ plans }) => (plans ? [plans] : [])));
  return number === undefined || others.length > 0 ? partitionsOf(leases) : number;
}

/**
 * Returns the states with which new partitions begin: those of partition 0. Each partition has reconciled on its own
 * so far. If one of them was not done with a task, planned it by another definition, or had blocked documents of it,
 * the task is reconciled in all of the new ones.
 */
export function mergeStates(records: readonly PartitionRecords[]): readonly TaskState[] {
  const [first, ...others] = records;
  return (first?.states ?? []).map((state): TaskState => {
    const all = others.map(({ states }) => states.find(({ task }) => task === state.task));
    const known = [state, ...all.filter((one) => one !== undefined)];
    const isDone = known.length === records.length && known.every((one) => isSettled(one, state));
    const isBlocked = records.some(({ blocked }) =>
      blocked.some(({ task, documents }) => task === state.task && documents.length > 0),
    );
    const wanted = Math.max(...known.map((one) => one.wanted));
    const lastCleanedAt = earliest(known.map((one) => one.lastCleanedAt));
    return {
      ...state,
      ...(isDone && !isBlocked
        ? { wanted, done: wanted }
        : { wanted: wanted + 1, done: wanted, reason: 'partitions changed' }),
      // Where it is lower, the finished tasks of that partition were not reset yet.
      handlerVersion: Math.min(...known.map((one) => one.handlerVersion)),
      ...(lastCleanedAt === undefined ? {} : { lastCleanedAt }),
      cleanedUpTo: null,
    };
  });
}

const isSettled = (one: TaskState, first: TaskState): boolean =>
  one.wanted <= one.done && one.definition === first.definition && (one.leftOutSince ?? null) === null;

function earliest(times: readonly (Date | undefined)[]): Date | undefined {
  const known = times.flatMap((time) => time?.getTime() ?? []);
  return known.length === 0 ? undefined : new Date(Math.min(...known));
}
