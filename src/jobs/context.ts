import type { Duration } from '../time/duration.js';

/** What every handler gets of a job, whether it runs alone or in a batch. */
export interface JobFacts<T = unknown> {
  readonly id: string;
  readonly name: string;
  readonly data: T;
  /** The number of this attempt, from 1. Failures and crashes raise it; a stop or `defer` does not. */
  readonly attempt: number;
  /** How many attempts have failed or crashed so far. */
  readonly failCount: number;
  /** The unique key, if the job has one. */
  readonly uniqueKey?: string;
  /** For recurring jobs: the scheduled time of this run, however late it starts and however often it is retried. */
  readonly scheduledFor?: Date;
  /** The key by which limits count the job, and batches by key gather it; '' if it has none. */
  readonly limitKey: string;
  /**
   * Aborts on timeout, on cancel, when the lease is lost, and when a stop runs out of time; `signal.reason` says which.
   */
  readonly signal: AbortSignal;
  /**
   * Stores a value that any process can read, with `jobs.get`, while the job runs. What an earlier attempt reported stays
   * until this one reports.
   */
  readonly progress: (value: unknown) => void;
  /** Adds a line to the job's log; the last 100 lines are kept. */
  readonly log: (message: string, fields?: unknown) => void;
}

/**
 * The argument of a job handler. Its methods are bound, so you can destructure it. What takes a transaction is written
 * as a method: only then is a mill on one store also a `Tidemill`, a mill on any.
 */
export interface JobContext<T = unknown, Tx = unknown> extends JobFacts<T> {
  /** Returns the job to the queue once the handler returns, due at the given time. Uses no attempt. */
  readonly defer: (until: Duration | Date) => void;
  /**
   * Completes the job inside your transaction, so that the completion and your writes commit together or not at all.
   * Make it the last write of the transaction. The handler's return value is then ignored; pass `result` here instead.
   */
  complete(this: void, options: { readonly transaction: Tx; readonly result?: unknown }): Promise<void>;
}

/** Returns the job's result, or a promise of it. It may return nothing, such as after `defer` and `complete`. */
export type JobHandler<T = unknown, Tx = unknown, Result = unknown> = (
  job: JobContext<T, Tx>,
) => Result | Nothing | Promise<Result | Nothing>;

/** TypeScript 5 takes the result of a function without `return` for `void` here, newer versions for `undefined`. */
// eslint-disable-next-line @typescript-eslint/no-invalid-void-type
type Nothing = undefined | void;

/**
 * A job of a batch. `complete`, `fail` and `defer` give its outcome, which is recorded at once; the first one stands. A
 * job without an outcome is completed when the handler returns, and fails when it throws.
 */
export interface BatchJob<T = unknown, Result = unknown> extends JobFacts<T> {
  /** Completes the job and keeps the result. */
  readonly complete: (result?: Result) => void;
  /** Fails this attempt of the job, which is then retried by its policy. */
  readonly fail: (error: unknown) => void;
  /** Returns the job to the queue, due at the given time. Uses no attempt. */
  readonly defer: (until: Duration | Date) => void;
}

/** The second argument of a batch's handler. */
export interface BatchContext<Tx = unknown> {
  /** Aborts when no job is left to run for: each has an outcome, or its own signal has aborted. */
  readonly signal: AbortSignal;
  /** With `byKey`: the key of all jobs of this call; '' for jobs without any. */
  readonly limitKey?: string;
  /**
   * Completes all jobs that have no outcome yet inside your transaction, so that their completion and your writes commit
   * together or not at all. Make it the last write of the transaction.
   */
  complete(this: void, options: { readonly transaction: Tx; readonly result?: unknown }): Promise<void>;
}

/** Gets the jobs of a batch. What it returns is ignored: results belong to single jobs. */
export type BatchHandler<T = unknown, Tx = unknown, Result = unknown> = (
  jobs: readonly BatchJob<T, Result>[],
  context: BatchContext<Tx>,
) => unknown;

/** A handler of any payload type, as the registry keeps it. */
export type AnyHandler = (job: never, context: never) => unknown;
