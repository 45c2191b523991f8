/**
 * The port of reactive tasks: what planner, workers and management ask of a database whose data is watched. The rules
 * by which a change becomes work are the store's to evaluate, server-side: documents never come to the planner.
 */
import { TidemillError, type TidemillErrorOptions } from '../core/errors.js';
import type { FailureLine } from '../core/records/failure-groups.js';
import type { FieldValues } from '../core/fields.js';
import type { Attempt } from '../core/records/job.js';
import type { TaskRecord, TaskStatus } from '../core/records/task.js';
import type { TraceContext } from '../core/tracer.js';
import type { FailureKind } from '../core/records/work.js';
import type { Instance, Lease, TaskAdvert, TimeRange, WorkStore } from './work.js';

/** Where the watched documents live. */
export interface Source {
  /** Absent: the store's own database. */
  readonly database?: string;
  readonly collection: string;
}

export type DeleteWhen = 'sourceDocumentDeleted' | 'sourceDocumentDeletedOrNoLongerMatching' | 'never';
export type OnVersionChange = 'none' | 'reprocess_failed' | 'reprocess_all';

/** All that a planner needs to know of a task; whoever leads may not have its handler. */
export interface TaskPlan {
  readonly task: string;
  readonly source: Source;
  /** A query or an expression of the store's own; absent: every document. */
  readonly filter?: unknown;
  /** Absent: the whole document is watched. */
  readonly watchProjection?: unknown;
  readonly debounce: { readonly waitMs: number; readonly maxWaitMs: number };
  readonly resetRetriesOnDataChange: boolean;
  readonly cleanup: { readonly deleteWhen: DeleteWhen; readonly keepForMs: number };
  readonly evolution: {
    readonly handlerVersion: number;
    readonly onHandlerVersionChange: OnVersionChange;
    readonly reconcileOnTriggerChange: boolean;
  };
  /** Milliseconds, or `CRON …`. */
  readonly reconcileEvery?: number | string;
}

/** A plan as the registry keeps it. */
export interface PublishedPlan {
  readonly id: string;
  readonly plan: TaskPlan;
  /** Identifies filter and projection: where it changes, documents have to be looked at again. */
  readonly trigger: string;
  readonly firstSeenAt: Date;
  /** A point in the history from before it was last published, to follow its changes from; absent if the store has none. */
  readonly since?: unknown;
}

/** What the cluster knows of one task, whoever leads. */
export interface TaskState {
  readonly task: string;
  /** The definition that is planned by. */
  readonly definition: string;
  readonly trigger: string;
  /** The handler's version of that definition. */
  readonly version: number;
  /** The highest version whose reprocessing was done: an older deployment never undoes it. */
  readonly handlerVersion: number;
  /** Reconciliations asked for, and done: where the first is ahead, one is due. */
  readonly wanted: number;
  readonly done: number;
  readonly reason?: string;
  readonly lastReconciledAt?: Date;
  readonly lastCleanedAt?: Date;
  /** How far a cleanup has come: text that `clean` returned. Null if none is under way. */
  readonly cleanedUpTo?: string | null;
  /**
   * Since when, and why, the leader plans without it. Written, together with a raised `wanted`, before a resume point
   * moves past a change that it did not take into account.
   */
  readonly leftOutSince?: Date | null;
  readonly leftOutReason?: string | null;
  /** When an instance that advertises it was last seen. */
  readonly lastSeenAt: Date;
}

/** Proof of leadership: a write of the planner's state that does not match it is refused. */
export interface Term {
  readonly life: string;
  readonly term: number;
}

/** How far a reconciliation of one source has come. */
export interface Checkpoint {
  /** The tasks and definitions that it is for; another set begins anew. */
  readonly tasks: readonly string[];
  readonly phase: 'documents' | 'tasks';
  /** Opaque text of the store's own: after which document, or task, to go on. */
  readonly after?: string;
  readonly processed: number;
}

