/** Parts of a mill that a process which only enqueues does without. Each is loaded on first use. */
import { chosen, deferred, lazily, type Deferrable, type Lazy } from '../core/lazily.js';
import type { JobsOptions } from '../jobs/manage/manager.js';
import type { Store } from '../store/port.js';
import type * as doctor from './insight/doctor.js';
import type * as managers from './managers.js';
import type * as runtime from './instance-runtime.js';
import type * as why from './insight/why.js';

export const loadDoctor: () => Promise<typeof doctor> = lazily(() => import('./insight/doctor.js'));
export const loadManagers: Lazy<typeof managers> = lazily(() => import('./managers.js'));
export const loadRuntime: () => Promise<typeof runtime> = lazily(() => import('./instance-runtime.js'));
export const loadWhy: () => Promise<typeof why> = lazily(() => import('./insight/why.js'));

type Methods<M> = Readonly<Record<keyof M & Deferrable<M>, true>>;

/** The methods of each manager. */
const JOBS: Methods<managers.Jobs> = {
  get: true,
  find: true,
  count: true,
  errors: true,
  stats: true,
  cancel: true,
  retry: true,
  remove: true,
  reschedule: true,
  update: true,
  cancelMany: true,
  retryMany: true,
  removeMany: true,
  pause: true,
  paused: true,
  resume: true,
  result: true,
};
const SCHEDULES: Methods<managers.Schedules> = {
  list: true,
  get: true,
  remove: true,
  pause: true,
  resume: true,
  runNow: true,
  next: true,
};
const TASKS: Methods<managers.Tasks> = {
  find: true,
  get: true,
  count: true,
  stats: true,
  errors: true,
  document: true,
  planning: true,
  retryMany: true,
  pause: true,
  paused: true,
  resume: true,
  reconcile: true,
  forget: true,
};
const LIMITS: Methods<managers.Limits> = {
  list: true,
  get: true,
  set: true,
  reset: true,
  keys: true,
  breaker: true,
};
const AUDIT: Methods<managers.Audit> = { append: true, amend: true, get: true, list: true };
const METRICS: Methods<managers.Metrics> = { series: true };

/** A manager that is made on the first call of one of its methods, all of which return promises. */
function manager<M extends object>(methods: Methods<M>, make: (from: typeof managers) => M): M {
  const made = chosen(loadManagers, make);
  return deferred(made, Object.keys(methods) as Deferrable<M>[]) as unknown as M;
}

type LateResults = Pick<managers.Results, 'wait' | 'ended' | 'stop'>;

/** Waits for the results of jobs. Until the first wait, jobs that end have nobody to tell. */
export const lateResults = (store: () => Promise<Store>): LateResults => {
  const results = chosen(loadManagers, ({ Results }) => new Results(store));
  return {
    wait: async (id, signal) => (await results()).wait(id, signal),
    ended: (id, job) => results.loaded?.ended(id, job),
    stop: () => results.loaded?.stop(),
  };
};

export const lateJobs = (options: JobsOptions): managers.Jobs => {
  const watch: managers.Jobs['watch'] = (watched, given) =>
    options.watches.watch(
      async () => (await loadManagers()).watchTarget(watched, given ?? {}),
      given?.signal,
    );
  return Object.assign(
    manager(JOBS, ({ Jobs }) => new Jobs(options)),
    { watch },
  );
};

export const lateSchedules = (
  ...needs: ConstructorParameters<typeof managers.Schedules>
): managers.Schedules => manager(SCHEDULES, ({ Schedules }) => new Schedules(...needs));

export const lateTasks = (...needs: ConstructorParameters<typeof managers.Tasks>): managers.Tasks =>
  manager(TASKS, ({ Tasks }) => new Tasks(...needs));

export const lateLimits = (...needs: ConstructorParameters<typeof managers.Limits>): managers.Limits =>
  manager(LIMITS, ({ Limits }) => new Limits(...needs));

export const lateAudit = (...needs: ConstructorParameters<typeof managers.Audit>): managers.Audit =>
  manager(AUDIT, ({ Audit }) => new Audit(...needs));

export const lateMetrics = (...needs: ConstructorParameters<typeof managers.Metrics>): managers.Metrics =>
  manager(METRICS, ({ Metrics }) => new Metrics(...needs));
