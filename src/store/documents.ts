/**
 * The port of document schedules. Begin with `DocumentJobStore`: `lockNext`, `update` and `remove` are all that it
 * needs. The rest are optional; without them the scheduler falls back to these three. A document has no status: its
 * `sleepUntil` is null, a due time, or the end of a lock. Each write carries what its caller read as its fence.
 * docs/documents.md has an example of a store of your own; port.ts explains the words of the method comments.
 */
import type { Clock } from '../core/clock.js';
import type { FieldValues } from '../core/fields.js';
import type { TimeRange } from './work.js';

/** A document, as its schedule sees it. */
export interface DocumentJob<Doc = Record<string, unknown>> {
  /** Any value that identifies the document to its store. */
  readonly id: unknown;
  /** When it was due, as it stood before the lock; null or absent: no run is planned. */
  readonly sleepUntil?: Date | null;
  /** Cron text, `@daily`, `@every 1h30m`; null or absent: it runs once. */
  readonly interval?: string | null;
  /** No run is planned after it. */
  readonly repeatUntil?: Date | null;
  /** Delete the document when no run is left. */
  readonly autoRemove?: boolean | null;
  /** The zone in which the interval is read; null or absent: the scheduler's. */
  readonly timezone?: string | null;
  /** What went wrong so far. */
  readonly failure?: DocumentFailure | null;
  /** The end of the last lock that left a mark. If it equals `sleepUntil`, the process that held the lock died. */
  readonly lockedUntil?: Date | null;
  /**
   * What the schedule says (`interval`, `repeatUntil`, `autoRemove`, `timezone`), in any form that the store can
   * compare with what is there later. The scheduler gives it back as `ifRevision`. Absent: changes during a run go
   * unnoticed.
   */
  readonly revision?: unknown;
  /** The other fields. */
  readonly data?: Readonly<Record<string, unknown>>;
  /** The whole document, as handlers get it. Default: the fields above and those of `data`, together. */
  readonly document?: Doc;
}

/** Failures of a document, kept in it under `fields.failure`. */
export interface DocumentFailure {
  /** Failures in a row. */
  readonly count: number;
  readonly reason: string;
  readonly firstAt: Date;
  readonly at: Date;
  /** The time that the failed run was for; the next run is planned from it. */
  readonly scheduledFor?: Date;
  /** No attempt is left, or the schedule cannot be read. */
  readonly ended: boolean;
  /** The mark of a lock, if failures are written while there is one. */
  readonly lockedUntil?: Date;
}

/** An absent field stays as it is. Null sets it to null; for `failure`, it takes the field off. */
export interface DocumentChanges {
  readonly sleepUntil?: Date | null;
  readonly autoRemove?: boolean | null;
  readonly failure?: DocumentFailure | null;
}

export interface StoreCall {
  /** Aborts when the scheduler does not wait for the answer any more. */
  readonly signal: AbortSignal;
}

export interface LockCall extends StoreCall {
  /** Lock nothing once this time has passed by the store's clock. Only for schedules with limits. Absent: no end. */
  readonly notAfter?: Date;
  /** True: keep the end of the lock as `failure.lockedUntil` as well. Only if the store says `marks`. */
  readonly marks?: boolean;
}

/** The preconditions of a write; they belong inside it. */
export interface Fenced {
  /** Write only if `sleepUntil` has this value, to the millisecond; null: if it has none. Absent: in any case. */
  readonly ifSleepUntil?: Date | null;
  /** Write only if the schedule still says this; only given for documents that came with a `revision`. */
  readonly ifRevision?: unknown;
}

/** Only the preconditions of a call's options. */
export const fenceOf = ({ ifSleepUntil, ifRevision }: Fenced): Fenced => ({
  ...(ifSleepUntil === undefined ? {} : { ifSleepUntil }),
  ...(ifRevision === undefined ? {} : { ifRevision }),
});

/** One write of a batch. */
export type DocumentWrite = Fenced & { readonly id: unknown } & (
    { readonly changes: DocumentChanges } | { readonly remove: true }
  );

export interface DocumentLook {
  /**
   * How far away the earliest due time is, by the store's clock; 0 or less: it is due. Null: none is within
   * `withinMs`.
   */
  readonly dueInMs: number | null;
  /** Some documents whose `sleepUntil` is neither a date nor null; not all need be found by one look. */
  readonly misfits: readonly Misfit[];
}

