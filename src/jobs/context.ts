import type { Duration } from '../time/duration.js';

/** What a handler gets. All methods are bound, so destructuring works. */
export interface JobContext<T = unknown, Tx = unknown> {
  readonly id: string;
  readonly name: string;
  readonly data: T;
  /** 1 for the first attempt; failures and crashes raise it, a stop or a defer does not. */
  readonly attempt: number;
  readonly failCount: number;
  /** The unique key, where the job has one. */
  readonly uniqueKey?: string;
  /** Recurring jobs: the time this run stands for. */
  readonly scheduledFor?: Date;
  /** Aborts on timeout, cancel, lost lease, and at the end of a stop; `signal.reason` says which. */
  readonly signal: AbortSignal;
  /** Keeps a value that others can read while the job runs. */
  readonly progress: (value: unknown) => void;
  /** Adds a line to the job's own log; the last 100 are kept. */
  readonly log: (message: string, fields?: unknown) => void;
  /** Puts the job back when the handler returns, without using an attempt. */
  readonly defer: (until: Duration | Date) => void;
  /**
   * Completes the job inside your transaction: its completion and your writes happen together or not at all. Call it
   * as the last write; the handler's return value is then not used, pass `result` here.
   */
  readonly complete: (options: { readonly transaction: Tx; readonly result?: unknown }) => Promise<void>;
}

export type JobHandler<T = unknown, Tx = unknown> = (job: JobContext<T, Tx>) => unknown;

/** Any handler, whatever its types: what is kept of them inside. */
export type AnyHandler = (job: never) => unknown;
