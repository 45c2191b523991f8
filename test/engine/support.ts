import type { JobRecord } from '../../src/core/records/job.js';
import type { Cluster, InstanceState } from '../../src/store/port.js';

let serial = 0;

/** A job as a claim returns it. */
export function aClaimed(given: Partial<JobRecord> = {}): JobRecord {
  serial += 1;
  const id = given.id ?? `job-${String(serial)}`;
  const at = new Date(0);
  return {
    id,
    key: id,
    name: 'work',
    data: {},
    status: 'processing',
    priority: 0,
    nextRunAt: at,
    createdAt: at,
    updatedAt: at,
    lockedAt: at,
    failCount: 0,
    leaseToken: 'life.1',
    claimedBy: 'me',
    ...given,
  };
}

export function aCluster(instances: readonly Partial<InstanceState>[] = []): Cluster {
  return {
    now: new Date(0),
    paused: new Set(),
    instances: instances.map((one) => ({
      instanceId: one.life ?? 'x',
      life: 'x',
      names: ['work'],
      tasks: [],
      leftMs: 1_000,
      dead: false,
      ...one,
    })),
  };
}
