/** What facts are built from: jobs, claims, settlements and instances with plain values, and ways to wait. */
import type { JobRecord } from '../../core/records/job.js';
import type { EnqueuedJob, Tidemill } from '../../index.js';
import {
  leaseOf,
  type ClaimRequest,
  type Instance,
  type NewJob,
  type Registration,
  type Settlement,
} from '../../store/port.js';

let serial = 0;

/** A life that no other fact has. */
export const anInstance = (): Instance => ({
  instanceId: `worker-${String((serial += 1))}`,
  life: serial.toString(16).padStart(16, '0'),
});

export const aRegistration = (fields: Partial<Registration> = {}): Registration => ({
  ...anInstance(),
  names: ['work'],
  tasks: [],
  policies: {},
  host: 'here',
  pid: 1,
  leaseMs: 60_000,
  ...fields,
});

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
  fields: Partial<ClaimRequest> & { readonly names?: readonly string[]; readonly max?: number } = {},
): ClaimRequest {
  const { names = ['work'], max = 10, ...rest } = fields;
  return {
    instance,
    token: `${instance.life}.${String((serial += 1))}`,
    heartbeatMs: 10_000,
    limits: new Map(names.map((name) => [name, { max, rank: 0, of: 1 }])),
    total: max * names.length,
    ...rest,
  };
}

/** The end of a job's attempt: completed, unless `fields` say otherwise. */
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

/** The value, which must be there. */
export function present<T>(value: T | undefined): T {
  if (value === undefined) throw new Error('expected a value, got undefined');
  return value;
}

export const ago = (ms: number): Date => new Date(Date.now() - ms);
export const ahead = (ms: number): Date => new Date(Date.now() + ms);

/** The poll finds nothing while a test lasts: whatever runs was woken. */
export const rarely: { readonly min: '1h'; readonly max: '1h' } = { min: '1h', max: '1h' };

/** One attempt, and no other. */
export const once: { readonly type: 'fixed'; readonly interval: 0; readonly maxAttempts: 1 } = {
  type: 'fixed',
  interval: 0,
  maxAttempts: 1,
};

/** A promise with its own resolve, for waiting on a signal instead of a sleep. */
export interface Gate<T> {
  readonly promise: Promise<T>;
  readonly open: (value: T) => void;
}

export function gate<T = void>(): Gate<T> {
  let resolve!: (value: T) => void;
  const promise = new Promise<T>((settle) => (resolve = settle));
  return { promise, open: resolve };
}

/** Starts the mill with a job that runs until `finish` opens, and resolves once it runs. */
export async function aRunningJob(
  mill: Tidemill,
): Promise<{ readonly job: EnqueuedJob; readonly finish: Gate<void> }> {
  const [running, finish] = [gate(), gate()];
  mill.job('slow', async () => {
    running.open();
    await finish.promise;
    return 'done';
  });
  await mill.start();
  const job = await mill.enqueue('slow', {});
  await running.promise;
  return { job, finish };
}

/** Asks until the answer is there; `what` may be a function that says what was seen instead. */
export async function until<T>(
  what: string | (() => string),
  ask: () => Promise<T | false | undefined> | T | false | undefined,
  limitMs = 90_000,
): Promise<T> {
  const end = performance.now() + limitMs;
  for (;;) {
    const answer = await ask();
    if (answer !== false && answer !== undefined) return answer;
    if (performance.now() > end) {
      const text = typeof what === 'string' ? what : what();
      throw new Error(`waited ${String(limitMs)} ms in vain until ${text}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
