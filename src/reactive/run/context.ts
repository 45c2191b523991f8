import type { Duration } from '../../time/duration.js';

/** Options of `getDocument`. On MongoDB these are options of `find`, which reads from the primary. */
export interface GetDocumentOptions<Tx = unknown> {
  /** The fields to fetch. Default: all. */
  readonly projection?: object;
  /** Your transaction, which the read becomes part of. */
  readonly transaction?: Tx;
  /** MongoDB's name for `transaction`. */
  readonly session?: Tx;
  readonly maxTimeMS?: number;
  readonly comment?: unknown;
  /** `local`, `majority`, `linearizable` or `snapshot`. Default: `local`. */
  readonly readConcern?: unknown;
  /** How the driver reads the document. Default: the driver's own settings. */
  readonly promoteLongs?: boolean;
  readonly promoteValues?: boolean;
  readonly promoteBuffers?: boolean;
  readonly bsonRegExp?: boolean;
  readonly useBigInt64?: boolean;
  readonly enableUtf8Validation?: boolean;
  readonly allowDiskUse?: boolean;
  readonly batchSize?: number;
  /** Options of `find` that are accepted and have no effect: there is one document, found by its id. */
  readonly sort?: unknown;
  readonly limit?: number;
  readonly hint?: unknown;
  readonly singleBatch?: boolean;
  readonly noCursorTimeout?: boolean;
}

/**
 * The argument of a task's handler. All methods are bound, so they can be destructured. Those that take a transaction
 * are written as methods for the same reason as in `JobContext`.
 */
export interface TaskContext<Doc = Record<string, unknown>, Tx = unknown> {
  readonly docId: unknown;
  readonly task: string;
  /** Counts from 1. */
  readonly attempt: number;
  /** The watched fields as they were when the task was planned. */
  readonly watchedValues: Record<string, unknown>;
  /** Aborts on a timeout, on a lost lease, or at the end of a stop. */
  readonly signal: AbortSignal;
  /**
   * Returns the document if it exists, matches the filter, and its watched fields are unchanged. Otherwise throws a
   * TaskConditionFailedError, which ends the run as skipped unless the handler catches it.
   */
  getDocument(this: void, options?: GetDocumentOptions<Tx>): Promise<Doc>;
  /**
   * Completes the task inside your transaction (`session` is MongoDB's name for it), so that the completion and your
   * writes commit together or not at all. Make it the last write of the transaction.
   */
  complete(this: void, options: { readonly transaction?: Tx; readonly session?: Tx }): Promise<void>;
  /** The same as `complete`. */
  markCompleted(this: void, options: { readonly transaction?: Tx; readonly session?: Tx }): Promise<void>;
  /** Runs this task again at the given time. Takes effect when the handler returns. Uses no attempt. */
  readonly defer: (until: Duration | Date) => void;
  /** The same as `defer`. */
  readonly deferCurrent: (until: Duration | Date) => void;
  /** Prevents tasks of this name from starting until then, on this instance (the default) or in the cluster. */
  readonly throttleAll: (
    until: Duration | Date,
    options?: { readonly scope?: 'instance' | 'cluster' },
  ) => void;
}

export type TaskHandler<Doc = Record<string, unknown>, Tx = unknown> = (
  context: TaskContext<Doc, Tx>,
) => unknown;
