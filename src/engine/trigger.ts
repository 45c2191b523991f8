import type { JobRecord } from '../core/job.js';
import type { Finished, Outcome } from '../core/outcome.js';
import type { FailedRun, Lease, Settlement } from '../store/port.js';

/** What the engine asks of a source of work. Jobs are one; the engine knows no other word about them. */
export interface Trigger {
  /** The names that have a handler here, with the most that may run of each at once. */
  workers(): ReadonlyMap<string, { readonly concurrency: number }>;
  /** Runs the handler. It never rejects: whatever happens is an outcome. */
  perform(work: JobRecord, attempt: AttemptControl): Promise<Outcome>;
  /**
   * True where the handler may complete its work inside a transaction: then nothing else is written to it while it
   * runs, because any write would make that transaction conflict.
   */
  mayComplete(work: JobRecord): boolean;
  /** How long the handler may run, or undefined for no limit. */
  timeoutMs(work: JobRecord): number | undefined;
  /** What the store is to record. Pure: asked again when the work changed meanwhile. */
  conclude(work: JobRecord, finished: Finished): Conclusion;
  /** The store has recorded it. */
  recorded(work: JobRecord, finished: Finished, conclusion: Conclusion): void;
}

export interface AttemptControl {
  readonly lease: Lease;
  readonly signal: AbortSignal;
  /** Progress and log lines, on their way to the store. */
  note(note: { progress?: { value: unknown }; log?: { message: string; fields?: unknown } }): void;
  /** While this holds, best-effort writes leave the job alone: it may be part of a user's transaction. */
  inTransaction: boolean;
}

export interface Conclusion {
  readonly settlement: Settlement;
  /** Kept first, so that a crash in between loses nothing; a repeat is harmless. */
  readonly failedRun?: FailedRun;
  readonly retryAt?: Date;
}
