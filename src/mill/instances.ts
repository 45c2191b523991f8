import type { InstanceDetails, Store } from '../store/port.js';

/** One instance of the cluster, as people look at it. */
export interface MillInstance {
  readonly instanceId: string;
  readonly host: string;
  readonly pid: number;
  /** Names of the jobs that it runs. */
  readonly names: readonly string[];
  /** Names of the reactive tasks that it runs. */
  readonly tasks: readonly string[];
  /** Its lease holds. One that is not alive is being handed on by the others. */
  readonly alive: boolean;
  /** It plans reactive tasks for all. */
  readonly leader: boolean;
  /** How long its lease still holds; 0 where it does not. */
  readonly leaseLeftMs: number;
  /** How many handlers it runs at once; absent where it is of an older version. */
  readonly slots?: number;
}

export const isAlive = ({ dead, leftMs }: InstanceDetails): boolean => !dead && leftMs > 0;

/** The live ones first, by their ids. */
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