export interface Misfit {
  readonly id: unknown;
  readonly value: unknown;
}

export interface DocumentWatch {
  /** True: no wake-up can be lost, so a scheduler whose store can also `look` does not poll. Default: false. */
  readonly direct?: boolean;
  /** Ends the wake-ups. Repeat: no effect. */
  close(): Promise<void>;
}

/**
 * `due`, `waiting`: its time has come, or will come; a document that runs waits for the end of its lock. `failed`: no
 * run is planned, and the last one failed for good. `parked`: no run is planned.
 */
export type DocumentState = 'due' | 'waiting' | 'failed' | 'parked';

/** Which documents, for people who look: all parts that are given must match; of a list, one of its values. */
export interface DocumentQuery {
  /**
   * Never mixed: `due` and `waiting`, in the order of due times, or `failed` and `parked`, in the order of ids.
   * Absent: documents of any state, in the order of ids.
   */
  readonly states?: readonly DocumentState[];
  /** Texts that `find` returned as `key`; any other text matches nothing. */
  readonly keys?: readonly string[];
  /** Text contained in the failure's reason, in upper or lower case. */
  readonly error?: string;
  /** Parts of the document, by dot path, and the values that they have. */
  readonly data?: FieldValues;
  readonly sleepUntil?: TimeRange;
  readonly direction: 1 | -1;
  readonly limit: number;
  /** Start after this document; `at` is null if it has no time. */
  readonly after?: { readonly at: Date | null; readonly key: string };
}

export interface FoundDocuments<Doc> {
  /** `key` identifies the document in `DocumentQuery`, as text of the store's own. */
  readonly documents: readonly { readonly key: string; readonly job: DocumentJob<Doc> }[];
  /** There is a next page. */
  readonly more: boolean;
  /** The store's time limit was reached: there may be more than was found. */
  readonly partial: boolean;
}

/**
 * Where documents are, for a scheduler. Moves of `sleepUntil`: due → end of a lock (`lockNext`, `lockMany`) → a later
 * end (`renew`) → the next time, null, or the document is gone (`update`, `remove`, `settle`). A lock has no owner:
 * the value that it wrote is its token. Errors other than `TidemillError` count as transient.
 */
export interface DocumentJobStore<Doc = Record<string, unknown>> {
  /**
   * Locks the document that is due first: due → `sleepUntil` = `lockUntil`. Two callers never get the same one.
   * Precondition: still due by the store's clock; if that is a server's, `lockUntil` is ahead of it, too; and
   * `notAfter` has not passed.
   * Returns the document as it was before the lock; null or undefined if none is due.
   * Repeat: locks another document. If an answer is lost, its document is due again when the lock ends.
   */
  lockNext(lockUntil: Date, call: LockCall): Promise<DocumentJob<Doc> | null | undefined>;
  /**
   * Writes the given fields of one document: a later end of its lock, its next time, a failure, or a time by hand.
   * Precondition: `options`. Returns false if it did not hold, or the document is gone; anything else means written.
   * Repeat: false, if the first call moved `sleepUntil`; the scheduler then knows that nothing is left to do.
   */
  update(id: unknown, changes: DocumentChanges, options: Fenced & StoreCall): Promise<boolean>;
  /**
   * Deletes one document.
   * Precondition: `options`. Returns false if it did not hold, or the document is gone. Repeat: false.
   * Caller: the scheduler, for `autoRemove` after the last run, and `reschedule()`.
   */
  remove(id: unknown, options: Fenced & StoreCall): Promise<boolean>;

  /**
   * Returns the document as it is now, or null or undefined if it is gone. Repeat: safe. Without it, or without
   * `revision`, a run is concluded from the copy that the lock read.
   * Caller: the scheduler, after a write that was refused: if the lock is its own still, the new schedule counts.
   */
  current?(id: unknown, call: StoreCall): Promise<DocumentJob<Doc> | null | undefined>;