export interface Change {
  readonly collection: string;
  /** The document's id, as the store reads it. */
  readonly id: unknown;
  /** The same as text: equal for equal ids. */
  readonly key: string;
  /** `insert`: it was not there before, so it cannot have left anything. */
  readonly kind: 'insert' | 'update' | 'delete';
}

/** What a feed brings, in order. */
export type FeedEvent =
  | { readonly kind: 'change'; readonly change: Change; readonly token: unknown; readonly at: Date }
  /** A collection was dropped, renamed or came by renaming: all of it has to be looked at again. */
  | { readonly kind: 'upheaval'; readonly collections: readonly string[] | 'all'; readonly token: unknown };

/** Changes were missed for good: only looking at everything again finds what they were. */
export class HistoryLostError extends TidemillError {
  static override readonly brand: string = 'HistoryLostError';
  constructor(message: string, options?: TidemillErrorOptions) {
    super('HISTORY_LOST', message, options);
  }
}

/** Changes of one database, from a resume point on. */
export interface Feed {
  /**
   * The next event; rejects when the feed breaks. Waits for as long as nothing happens. A call also says that the event
   * before has arrived.
   */
  next(): Promise<FeedEvent>;
  /** The newest resume point before which every event has arrived; it moves on while nothing happens. */
  readonly token: unknown;
  close(): Promise<void>;
}

/** Which changes to follow, and from where. */
export interface FeedRequest {
  /** Absent: the store's own. */
  readonly database: string | undefined;
  readonly collections: readonly string[];
  /** The resume point; undefined: from now on. */
  readonly token: unknown;
  /** Go back to the first of these that is earlier than the resume point: `PublishedPlan.since` of tasks that are new. */
  readonly since?: readonly unknown[];
  /** Who follows: what it tells writers is refused once another leads. */
  readonly term: Term;
}

/** What the end of a task's attempt writes. A task that is dirty goes back to pending, whatever it came to. */
export interface TaskSettlement {
  readonly lease: Lease;
  readonly name: string;
  readonly status: 'completed' | 'failed' | 'pending';
  /** When to run again; absent for `pending`: as before. */
  readonly scheduledAt?: Date;
  /** Not a failure: no attempt is used, and the wait counts from where it began. */
  readonly takeBack: boolean;
  /** Not before `scheduledAt`, also where the document changes meanwhile. */
  readonly deferred: boolean;
  /** The version was not handled: when the document matches again, it runs. */
  readonly skipped: boolean;
  /** Dirty: a new sequence of attempts begins. */
  readonly resetRetries: boolean;
  readonly failure?: {
    readonly message: string;
    readonly kind: FailureKind;
    readonly firstErrorAt: Date;
  };
  readonly success?: { readonly at: Date; readonly durationMs: number };
  readonly entry?: Attempt;
  readonly historyLimit: number;
  readonly by: 'holder' | 'reclaimer';
}

export interface TaskFilter {
  readonly task?: readonly string[];
  readonly status?: readonly TaskStatus[];
  /** Part of the message, whatever the case of its letters, or an expression that it matches. */
  readonly errorMessage?: string | RegExp;
  readonly hasError?: boolean;
  /** A query on the source documents, of the store's own. */
  readonly sourceDocFilter?: unknown;
  readonly _id?: readonly unknown[];
  readonly scheduledAt?: TimeRange;
  readonly createdAt?: TimeRange;
  readonly updatedAt?: TimeRange;
  /** Texts that `cursorKey` answered. */
  readonly keys?: readonly string[];
  /** Parts of the source documents and the values that they have; in the place of `sourceDocFilter`. */
  readonly source?: FieldValues;
}

export type TaskCounts = Readonly<Record<TaskStatus, number>>;

/** How many tasks of one name there are. */
export interface TaskStats {
  readonly task: string;
  readonly counts: TaskCounts;
  /** Statuses of which there are more than the count says. */
  readonly capped: readonly TaskStatus[];
  /** When the first pending one is, or was, due. */
  readonly nextDue?: Date;
}

