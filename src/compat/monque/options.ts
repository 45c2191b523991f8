import type { TidemillOptions } from '../../index.js';
import type { JobStatus, PersistedJob } from './job.js';

export interface MonqueOptions extends Pick<TidemillOptions, 'leaseDuration' | 'logger'> {
  /** Default: 'monque_jobs'. */
  readonly collectionName?: string;
  /** The longest wait between two polls, in milliseconds, for jobs that older processes enqueue. Default: 1000. */
  readonly pollInterval?: number;
  /** Attempts in all. Default: 10. */
  readonly maxRetries?: number;
  /** Default: 1000. */
  readonly baseRetryInterval?: number;
  /** Default: 24 hours. */
  readonly maxBackoffDelay?: number;
  /** Default: 30000. */
  readonly shutdownTimeout?: number;
  /** Jobs of one name that run at once. Default: 5. */
  readonly workerConcurrency?: number;
  /** The old name of `workerConcurrency`. */
  readonly defaultConcurrency?: number;
  /** Jobs that run at once in this process. Default: 10000. */
  readonly instanceConcurrency?: number;
  /** The old name of `instanceConcurrency`. */
  readonly maxConcurrency?: number;
  /** Default: a random one. */
  readonly schedulerInstanceId?: string;
  /** Default: true. */
  readonly recoverStaleJobs?: boolean;
  /** How long ended jobs are kept, in milliseconds since their last change. Default: for ever. */
  readonly jobRetention?: {
    readonly completed?: number;
    readonly failed?: number;
    /** How often to look. Default: 3600000. */
    readonly interval?: number;
  };
  /** Requires the indexes, instead of creating them. Default: false. */
  readonly skipIndexCreation?: boolean;
  /** BSON bytes of `{ data }`. Default: no limit but MongoDB's. */
  readonly maxPayloadSize?: number;
  /** How long statistics are kept in memory; 0: not. Default: 5000. */
  readonly statsCacheTtlMs?: number;
  /** Has no effect: instances are told by changes, and poll by `pollInterval`. */
  readonly safetyPollInterval?: number;
  /** Has no effect: the lease of the process decides, see `leaseDuration`. */
  readonly lockTimeout?: number;
  /** Has no effect: follows from `leaseDuration`. */
  readonly heartbeatInterval?: number;
}

export interface MonqueEventMap {
  'job:start': PersistedJob;
  'job:complete': { readonly job: PersistedJob; readonly duration: number };
  'job:fail': { readonly job: PersistedJob; readonly error: Error; readonly willRetry: boolean };
  'job:error': { readonly error: Error; readonly job?: PersistedJob };
  'stale:recovered': { readonly count: number };
  'changestream:connected': undefined;
  'changestream:error': { readonly error: Error };
  'changestream:closed': undefined;
  'changestream:fallback': { readonly reason: string };
  'job:cancelled': { readonly job: PersistedJob };
  'job:retried': { readonly job: PersistedJob; readonly previousStatus: JobStatus };
  'job:deleted': { readonly jobId: string };
  'jobs:cancelled': { readonly count: number };
  'jobs:retried': { readonly count: number };
  'jobs:deleted': { readonly count: number };
}
