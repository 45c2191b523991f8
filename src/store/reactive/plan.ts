/** From definitions and documents to tasks: what the leader plans, and how a store does it. */
import type { TraceContext } from '../../core/tracer.js';
import type { Feed, FeedRequest, Outbox } from './feed.js';
import type { Source } from './source.js';

export type DeleteWhen = 'sourceDocumentDeleted' | 'sourceDocumentDeletedOrNoLongerMatching' | 'never';

export type OnVersionChange = 'none' | 'reprocess_failed' | 'reprocess_all';

/** All that the leader needs to know of a task; it need not have the handler. */
export interface TaskPlan {
  readonly task: string;
  readonly source: Source;
  /** A query or an expression of the store's own; absent: every document. */
  readonly filter?: unknown;
  /** Which fields are watched; absent: the whole document. */
  readonly watchProjection?: unknown;
  /**
   * A dot path into the watched values, through objects only: the text or number there is the `limitKey` of the task.
   * Whatever else is there, or a text of more than 1,024 characters, counts as ''. Absent: `limitKey` is not written.
   */
  readonly limitKey?: string;
  /** A task is due once its document was quiet for `waitMs`, at the latest `maxWaitMs` after its first change. */
  readonly debounce: { readonly waitMs: number; readonly maxWaitMs: number };
  /** True: a change begins a new sequence of attempts. False: the running sequence, and its delay, continue. */
  readonly resetRetriesOnDataChange: boolean;
  readonly cleanup: { readonly deleteWhen: DeleteWhen; readonly keepForMs: number };
  readonly evolution: {
    readonly handlerVersion: number;
    readonly onHandlerVersionChange: OnVersionChange;
    readonly reconcileOnTriggerChange: boolean;
  };
  /** Milliseconds, or `CRON …`; absent: never by itself. */
  readonly reconcileEvery?: number | string;
}

/** A plan as the registry keeps it. */
export interface PublishedPlan {
  /** A digest of the plan: the same plan has the same id on every instance. */
  readonly id: string;
  readonly plan: TaskPlan;
  /** A digest of source, filter and projection: if it changes, the leader has to look at the documents again. */
  readonly trigger: string;
  /** By the server's clock; a repeated `publish` leaves it as it is. */
  readonly firstSeenAt: Date;
  /**
   * A point in the history just before the plan was last published, for `FeedRequest.since`; absent if there is none.
   */
  readonly since?: unknown;
}

/** What the cluster knows of one task; it survives a change of leader. */
export interface TaskState {
  readonly task: string;
  /** The definition in force: `PublishedPlan.id`. */
  readonly definition: string;
  readonly trigger: string;
  /** The handler's version of that definition. */
  readonly version: number;
  /** The highest version whose reprocessing was done. It only grows, so an older deployment never undoes it. */
  readonly handlerVersion: number;
  /** Reconciliations asked for, and done: while `wanted` is ahead, one is due. `wanted` only grows. */
  readonly wanted: number;
  readonly done: number;
  /** Why the last one was asked for. */
  readonly reason?: string;
  readonly lastReconciledAt?: Date;
  readonly lastCleanedAt?: Date;
  /** How far a cleanup has come: text that `clean` returned. Null if none is under way. */
  readonly cleanedUpTo?: string | null;
  /**
   * Since when, and why, the leader plans without it; null if it does not. The leader writes both, after a `request`,
   * before a resume point moves past a change that the task did not take into account.
   */
  readonly leftOutSince?: Date | null;
  readonly leftOutReason?: string | null;
  /** When an instance that advertises it was last seen. */
  readonly lastSeenAt: Date;
}

/**
 * What the leader asks to turn documents into tasks. Every method may be repeated, since a plan compares before it
 * writes. The leader plans one batch of a task at a time. What `plan` does to the task of a document that matches:
 *
 * | task before | the document … | task after |
 * |---|---|---|
 * | none | | `pending`, due after `waitMs` |
 * | `pending`, `completed`, `failed` | did not match before, or its snapshot differs | `pending` |
 * | `processing`, `processing_dirty` | the same | `processing_dirty`; `overtaken` if the snapshot differs |
 * | `processing`, `processing_dirty` | is as it was planned | as it was, `touched` |
 * | `pending`, `completed`, `failed` | is as it was planned | as it was |
 */