export interface TaskPageRequest {
  readonly field: 'scheduledAt' | 'createdAt' | 'updatedAt';
  readonly direction: 1 | -1;
  readonly limit: number;
  readonly skip: number;
  /** Start after this task, in the given direction. `key` is text that the store wrote itself. */
  readonly after?: { readonly at: Date; readonly key: string };
}

/** What a handler asks for when it fetches its document. */
export interface FetchRequest<Tx = unknown> {
  readonly plan: TaskPlan;
  readonly lease: Lease;
  readonly options: Readonly<Record<string, unknown>>;
  readonly transaction?: Tx;
}

/** Options that only a driver of MongoDB knows: other stores name them when they refuse them. */
export const ONLY_MONGODB_FETCHES_BY: readonly string[] = [
  'maxTimeMS',
  'comment',
  'readConcern',
  'readPreference',
  'promoteLongs',
  'promoteValues',
  'promoteBuffers',
  'bsonRegExp',
  'useBigInt64',
  'enableUtf8Validation',
  'allowDiskUse',
  'batchSize',
  'sort',
  'limit',
  'hint',
  'singleBatch',
  'noCursorTimeout',
];

/** Why there is no document to work on. */
export type Fetched = { readonly document: unknown } | { readonly missing: true };

export interface TaskStore<Tx = unknown> extends WorkStore<TaskRecord, TaskSettlement, Tx> {
  /** The document, if it is there, matches, and its watched fields are as they were. Calls of one moment share a query. */
  fetch(request: FetchRequest<Tx>): Promise<Fetched>;
  find(
    filter: TaskFilter,
    page: TaskPageRequest,
  ): Promise<{ readonly tasks: readonly TaskRecord[]; readonly more: boolean; readonly partial: boolean }>;
  cursorKey(record: TaskRecord): string;
  /** Stops counting at `most`. */
  count(filter: TaskFilter, most?: number): Promise<number>;
  /** A fresh sequence of attempts, due now; those that run become dirty. Answers how many. */
  retryMany(filter: TaskFilter): Promise<number>;
  stats(cap: number): Promise<readonly TaskStats[]>;
  /** What the failed tasks that were due last say, so many at most; of one name, or of all. */
  failures(limit: number, task?: string): Promise<readonly FailureLine[]>;
  /** The source document of a task as it is now, with where it is; undefined where it is gone. */
  document(
    record: TaskRecord,
  ): Promise<{ readonly collection: string; readonly document: unknown } | undefined>;
  /** Tasks of which nothing is started, and until when; null: until somebody resumes it. */
  pauses(): Promise<ReadonlyMap<string, Date | null>>;
  pause(task: string, until?: Date): Promise<void>;
  resume(task: string): Promise<void>;
}

/** What the planner asks. Every method may be repeated: a plan compares before it writes. */
export interface PlanStore {
  /**
   * Source documents -> tasks: which match, and whose watched fields changed. Documents it chokes on are named. No
   * statement takes longer than `limitMs`: one of a leader that died must be over before the next one plans. Tasks that
   * are to run keep `trace`.
   */
  plan(
    plan: TaskPlan,
    ids: readonly unknown[],
    limitMs: number,
    trace?: TraceContext,
  ): Promise<readonly Poisoned[]>;
  /** Tasks whose document is gone or does not match any more are marked so. Answers those that are blocked. */
  unmatch(plan: TaskPlan, ids: readonly unknown[], limitMs: number): Promise<readonly Poisoned[]>;
  /** Ends the task of a document that cannot be planned. */
  park(plan: TaskPlan, poisoned: readonly Poisoned[]): Promise<void>;
  /** The next ids of a source in its own order, ids only. */
  documents(source: Source, after: string | undefined, limit: number): Promise<IdPage>;
  /** About how many documents a source has. */
  size(source: Source): Promise<number>;
  /** The next source ids that a task knows, ids only. */
  known(plan: TaskPlan, after: string | undefined, limit: number): Promise<IdPage>;
  /** Deletes tasks whose time is over, a batch of them, or those of some ids; answers where to go on. */
  clean(
    plan: TaskPlan,
    scope: { ids: readonly unknown[] } | { after?: string; limit: number },
  ): Promise<Cleaned>;
  /** Resets finished tasks to pending, server-side. */
  reprocess(plan: TaskPlan, which: 'reprocess_failed' | 'reprocess_all'): Promise<number>;
  /** How far back the history of changes reaches; left out where none is ever lost, undefined where nobody can tell. */
  historySince?(): Promise<Date | undefined>;
  openFeed(request: FeedRequest): Promise<Feed>;
}

