/**
 * The port of reactive tasks: what the leader, the workers and management ask of a database whose data is watched.
 * Begin with `ReactiveStore` at the end. `TaskStore` runs tasks, `PlanStore` turns documents into tasks,
 * `PlannerStore` keeps what outlives a leader. The store evaluates filters and projections on the server: no document
 * reaches the leader. docs/architecture.md has the states of a task and the invariant of the resume point; port.ts
 * explains the words of the method comments.
 */
import { TidemillError, type TidemillErrorOptions } from '../core/errors.js';
import type { FailureLine } from '../core/records/failure-groups.js';
import type { FieldValues } from '../core/fields.js';
import type { Attempt } from '../core/records/job.js';
import type { TaskRecord, TaskStatus } from '../core/records/task.js';
import type { TraceContext } from '../core/tracer.js';
import type { FailureKind } from '../core/records/work.js';
import type { ForgettingStore } from './forgetting.js';
import type { Source } from './source.js';
import type { Instance, Lease, TaskAdvert, TimeRange, WorkStore } from './work.js';

export type { Source } from './source.js';

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

/** Names one definition in the registry, as adverts and states do. */
export type DefinitionName = Pick<TaskAdvert, 'task' | 'definition'>;

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

/** Proof of leadership. What a leader remembers is written with its term, and refused once a later term has written. */
export interface Term {
  readonly life: string;
  readonly term: number;
}

/** How far a reconciliation of one source has come. */
export interface Checkpoint {
  /** Tasks, triggers and requests that it is for, as texts; the leader begins anew if they differ. */
  readonly tasks: readonly string[];
  readonly phase: 'documents' | 'tasks';
  /** `IdPage.after` of the last page: text of the store's own. */
  readonly after?: string;
  readonly processed: number;
}

/** One change of a watched document: its id, and never its content. */
export interface Change {
  readonly collection: string;
  /** The document's id, as the store reads it; `plan` and `unmatch` get it back. */
  readonly id: unknown;
  /** The same as text: equal for equal ids. */
  readonly key: string;
  /** `insert`: the document was not there before, so it cannot have stopped matching. */
  readonly kind: 'insert' | 'update' | 'delete';
}

/** What a feed brings, in order. `token` is the resume point just after the event. */
export type FeedEvent =
  /** `at`: when the document was changed, by the server's clock. */
  | { readonly kind: 'change'; readonly change: Change; readonly token: unknown; readonly at: Date }
  /** A collection was dropped, renamed, altered, or came by renaming: the leader prepares and reconciles its tasks. */
  | { readonly kind: 'upheaval'; readonly collections: readonly string[] | 'all'; readonly token: unknown };

/** The history does not reach back to the resume point: only a reconciliation finds what was missed. */
export class HistoryLostError extends TidemillError {
  static override readonly brand: string = 'HistoryLostError';
  constructor(message: string, options?: TidemillErrorOptions) {
    super('HISTORY_LOST', message, options);
  }
}

/** Changes of one database, from a resume point on. */
export interface Feed {
  /**
   * Returns the next event; waits for as long as nothing happens. A call also says that the event before has arrived:
   * only then may `token` pass it. One call at a time.
   * Errors: a `HistoryLostError` if changes were missed for good, any other if the feed broke or was closed. The
   * follower opens another feed from the last resume point, so the same events may come again.
   */
  next(): Promise<FeedEvent>;
  /**
   * The newest resume point before which every event has arrived; it moves on while nothing happens. Undefined if the
   * feed began in the past and has not come to an event yet.
   */
  readonly token: unknown;
  /** Ends the feed; a `next` that waits rejects. Repeat: no effect. */
  close(): Promise<void>;
}

/** Which changes to follow, and from where. */
export interface FeedRequest {
  /** Undefined: the store's own. */
  readonly database: string | undefined;
  readonly collections: readonly string[];
  /** The resume point, as `load` or an event had it; undefined: from now on. */
  readonly token: unknown;
  /**
   * `PublishedPlan.since` of tasks that are new. A store goes back to the earliest of these that is before `token` and
   * that its history still has; the rest is left to reconciliation. A store without such points ignores it.
   */
  readonly since?: readonly unknown[];
  /** Who follows. A store that tells writers to wake the leader refuses that once a later term leads. */
  readonly term: Term;
}

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