export interface PlanStore {
  /**
   * Evaluates filter and projection of documents on the server, and writes the tasks of those that match; `trace` is
   * kept with tasks that are to run. A document that is gone or does not match changes nothing here.
   * Precondition: the comparison in the table above, inside the write. Tasks of a later schema version stay as they
   * are. No statement outlives `limitMs`: one of a leader that died must be over before the next leader plans.
   * Returns the documents that it could not plan: the leader sets the `blocked` ones aside, and parks the others.
   * Repeat: safe.
   * Errors: transient: the leader repeats the batch. Any other: no document is at fault; the task is reconciled later.
   */
  plan(
    plan: TaskPlan,
    ids: readonly unknown[],
    limitMs: number,
    trace?: TraceContext,
  ): Promise<readonly Poisoned[]>;
  /**
   * `plan` and `unmatch` of a batch for several tasks of one source, at the cost of about one statement. A store may
   * also plan documents that the batch has only as `left`.
   * Preconditions, limit and repeat: as `plan`.
   * Returns false if a document or a task may be at fault; part of the batch may have been written. The leader then
   * plans each task by itself. Without it, the leader always does.
   * Errors: transient: the leader repeats the batch.
   */
  planTogether?(
    plans: readonly TaskPlan[],
    batch: PlanBatch,
    limitMs: number,
    trace?: TraceContext,
  ): Promise<boolean>;
  /**
   * Marks tasks whose document is gone or does not match any more: any state → the same, `matched: false`. A document
   * on which the filter fails does not match.
   * Precondition: the task counted as matching, or could not be planned.
   * Returns the documents whose task is blocked. Limit, repeat and errors: as `plan`.
   * Caller: the leader, after `plan` of the same ids.
   */
  unmatch(plan: TaskPlan, ids: readonly unknown[], limitMs: number): Promise<readonly Poisoned[]>;
  /**
   * Ends the tasks of documents that cannot be planned: none, `pending`, `completed`, `failed` → `failed`, with the
   * reason as `lastError`, and not to be reset until the document or the definition changes.
   * Precondition: the task does not run; one that does has an end of its own.
   * Repeat: safe. A store may leave out documents that are gone by now.
   */
  park(plan: TaskPlan, poisoned: readonly Poisoned[]): Promise<void>;
  /**
   * Returns the next `limit` ids of a source, following `after`, in an order of the store's own that holds every id
   * once. Without `after` it begins, and learns anew what the collection is. Repeat: safe. Caller: reconciliation,
   * phase 1.
   */
  documents(source: Source, after: string | undefined, limit: number): Promise<IdPage>;
  /** Returns about how many documents a source has, at little cost; 0 if it does not exist. Repeat: safe. */
  size(source: Source): Promise<number>;
  /**
   * Returns the next `limit` document ids that a task is kept for, following `after`, in an order of the store's own.
   * Repeat: safe. Caller: reconciliation, phase 2, to find documents that went unseen.
   */
  known(plan: TaskPlan, after: string | undefined, limit: number): Promise<IdPage>;
  /**
   * Deletes tasks whose time is over: of these ids, or of the next `limit` that follow `after` in the order of
   * `known`.
   * Precondition: it does not run; the document is gone, or does not match if `deleteWhen` says so; and `keepForMs`
   * has passed since it was last planned or ended, by the server's clock. If the filter fails on a document, its task
   * stays.
   * Returns how many it deleted, and where to go on; `after` is absent at the end. Repeat: safe.
   */
  clean(
    plan: TaskPlan,
    scope: { ids: readonly unknown[] } | { after?: string; limit: number },
  ): Promise<Cleaned>;
  /**
   * Resets tasks as `retryMany` does: the failed ones, or all but the pending ones.
   * Precondition: it still has such a state, and could be planned.
   * Returns how many it reset. Repeat: resets again what has ended since.
   * Caller: the leader, for a higher `handlerVersion`, before it notes the version.
   */
  reprocess(plan: TaskPlan, which: 'reprocess_failed' | 'reprocess_all'): Promise<number>;
  /**
   * Returns the time of the oldest change that is still kept; undefined if the store cannot tell. Absent if changes
   * are kept until they were planned. Repeat: safe. Caller: metrics of the leader.
   */
  historySince?(): Promise<Date | undefined>;
  /** Returns the state of the outbox; absent if the store has none. Repeat: safe. Caller: metrics. */
  outbox?(): Promise<Outbox>;
  /**
   * Opens the feed of one database. Resolves when every change after the resume point will come, each at least once.
   * Repeat: each call opens a feed of its own.
   * Errors: `HistoryLostError` if the resume point is too old or unreadable; the follower then opens a feed from now
   * on.
   */
  openFeed(request: FeedRequest): Promise<Feed>;
}

/** Documents that several tasks of one source are planned for. */
export interface PlanBatch {
  /** Ids of documents that were written. */
  readonly present: readonly unknown[];
  /** Ids of documents that may be gone, or may not match any more. */
  readonly left: readonly unknown[];
}

/** A document that could not be planned, or whose task could not be written. */
export interface Poisoned {
  readonly id: unknown;
  /** The same as text: equal for equal ids. */
  readonly key: string;
  readonly reason: string;
  /** True: an open transaction holds its task, or the error is likely to pass. The leader tries again every second. */
  readonly blocked: boolean;
}

export interface IdPage {
  readonly ids: readonly unknown[];
  /** Where to go on, as text of the store's own; absent at the end. */
  readonly after?: string;
}

export interface Cleaned {
  readonly deleted: number;
  /** Where to go on; absent at the end, and for a call with ids. */
  readonly after?: string;
}

/** A document whose task an open transaction holds. */
export interface HeldDocument {
  readonly id: unknown;
  /** The same as text: equal for equal ids. */
  readonly key: string;
}

/** Documents of one task that are still to be planned; a new leader continues with them. */
export interface BlockedOfTask {
  readonly task: string;
  readonly documents: readonly HeldDocument[];
}
