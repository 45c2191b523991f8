import type { LogLine } from '../core/records/job.js';
import type { Finished, Outcome } from '../core/records/outcome.js';
import type { Work } from '../core/records/work.js';
import type { FailedRun, Lease } from '../store/port.js';
import type { LaneOptions } from './claim/lanes.js';

/** Runs one kind of work for the engine: jobs or reactive tasks. The engine knows nothing else about them. */
export interface WorkRunner<W extends Work, S> {
  /** The names that have a handler here, each with its concurrency. */
  workers(): ReadonlyMap<string, LaneOptions>;
  /** Runs the handler. Never rejects: every end is an outcome. */
  perform(work: W, attempt: AttemptControl): Promise<Outcome>;
  /** Runs the handler of a batch. Never rejects, and ends each member that has no outcome yet. */
  performBatch(members: readonly BatchMember<W>[], control: BatchControl): Promise<void>;
  /**
   * True if the handler completes its work inside a transaction, by its definition or as seen in an earlier run. Then
   * the engine writes nothing to the work while it runs, since any write would make that transaction conflict.
   */
  mayComplete(work: W): boolean;
  /** The number of this attempt, from 1. */
  attempt(work: W): number;
  /** The most attempts. The start of the last one is marked, so that a reclaimer can tell whether it began. */
  maxAttempts(work: W): number;
  /** How long the handler may run, or undefined for no limit. */
  timeoutMs(work: W): number | undefined;
  /** Decides what the store is to record. Pure: called again if the work changed meanwhile. */
  conclude(work: W, finished: Finished, about?: About): Conclusion<S>;
  /** Called once the store has recorded the outcome. */
  recorded(work: W, finished: Finished, conclusion: Conclusion<S>): void;
}

/** Further input to `conclude`. */
export interface About {
  /** Progress and log lines that have not been written yet. */
  readonly extra?: Extra;
  /** How often the database has found this outcome too large. Each time, conclude to a smaller settlement. */
  readonly refusals?: number;
  /** By name: the retry policies of the instance that ran the work, if another instance concludes it. */
  readonly policies?: Readonly<Record<string, unknown>>;
  /** The work was read for this conclusion, with its payload as stored. See `Conclusion.needsStored`. */
  readonly isStored?: boolean;
}

export interface Extra {
  readonly progress?: { readonly value: unknown };
  readonly logs?: readonly LogLine[];
}

/** An outcome on its way to the store. */
export interface Settling<W extends Work> {
  readonly work: W;
  readonly finished: Finished;
  /** How often the database has found this outcome too large. Each time, less of it is written. */
  readonly refusals?: number;
  readonly extra?: Extra;
}

export interface AttemptControl {
  readonly lease: Lease;
  readonly signal: AbortSignal;
  /**
   * Throws if the handler must not be called any more: the lease has ended by the clock, or the attempt was aborted. To
   * be called right before the handler: the process may have been paused since the work was started.
   */
  checkLease(): void;
  /** Queues progress and log lines for the store. */
  note(note: { progress?: { value: unknown }; log?: { message: string; fields?: unknown } }): void;
  /** Returns what was noted and not written yet, for a settlement in the caller's transaction. */
  unwritten(): Extra | undefined;
  /** While true, the engine makes no best-effort writes to the work: it may be part of a user's transaction. */
  inTransaction: boolean;
}

/** One piece of work of a batch. */
export interface BatchMember<W extends Work> {
  readonly work: W;
  readonly attempt: AttemptControl & { readonly isAborted: boolean };
  /** True once it has an outcome: its own, or that of its timeout. Later ones are ignored. */
  readonly hasEnded: boolean;
  /** Gives it its outcome, which is recorded at once. */
  end(outcome: Outcome | Promise<Outcome>): void;
}

/** One call of a batch's handler. */
export interface BatchControl {
  /** Aborts when no member is left to run for: each has its outcome, or its own signal has aborted. */
  readonly signal: AbortSignal;
}

export interface Conclusion<S> {
  readonly settlement: S;
  /** Inserted before the settlement, so that a crash in between loses nothing. Inserting it twice is harmless. */
  readonly failedRun?: FailedRun;
  readonly retryAt?: Date;
  /**
   * True: read the work with `held`, and conclude again with `isStored`. The settlement copies the payload, which the
   * handler may have changed in memory, and which `heldBy` leaves out.
   */
  readonly needsStored?: true;
}
