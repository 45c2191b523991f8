/** Running and managing tasks. */
import type { FieldValues } from '../../core/fields.js';
import type { FailureLine } from '../../core/records/failure-groups.js';
import type { Attempt } from '../../core/records/job.js';
import type { TaskRecord, TaskStatus } from '../../core/records/task.js';
import type { FailureKind } from '../../core/records/work.js';
import type { Lease, TaskAdvert, TimeRange, WorkStore } from '../work.js';
import type { TaskPlan } from './plan.js';

/** Names one definition in the registry, as adverts and states do. */
export type DefinitionName = Pick<TaskAdvert, 'task' | 'definition'>;

/**
 * What the end of a task's attempt writes. A task runs again (→ `pending`, due as it was planned meanwhile) whatever
 * the settlement says if it is `processing_dirty`, or if it was `skipped` and a plan has `touched` it. The store also
 * takes off holder, `startedToken`, `touched` and `overtaken`.
 */
export interface TaskSettlement {
  readonly lease: Lease;
  readonly name: string;
  readonly status: 'completed' | 'failed' | 'pending';
  /**
   * When to run again; absent: due as before. Dirty: the later of this and the planned time, if `deferred` or not
   * `resetRetries`; else the planned one.
   */
  readonly scheduledAt?: Date;
  /** Not a failure: `attempts` - 1, and the wait counts from where it began. */
  readonly takeBack: boolean;
  /** Keep `scheduledAt` as `deferredUntil`: not before it, even if the document changes. `initialScheduledAt` stays. */
  readonly deferred: boolean;
  /** The document was not handled: write `matched: false`, so that the task runs when the document matches again. */
  readonly skipped: boolean;
  /** As in `Settlement`: the handler was not called, so the claim counts as no start of the task's key. */
  readonly unstarted?: true;
  /** If the task runs again, a new sequence of attempts begins: `attempts` 0, no `firstErrorAt`. */
  readonly resetRetries: boolean;
  /** Sets the error fields. */
  readonly failure?: {
    readonly message: string;
    readonly kind: FailureKind;
    readonly firstErrorAt: Date;
  };
  /** Sets `lastSuccess`, and takes the error fields off. */
  readonly success?: { readonly at: Date; readonly durationMs: number };
  /** Appended to `executionHistory`, of which the last `historyLimit` stay, at least one. */
  readonly entry?: Attempt;
  readonly historyLimit: number;
  /** As in `Settlement`: a holder leaves its token on the task, a reclaimer takes it off. */
  readonly by: 'holder' | 'reclaimer';
}

/** Which tasks: all parts that are given must match; of a list, one of its values. */
export interface TaskFilter {
  readonly task?: readonly string[];
  readonly status?: readonly TaskStatus[];
  /** Part of `lastError`, in upper or lower case, or an expression that it matches. */
  readonly errorMessage?: string | RegExp;
  /** Whether the task has a `lastError`. */
  readonly hasError?: boolean;
  /**
   * A query on the source documents, of the store's own. One for the id alone also finds tasks of deleted documents.
   */
  readonly sourceDocFilter?: unknown;
  /** `{ task, id }` of tasks. */
  readonly _id?: readonly unknown[];
  readonly scheduledAt?: TimeRange;
  readonly createdAt?: TimeRange;
  readonly updatedAt?: TimeRange;
  /** Texts that `cursorKey` returned; any other text matches nothing. */
  readonly keys?: readonly string[];
  /** Parts of the source documents, by dot path, and the values that they have; instead of `sourceDocFilter`. */
  readonly source?: FieldValues;
}

export type TaskCounts = Readonly<Record<TaskStatus, number>>;

/** How many tasks of one name there are. */
export interface TaskStats {
  readonly task: string;
  readonly counts: TaskCounts;
  /** Statuses of which there are more than `counts` says. */
  readonly capped: readonly TaskStatus[];
  /** When the first pending one is, or was, due. */
  readonly nextDue?: Date;
}

/** One page of a list, in the order of `field`, ties by task and id. */
export interface TaskPageRequest {
  readonly field: 'scheduledAt' | 'createdAt' | 'updatedAt';
  readonly direction: 1 | -1;
  readonly limit: number;
  /** Tasks to pass over, 10,000 at most. */
  readonly skip: number;
  /** Start after this task, in the given direction. `key` is what `cursorKey` returned for it. */
  readonly after?: { readonly at: Date; readonly key: string };
}

/** What a handler asks for when it fetches its document. */
export interface FetchRequest<Tx = unknown> {
  readonly plan: TaskPlan;
  readonly lease: Lease;
  /** As the handler gave them, unchecked: `projection`, and what the store's driver knows. */
  readonly options: Readonly<Record<string, unknown>>;
  /** Read through it, without sharing a query. */
  readonly transaction?: Tx;
}

/** What the handler of a batch asks for when it fetches the documents of all its tasks. */
export interface FetchAllRequest<Tx = unknown> extends Omit<FetchRequest<Tx>, 'lease'> {
  readonly leases: readonly Lease[];
}