/** Changes that the store recorded and the leader has not planned yet. */
export interface Outbox {
  /** About how many there are, at most. */
  readonly changes: number;
  /** How long ago the oldest was recorded; 0 if there is none. */
  readonly ageMs: number;
  /** Beyond about this many, changes are not recorded. */
  readonly limit: number;
  /** True while changes are not recorded. */
  readonly stopped: boolean;
  /** True if changes were not recorded, and the reconciliation that finds them has not been requested yet. */
  readonly missed: boolean;
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

interface PlannerState {
  /** Resume points by database; that of the store's own has the key ''. */
  readonly tokens: Readonly<Record<string, unknown>>;
}

/**
 * Definitions, leadership and progress: what outlives a leader. `saveState`, `saveCheckpoint` and `saveBlocked` compare
 * terms record by record: they refuse a leader once a later one has written that record. `load` and `saveTokens`
 * refuse it as soon as another one leads. After false, or undefined, a leader stops.
 */
export interface PlannerStore {
  /**
   * Keeps definitions in the registry: none → kept. One that is there stays; only `since` moves.
   * Returns an advert for each, in order, which the instance sends with each renewal. Repeat: the same adverts.
   * Caller: each instance with reactive tasks, at its start and for tasks that are added later; then it calls
   * `notifyPeers`.
   */
  publish(plans: readonly TaskPlan[]): Promise<readonly TaskAdvert[]>;
  /**
   * Returns definitions in the registry: all, or those of `which` that are there. Repeat: safe. Caller: the leader, and
   * management.
   */
  plans(which?: readonly DefinitionName[]): Promise<readonly PublishedPlan[]>;
  /** Returns the states of all tasks that a leader has planned. Repeat: safe. */
  states(): Promise<readonly TaskState[]>;
  /**
   * Writes the given fields of a task's state, and makes the state if there is none (a part of a missing state may be
   * dropped). `wanted` and `handlerVersion` become the greater of the stored and the given value, so requests of
   * others are kept.
   * Precondition: no later term has written this state.
   * Returns true, or false if a later one has. Repeat: safe.
   */
  saveState(term: Term, task: string, fields: Partial<TaskState>): Promise<boolean>;
  /**
   * Takes the lead: the term `from` → the next term, under this life. `from` undefined: no instance has ever led.
   * Precondition: the stored term is still `from`.
   * Returns the new term, or undefined if another instance was faster.
   * Repeat: undefined, although the first call may have succeeded; a look at the cluster shows that, and the election
   * takes one more term.
   * Caller: the election, once the last leader has resigned or was fenced.
   */
  lead(self: Instance, from: number | undefined): Promise<Term | undefined>;
  /**
   * Gives up the lead: the leader's life becomes null, its term stays.
   * Precondition: life and term lead. Repeat: no effect.
   * Caller: the leader at its stop; then it calls `notifyPeers`, so that another takes over at once.
   */
  resign(term: Term): Promise<void>;
  /** Returns the resume points, or undefined if life and term do not lead any more. Repeat: safe. */
  load(term: Term): Promise<PlannerState | undefined>;
  /**
   * Keeps resume points of the databases that are named; others stay. A store that deletes changes once they were
   * planned deletes them here.
   * Precondition: life and term lead. Returns whether they do. Repeat: safe.
   * Caller: the leader, after all before the point was planned, parked, blocked or asked for by `request`.
   */
  saveTokens(term: Term, tokens: Readonly<Record<string, unknown>>): Promise<boolean>;
  /** Returns how far the reconciliation of a source has come, or undefined if none is under way. Repeat: safe. */
  checkpoint(source: Source): Promise<Checkpoint | undefined>;
  /**
   * Keeps how far a reconciliation has come; undefined: it is over.
   * Precondition: no later term has written it. Returns true, or false if a later one has. Repeat: safe.
   */
  saveCheckpoint(term: Term, source: Source, checkpoint: Checkpoint | undefined): Promise<boolean>;
  /** Returns the blocked documents, by task; a list may be empty. Repeat: safe. Caller: a new leader, at its start. */
  blocked(): Promise<readonly BlockedOfTask[]>;
  /**
   * Keeps all blocked documents of one task, in place of what was kept before.
   * Precondition: no later term has written it. Returns true, or false if a later one has. Repeat: safe.
   * Caller: the leader, before a resume point moves past the changes of these documents.
   */
  saveBlocked(term: Term, documents: BlockedOfTask): Promise<boolean>;
  /**
   * Asks for reconciliation of these tasks, or of all: `wanted` + 1 in each state, with the reason. No term is needed.
   * Returns the names that are known, by state or by definition. A task without a state is only named: its first
   * registration looks at everything.
   * Repeat: `wanted` is raised once more, which costs at most one reconciliation.
   * Caller: `tasks.reconcile()`, and the leader whenever it may have missed something.
   */
  request(tasks: readonly string[] | undefined, reason: string): Promise<readonly string[]>;
  /**
   * Wakes every instance that listens, for tasks; with `news` also the instances that may plan. Repeat: safe.
   */
  notifyPeers(news: boolean): Promise<void>;
}

/** Everything that a store with watchable data offers. */
export interface ReactiveStore<Tx = unknown> {
  /**
   * Names the collection of coordination documents. Only for MongoDB: throws an `OptionError` if the store is open or
   * was given another name, and in stores that have no such collection. Memory ignores it.
   * Caller: a mill with `reactive.globalsCollection`, before each `acquire`; the same name again is accepted.
   */
  useGlobals(collection: string): void;
  /**
   * Returns the plan if nothing is wrong with it as far as the definition alone tells; no call to the database.
   * Errors: an `OptionError` that begins with `where`.
   * Caller: `mill.reactiveTask()`; `prepare` checks again.
   */
  check(where: string, plan: TaskPlan): TaskPlan;
  /**
   * Asks the server whether it understands the definitions, and makes what their tasks need: collections, indexes,
   * triggers. A store that begins to note changes here also asks for reconciliation, in the same transaction.
   * Repeat: safe, also on several instances at once.
   * Errors: an `OptionError` if a definition, or a right, is at fault; a `StoreError` otherwise.
   * Caller: each instance for its own tasks, and the leader for those that are new to it; it leaves out what fails.
   */
  prepare(plans: readonly TaskPlan[]): Promise<void>;
  /**
   * Returns the tasks. `plans` returns those that have a handler here, and is asked anew with each call; where other
   * tasks live, the registry says. Cheap: mill, engine and metrics each call it.
   */
  tasks(plans: () => ReadonlyMap<string, TaskPlan>): TaskStore<Tx>;
  /** Documents → tasks. */
  readonly planning: PlanStore;
  /** What outlives a leader. */
  readonly planner: PlannerStore;
  /** Removes tasks that left the code. */
  readonly forgetting: ForgettingStore;
}
