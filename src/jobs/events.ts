import type { Job } from '../core/records/job.js';
import type { Task } from '../core/records/task.js';
import type { ScopeKind } from '../store/port.js';

/**
 * The events of jobs and of the instance. Each carries one object, with the id of the instance that emits it.
 * `job:start` and `job:progress` are emitted at once, all other job events after the store has recorded the change.
 */
export interface JobEvents {
  /** The handler of a job is about to be called. */
  'job:start': { readonly job: Job; readonly instanceId: string };
  /** The job ended as completed. */
  'job:complete': {
    readonly job: Job;
    readonly result: unknown;
    readonly durationMs: number;
    readonly instanceId: string;
  };
  /** An attempt failed; emitted for every failed attempt, the last one included. */
  'job:fail': {
    readonly job: Job;
    readonly error: Error;
    readonly attempt: number;
    readonly willRetry: boolean;
    readonly instanceId: string;
  };
  /** Follows `job:fail` if the job will run again. */
  'job:retry': { readonly job: Job; readonly runAt: Date; readonly instanceId: string };
  /** The job is cancelled: while it was pending, or once its handler has stopped. */
  'job:cancel': { readonly job: Job; readonly instanceId: string };
  /** The job was cancelled because it did not start in time (`expireIn`). */
  'job:expire': { readonly job: Job; readonly instanceId: string };
  /** The handler reported progress. */
  'job:progress': { readonly job: Job; readonly progress: unknown; readonly instanceId: string };
  /**
   * Too many attempts failed, or a trial did: nothing that this limit counts starts before `until`. Emitted by the
   * instance that recorded the last of the failures; `limits.breaker` emits it where it is called.
   */
  'breaker:open': {
    readonly kind: ScopeKind;
    readonly name: string;
    readonly until: Date;
    readonly instanceId: string;
  };
  /** The pause of an open breaker is over, and this instance may make one start. Its outcome decides. */
  'breaker:trial': { readonly kind: ScopeKind; readonly name: string; readonly instanceId: string };
  /** The trial succeeded, or an operator closed the breaker: work starts again. */
  'breaker:close': { readonly kind: ScopeKind; readonly name: string; readonly instanceId: string };
  /** This instance handed on `count` jobs or tasks of a dead one. */
  'stale:recovered': { readonly count: number; readonly instanceId: string };
  /**
   * This instance lost its lease, or the lease of some of its work. The signals of handlers that still run have
   * aborted.
   */
  'lease:lost': {
    readonly reason: string;
    readonly jobs: readonly Job[];
    readonly tasks: readonly Task[];
    readonly instanceId: string;
  };
  /** The database stopped answering; emitted once for each outage, with the error that showed it. Work waits. */
  'store:lost': { readonly error: Error; readonly instanceId: string };
  /** The database answers again, `forMs` after the first error of the outage. Follows `store:lost`. */
  'store:back': { readonly forMs: number; readonly instanceId: string };
  /** The instance has started; `start` is about to resolve. */
  start: { readonly instanceId: string };
  /**
   * `stop` was called: no new work starts. The store stays open until running work has ended, including the promises
   * passed to `waitUntil`, or until the stop times out.
   */
  stop: { readonly instanceId: string; readonly waitUntil: (work: Promise<unknown>) => void };
  /**
   * An error that no caller sees, such as a failed claim or a listener that threw. Logged if there is no listener. Errors
   * of a database that does not answer are limited to one in 10 s for each `where`.
   */
  error: { readonly error: Error; readonly where: string; readonly instanceId: string };
}
