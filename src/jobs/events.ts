import type { Job } from '../core/records/job.js';
import type { Task } from '../core/records/task.js';

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
  /** The handler reported progress. */
  'job:progress': { readonly job: Job; readonly progress: unknown; readonly instanceId: string };
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
  /** The instance has started; `start` is about to resolve. */
  start: { readonly instanceId: string };
  /**
   * `stop` was called: no new work starts. The store stays open until running work has ended, including the promises
   * passed to `waitUntil`, or until the stop times out.
   */
  stop: { readonly instanceId: string; readonly waitUntil: (work: Promise<unknown>) => void };
  /** An error that no caller sees, such as a failed claim or a listener that threw. Logged if there is no listener. */
  error: { readonly error: Error; readonly where: string; readonly instanceId: string };
}
