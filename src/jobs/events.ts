import type { Job } from '../core/records/job.js';
import type { Task } from '../core/records/task.js';

/** Each event carries one object, with the instance that saw it. */
export interface JobEvents {
  'job:start': { readonly job: Job; readonly instanceId: string };
  'job:complete': {
    readonly job: Job;
    readonly result: unknown;
    readonly durationMs: number;
    readonly instanceId: string;
  };
  /** Each failed attempt. */
  'job:fail': {
    readonly job: Job;
    readonly error: Error;
    readonly attempt: number;
    readonly willRetry: boolean;
    readonly instanceId: string;
  };
  'job:retry': { readonly job: Job; readonly runAt: Date; readonly instanceId: string };
  'job:cancel': { readonly job: Job; readonly instanceId: string };
  'job:progress': { readonly job: Job; readonly progress: unknown; readonly instanceId: string };
  /** Work of a dead process was handed on by this instance. */
  'stale:recovered': { readonly count: number; readonly instanceId: string };
  /** This instance lost its lease, or some of its work; the handlers' signals have aborted. */
  'lease:lost': {
    readonly reason: string;
    readonly jobs: readonly Job[];
    readonly tasks: readonly Task[];
    readonly instanceId: string;
  };
  /** `start` has resolved, or is about to. */
  start: { readonly instanceId: string };
  /** `stop` was called: nothing new begins, and the store closes when all has ended, work given to `waitUntil` included. */
  stop: { readonly instanceId: string; readonly waitUntil: (work: Promise<unknown>) => void };
  error: { readonly error: Error; readonly where: string; readonly instanceId: string };
}
