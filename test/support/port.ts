import { afterEach } from 'vitest';
import type { JobRecord } from '../../src/core/records/job.js';
import {
  leaseOf,
  type ClaimRequest,
  type Instance,
  type NewJob,
  type Settlement,
  type Store,
} from '../../src/store/port.js';

const releases: (() => Promise<void>)[] = [];
afterEach(async () => {
  await Promise.all(releases.splice(0).map((release) => release()));
});

/** A store that is open for one test. */
export async function opened<S extends Store>(store: S): Promise<S> {
  const holder = {};
  releases.push(() => store.release(holder));
  await store.acquire(holder);
  return store;
}

let serial = 0;
export const anInstance = (): Instance => ({
  instanceId: `worker-${String((serial += 1))}`,
  life: serial.toString(16).padStart(16, '0'),
});
const aToken = (instance: Instance): string => `${instance.life}.${String((serial += 1))}`;

export function aJob(fields: Partial<NewJob> = {}): NewJob {
  const now = new Date();
  return {
    name: 'work',
    data: {},
    status: 'pending',
    priority: 0,
    nextRunAt: now,
    createdAt: now,
    ...fields,
  };
}

export function aClaim(
  instance: Instance,
  fields: Partial<ClaimRequest> & { names?: readonly string[]; max?: number } = {},
): ClaimRequest {
  const { names = ['work'], max = 10, ...rest } = fields;
  const limits = new Map(names.map((name) => [name, { max, rank: 0, of: 1 }]));
  return {
    instance,
    token: aToken(instance),
    heartbeatMs: 10_000,
    limits,
    total: max * names.length,
    ...rest,
  };
}

export function done(job: JobRecord, fields: Partial<Settlement> = {}): Settlement {
  return {
    lease: leaseOf(job),
    status: 'completed',
    set: { finishedAt: new Date() },
    historyLimit: 5,
    by: 'holder',
    ...fields,
  };
}

export const ago = (ms: number): Date => new Date(Date.now() - ms);
export const ahead = (ms: number): Date => new Date(Date.now() + ms);
