import type { Duration } from '../../time/duration.js';

/** Options of `getDocument`. On MongoDB these are options of `find`, which reads from the primary. */
export interface GetDocumentOptions<Tx = unknown> {
  /** The fields to fetch. Default: all. */
  readonly projection?: object;
  /** Your transaction, which the read becomes part of. Default: none. */
  readonly transaction?: Tx;
  /** MongoDB's name for `transaction`, which takes precedence. Default: none. */
  readonly session?: Tx;
  /** Limits the time of the query on the server. Default: none. */
  readonly maxTimeMS?: number;
  /** A comment for the server's log. Default: none. */
  readonly comment?: unknown;
  /** `local`, `majority`, `linearizable` or `snapshot`. Default: 'local'. */
  readonly readConcern?: unknown;
  /** How the driver reads 64-bit integers. Default: the driver's setting. */
  readonly promoteLongs?: boolean;
  /** How the driver reads BSON values. Default: the driver's setting. */
  readonly promoteValues?: boolean;
  /** How the driver reads binary data. Default: the driver's setting. */
  readonly promoteBuffers?: boolean;
  /** How the driver reads regular expressions. Default: the driver's setting. */
  readonly bsonRegExp?: boolean;
  /** How the driver reads 64-bit integers. Default: the driver's setting. */
  readonly useBigInt64?: boolean;
  /** Whether the driver validates UTF-8. Default: the driver's setting. */
  readonly enableUtf8Validation?: boolean;
  /** Passed on to the server. Default: the driver's setting. */
  readonly allowDiskUse?: boolean;
  /** Passed on to the server. Default: the driver's setting. */
  readonly batchSize?: number;
  /** Has no effect: there is one document, found by its id. Default: none. */
  readonly sort?: unknown;
  /** Has no effect: there is one document, found by its id. Default: none. */
  readonly limit?: number;
  /** Has no effect: there is one document, found by its id. Default: none. */
  readonly hint?: unknown;
  /** Has no effect: there is one document, found by its id. Default: none. */
  readonly singleBatch?: boolean;
  /** Has no effect: there is one document, found by its id. Default: none. */
  readonly noCursorTimeout?: boolean;
}

/** Options of `throttleAll`. */
export interface ThrottleOptions {
  /** Where tasks of the name do not start. Default: 'instance'. */
  readonly scope?: 'instance' | 'cluster';
}

/** Names the caller's transaction. */
export interface TransactionOption<Tx = unknown> {
  readonly transaction?: Tx;
  /** MongoDB's name for `transaction`. */
  readonly session?: Tx;
}

/** What every handler gets of a task, whether it runs alone or in a batch. */
export interface TaskFacts<Doc = Record<string, unknown>, Tx = unknown> {
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
  /** Prevents tasks of this name from starting until then, on this instance (the default) or in the cluster. */
  readonly throttleAll: (until: Duration | Date, options?: ThrottleOptions) => void;
}

/**
 * The argument of a task's handler. All methods are bound, so they can be destructured. Those that take a transaction
 * are written as methods for the same reason as in `JobContext`.
 */
export interface TaskContext<Doc = Record<string, unknown>, Tx = unknown> extends TaskFacts<Doc, Tx> {
  /**
   * Completes the task inside your transaction (`session` is MongoDB's name for it), so that the completion and your
   * writes commit together or not at all. Make it the last write of the transaction.
   */
  complete(this: void, options: TransactionOption<Tx>): Promise<void>;
  /** The same as `complete`. */
  markCompleted(this: void, options: TransactionOption<Tx>): Promise<void>;
  /** Runs this task again at the given time. Takes effect when the handler returns. Uses no attempt. */
  readonly defer: (until: Duration | Date) => void;
  /** The same as `defer`. */
  readonly deferCurrent: (until: Duration | Date) => void;
}

export type TaskHandler<Doc = Record<string, unknown>, Tx = unknown> = (
  context: TaskContext<Doc, Tx>,
) => unknown;

/**
 * A task of a batch. `complete`, `fail` and `defer` give its outcome, which is recorded at once; the first one stands. A
 * task without an outcome is completed when the handler returns, and fails when it throws. If its document is gone, no
 * longer matches or has changed, it is skipped instead.
 */
export interface BatchTask<Doc = Record<string, unknown>, Tx = unknown> extends TaskFacts<Doc, Tx> {
  /** Completes the task. */
  readonly complete: () => void;
  /** Fails this attempt of the task, which is then retried by its policy. */
  readonly fail: (error: unknown) => void;
  /** Runs this task again at the given time. Uses no attempt. */
  readonly defer: (until: Duration | Date) => void;
  /** The same as `defer`. */
  readonly deferCurrent: (until: Duration | Date) => void;
}

/** The second argument of a handler of batches. */
export interface TaskBatchContext<Doc = Record<string, unknown>, Tx = unknown> {
  /** Aborts when no task is left to run for: each has an outcome, or its own signal has aborted. */
  readonly signal: AbortSignal;
  /**
   * Returns the documents of all tasks in one query, in the order of the tasks. `undefined` stands for a document that
   * is gone, no longer matches or has changed; its task is skipped unless you give it an outcome.
   */
  getDocuments(this: void, options?: GetDocumentOptions<Tx>): Promise<(Doc | undefined)[]>;
  /**
   * Completes all tasks that have no outcome yet inside your transaction, so that their completion and your writes commit
   * together or not at all. Make it the last write of the transaction.
   */
  complete(this: void, options: TransactionOption<Tx>): Promise<void>;
  /** The same as `complete`. */
  markCompleted(this: void, options: TransactionOption<Tx>): Promise<void>;
}

export type TaskBatchHandler<Doc = Record<string, unknown>, Tx = unknown> = (
  tasks: readonly BatchTask<Doc, Tx>[],
  context: TaskBatchContext<Doc, Tx>,
) => unknown;