  /** Returns the time by which documents are due. Without it, and without `clock`, the process's own clock counts. */
  now?(): Promise<Date>;
  /** The same, for a store that lives in this process or keeps an estimate of its server's clock. */
  readonly clock?: Clock;
  /**
   * As `lockNext`, for up to `limit` documents under one `lockUntil`. Returns those that this call locked, the first
   * due first; a document that another scheduler got is not among them. Repeat: as `lockNext`.
   */
  lockMany?(
    lockUntil: Date,
    options: { readonly limit: number } & LockCall,
  ): Promise<readonly DocumentJob<Doc>[]>;
  /**
   * Several `update` and `remove` calls at once, each under its own precondition. Returns true or false for each, in
   * order; a store may return true for a document that is already as the write would leave it.
   * Repeat: as `update`. Errors: some may have been written; the scheduler repeats all of them.
   */
  settle?(writes: readonly DocumentWrite[], call: StoreCall): Promise<readonly boolean[]>;
  /**
   * Extends locks: as `update` of `sleepUntil`, for several. A lock that has ended is extended if its fence still
   * holds.
   * Returns true or false for each, in order: false means that another process has the document, or has changed its
   * time.
   * Repeat: false for what the first call renewed, so after a lost answer the scheduler tries both values as fence.
   * Errors: it does not wait for open transactions for long; the scheduler then renews each lock by itself.
   */
  renew?(
    locks: readonly ({ readonly id: unknown } & Fenced)[],
    lockUntil: Date,
    call: LockCall,
  ): Promise<readonly boolean[]>;
  /**
   * True: `lockNext`, `lockMany` and `renew` can leave a mark in the document, so that with a retry policy a crash
   * counts as a failure. Read after `open`.
   */
  readonly marks?: boolean;
  /**
   * Returns when the first document is due, if that is within `withinMs`, and misfits other than the `known` ids.
   * Writes nothing, and costs less than a lock that finds nothing. Repeat: safe.
   * Caller: the scheduler's loop, before it locks and after an outage.
   */
  look?(
    options: { readonly withinMs: number; readonly known: readonly unknown[] } & StoreCall,
  ): Promise<DocumentLook>;
  /** Calls `wake` when something may be due. It only shortens a wait, unless it is `direct`. Returns its end. */
  watch?(wake: () => void): Promise<DocumentWatch>;
  /**
   * Returns how many documents match, up to `limit`. Repeat: safe.
   * Errors: a `TidemillError` with the code `TIME_LIMIT` if the store's time limit is reached.
   */
  count?(query: Omit<DocumentQuery, 'direction' | 'after'>, call: StoreCall): Promise<number>;
  /** Returns one page of the documents that match, never all at once. Repeat: safe. Caller: `find()` and `runNow()`. */
  find?(query: DocumentQuery, call: StoreCall): Promise<FoundDocuments<Doc>>;
  /** Returns the schedule of a document that the user read elsewhere; no call to the database. For `reschedule()`. */
  read?(document: Doc): DocumentJob<Doc>;
  /**
   * Opens what the store needs. `counts`: a retry policy is set, so failures have to be kept in documents.
   * Errors: an `OptionError` if there is no place for them.
   * Caller: the scheduler, before its first call; once until `close`.
   */
  open?(needs: { readonly counts: boolean }): Promise<void>;
  /** Closes it. Caller: the scheduler's stop, if `open` has succeeded. */
  close?(): Promise<void>;
  /** Returns what is missing for a cheap poll, as text; empty if nothing is. Repeat: safe. Logged at the start. */
  indexFaults?(): Promise<readonly string[]>;
}

/** Where a document keeps the parts of its schedule: dot paths. */
export interface DocumentFields {
  /** When the document is due; null parks it. Default: 'sleepUntil'. */
  readonly sleepUntil: string;
  /** Cron text or `@every …`, for a document that recurs. Default: 'interval'. */
  readonly interval: string;
  /** The last time at which it may run. Default: 'repeatUntil'. */
  readonly repeatUntil: string;
  /** Whether the document is deleted when no run is left. Default: 'autoRemove'. */
  readonly autoRemove: string;
  /** The document's time zone. Null: documents have no zone of their own. Default: 'timezone'. */
  readonly timezone: string | null;
  /** Reason and count of failures. Null: they are not kept. Default: 'scheduleFailure'. */
  readonly failure: string | null;
}

/** The documents of one collection, or the rows of one table. */
export interface DocumentPlace {
  /** The collection or table; `schema.table` on PostgreSQL. */
  readonly collection: string;
  /** MongoDB: the database of the collection. Default: the store's. */
  readonly database?: string;
  /** Where the parts of a schedule are: dot paths; on tables, columns or paths into columns of JSON. */
  readonly fields?: Partial<DocumentFields>;
  /**
   * Only documents that match: a query on MongoDB, comparisons or sql`…` on tables, values or a function in memory.
   * Default: all.
   */
  readonly condition?: unknown;
}