export interface Poisoned {
  readonly id: unknown;
  /** The same as text: equal for equal ids. */
  readonly key: string;
  readonly reason: string;
  /** Its task is held by somebody's open transaction: nothing is wrong with it, and it has to be tried again. */
  readonly blocked: boolean;
}

export interface IdPage {
  readonly ids: readonly unknown[];
  /** Where to go on; absent at the end. */
  readonly after?: string;
}

export interface Cleaned {
  readonly deleted: number;
  readonly after?: string;
}

/** A document whose task an open transaction holds. */
export interface HeldDocument {
  readonly id: unknown;
  /** The same as text: equal for equal ids. */
  readonly key: string;
}

/** Documents of one task that are still to be planned, whoever leads. */
export interface SetAside {
  readonly task: string;
  readonly documents: readonly HeldDocument[];
}

interface PlannerState {
  /** Resume points by database; the store's own is ''. */
  readonly tokens: Readonly<Record<string, unknown>>;
}

/** Definitions, leadership and progress: what outlives a planner. */
export interface PlannerStore {
  publish(plans: readonly TaskPlan[]): Promise<readonly TaskAdvert[]>;
  plans(): Promise<readonly PublishedPlan[]>;
  states(): Promise<readonly TaskState[]>;
  /** Writes the given fields only; what others asked for meanwhile stays. False where somebody else leads. */
  saveState(term: Term, task: string, fields: Partial<TaskState>): Promise<boolean>;
  /** Takes the lead from whoever had it (`from`: its term); undefined where somebody was faster. */
  lead(self: Instance, from: number | undefined): Promise<Term | undefined>;
  resign(term: Term): Promise<void>;
  load(term: Term): Promise<PlannerState | undefined>;
  saveTokens(term: Term, tokens: Readonly<Record<string, unknown>>): Promise<boolean>;
  checkpoint(source: Source): Promise<Checkpoint | undefined>;
  saveCheckpoint(term: Term, source: Source, checkpoint: Checkpoint | undefined): Promise<boolean>;
  /** What was set aside, by task. */
  setAside(): Promise<readonly SetAside[]>;
  /** All that is set aside of one task from now on. False where somebody else leads. */
  saveAside(term: Term, aside: SetAside): Promise<boolean>;
  /** Asks for reconciliation; of all tasks where none is named. Answers their names. */
  request(tasks: readonly string[] | undefined, reason: string): Promise<readonly string[]>;
  /** Wakes every instance; `news` is for the leader. */
  ring(news: boolean): Promise<void>;
}

/** Everything that a store with watchable data offers. */
export interface ReactiveStore<Tx = unknown> {
  /** Names the collection of coordination documents; before the store is opened, and as it names it itself. */
  useGlobals(collection: string): void;
  /** What is wrong with a definition, as far as the definition alone tells; throws. */
  check(where: string, plan: TaskPlan): TaskPlan;
  /** Asks the server whether it takes the definitions, and creates what tasks need; throws where it does not. */
  prepare(plans: readonly TaskPlan[]): Promise<void>;
  /** The tasks; `plans` are those that have a handler here. */
  tasks(plans: () => ReadonlyMap<string, TaskPlan>): TaskStore<Tx>;
  readonly planning: PlanStore;
  readonly planner: PlannerStore;
}
