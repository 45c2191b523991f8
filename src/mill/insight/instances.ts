import { isAlive, type Store } from '../../store/port.js';

/** One instance of the cluster, for display. */
export interface MillInstance {
  readonly instanceId: string;
  readonly host: string;
  readonly pid: number;
  /** Names of the jobs that it runs, sorted. */
  readonly names: readonly string[];
  /** Names of the reactive tasks that it runs, sorted. */
  readonly tasks: readonly string[];
  /** True while its lease is valid. The others reclaim the work of an instance that is not alive. */
  readonly alive: boolean;
  /** True if it plans reactive tasks for the cluster. */
  readonly leader: boolean;
  /** How long its lease is still valid; 0 if it is not. */
  readonly leaseLeftMs: number;
  /** How many handlers it runs at once; absent if it runs an older version. */
  readonly slots?: number;
}

/** Returns the instances of the cluster, live ones first, then by id. */
export async function instancesOf(store: Store): Promise<readonly MillInstance[]> {
  const { cluster, instances } = await store.instances.describe();
  return instances
    .map((one) => ({
      instanceId: one.instanceId,
      host: one.host,
      pid: one.pid,
      names: [...one.names].sort(),
      tasks: one.tasks.map(({ task }) => task).sort(),
      alive: isAlive(one),
      leader: isAlive(one) && cluster.leader?.life === one.life,
      leaseLeftMs: Math.max(0, one.dead ? 0 : one.leftMs),
      ...(one.capacity === undefined ? {} : { slots: one.capacity.slots }),
    }))
    .sort((a, b) => Number(b.alive) - Number(a.alive) || (a.instanceId < b.instanceId ? -1 : 1));
}
