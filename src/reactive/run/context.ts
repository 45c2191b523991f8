import type { Duration } from '../../time/duration.js';

/** What a handler may ask for when it fetches its document. On MongoDB: options of `find`, read from the primary. */
export interface GetDocumentOptions<Tx = unknown> {
  /** Which fields are fetched. Default: all. */
  readonly projection?: object;
  /** The caller's transaction: the fetch is part of it. */
  readonly session?: Tx;
  readonly transaction?: Tx;
  readonly maxTimeMS?: number;
  readonly comment?: unknown;
  /** `local`, `majority`, `linearizable` or `snapshot`. Default: `local`. */
  readonly readConcern?: unknown;
  /** How the driver reads the document; as by default where they are left out. */
  readonly promoteLongs?: boolean;
  readonly promoteValues?: boolean;
  readonly promoteBuffers?: boolean;
  readonly bsonRegExp?: boolean;
  readonly useBigInt64?: boolean;
  readonly enableUtf8Validation?: boolean;
  readonly allowDiskUse?: boolean;
  readonly batchSize?: number;
  /** Options of `find` that are taken and change nothing: there is one document, found by its id. */
  readonly sort?: unknown;
  readonly limit?: number;
  readonly hint?: unknown;
  readonly singleBatch?: boolean;
  readonly noCursorTimeout?: boolean;
}

/** What a task's handler gets. All methods are bound, so they may be taken out of it. */
export interface TaskContext<Doc = Record<string, unknown>, Tx = unknown> {
  readonly docId: unknown;
  readonly task: string;
  /** Counts from 1. */
  readonly attempt: number;
  /** The watched fields as they were when the task was planned. */
  readonly watchedValues: Record<string, unknown>;
  /** Aborts on timeout, a lost lease, or the end of a stop. */
  readonly signal: AbortSignal;
  /** The document, if it exists, matches the filter, and its watched fields are unchanged; otherwise it throws. */
  readonly getDocument: (options?: GetDocumentOptions<Tx>) => Promise<Doc>;
  /** Completes the task inside the caller's transaction: its effects happen exactly once. */
  readonly markCompleted: (options: { readonly session?: Tx; readonly transaction?: Tx }) => Promise<void>;
  /** Runs this task again later, without using an attempt. */
  readonly deferCurrent: (until: Duration | Date) => void;
  /** Starts no more tasks of this name until then, on this instance or in the cluster. */
  readonly throttleAll: (
    until: Duration | Date,
    options?: { readonly scope?: 'instance' | 'cluster' },
  ) => void;
}

export type TaskHandler<Doc = Record<string, unknown>, Tx = unknown> = (
  context: TaskContext<Doc, Tx>,
) => unknown;