/** Options for how the MongoDB driver reads values. */
export const MONGODB_READS_BY: readonly string[] = [
  'promoteLongs',
  'promoteValues',
  'promoteBuffers',
  'bsonRegExp',
  'useBigInt64',
  'enableUtf8Validation',
];

/** Options that only the MongoDB driver knows. Other stores name them when they refuse them. */
export const ONLY_MONGODB_FETCHES_BY: readonly string[] = [
  ...MONGODB_READS_BY,
  'maxTimeMS',
  'comment',
  'readConcern',
  'readPreference',
  'allowDiskUse',
  'batchSize',
  'sort',
  'limit',
  'hint',
  'singleBatch',
  'noCursorTimeout',
];

/** The document, or that there is none to work on: it is gone, does not match, or its watched fields changed. */
export type Fetched = { readonly document: unknown } | { readonly missing: true };

/** Tasks as the engine runs them (`WorkStore`), as handlers read their documents, and as people manage them. */
export interface TaskStore<Tx = unknown> extends WorkStore<TaskRecord, TaskSettlement, Tx> {
  /**
   * Returns the source document if it is there, matches the filter, and its watched fields are as they were planned;
   * otherwise `missing`. It is `missing`, too, once a plan has marked the task `overtaken`. Calls of one moment, claim
   * and projection may share a query. Writes nothing. Repeat: safe.
   * Precondition: the task is held under the lease's token.
   * Errors: `LeaseLostError` if it is not; `OptionError` for options that the store does not know.
   * Caller: `getDocument()` of a handler, whose attempt ends as skipped after `missing`.
   */
  fetch(request: FetchRequest<Tx>): Promise<Fetched>;
  /**
   * Like `fetch` for several tasks of one name, in one query. The leases may come from several claims.
   * Returns one answer per lease, in order; undefined for a task that is not held under its lease. Repeat: safe.
   * Errors: `OptionError` for options that the store does not know.
   * Caller: `getDocuments()` of a batch's handler.
   */
  fetchAll(request: FetchAllRequest<Tx>): Promise<readonly (Fetched | undefined)[]>;
  /**
   * Returns one page of the tasks that match. `partial`: the store's time limit was reached, so there may be more.
   * Repeat: safe.
   * Errors: `OptionError` if the server refuses `sourceDocFilter`.
   */
  find(
    filter: TaskFilter,
    page: TaskPageRequest,
  ): Promise<{ readonly tasks: readonly TaskRecord[]; readonly more: boolean; readonly partial: boolean }>;
  /** Returns the text that stands for a task in cursors, links and `TaskFilter.keys`. Only this store reads it. */
  cursorKey(record: TaskRecord): string;
  /** Returns how many tasks match, `most` at the highest; as `JobStore.count`, with the same error. Repeat: safe. */
  count(filter: TaskFilter, most?: number): Promise<number>;
  /**
   * Begins a fresh sequence of attempts, due now: `pending`, `completed`, `failed` → `pending`; `processing`,
   * `processing_dirty` → `processing_dirty`. In batches; a task that stops matching on the way is left alone.
   * Precondition: it still matches what the filter says of the task itself, and could be planned.
   * Returns how many it reset. Repeat: resets, and counts, what still matches, tasks that are pending by now included.
   * Caller: `tasks.retryMany()`, which calls `notifyPeers` afterwards.
   */
  retryMany(filter: TaskFilter): Promise<number>;
  /**
   * Returns counts by task and status, and when the first pending one is due. Counting stops at a limit that follows
   * from `cap`, as `JobStore.stats`. A task of which nothing was planned yet may be missing. Repeat: safe.
   */
  stats(cap: number): Promise<readonly TaskStats[]>;
  /**
   * Returns what failed tasks say, at most `limit`, of one task or of all, the last ended first. Of each task a store
   * may choose those that were due last, if that is what its index has in order. Repeat: safe.
   */
  failures(limit: number, task?: string): Promise<readonly FailureLine[]>;
  /** Returns the source document of a task as it is now, and its collection; undefined if it is gone. Repeat: safe. */
  document(
    record: TaskRecord,
  ): Promise<{ readonly collection: string; readonly document: unknown } | undefined>;
  /** Returns the tasks of which nothing is started, and until when; null: until `resume`. Repeat: safe. */
  pauses(): Promise<ReadonlyMap<string, Date | null>>;
  /**
   * Pauses a task in the whole cluster, until `resume`, or until `until` by the server's clock (a throttle). Claims
   * take none of it; running tasks continue. Wakes no instance: the caller rings.
   * Precondition: a throttle neither ends a pause that has no end, nor shortens another throttle.
   * Repeat: no effect.
   * Caller: `tasks.pause()`, and `throttleAll({ scope: 'cluster' })` of a handler.
   */
  pause(task: string, until?: Date): Promise<void>;
  /** Ends a pause or a throttle. Repeat: no effect. Caller: `tasks.resume()`, which calls `notifyPeers` afterwards. */
  resume(task: string): Promise<void>;
}
