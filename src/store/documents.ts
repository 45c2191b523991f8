/**
 * What a scheduler of documents needs of a database: three methods. The others are abilities: a store that has one is
 * used by it, one that has not is served by the three.
 */
import type { Clock } from '../core/clock.js';
import type { FieldValues } from '../core/fields.js';
import type { TimeRange } from './work.js';

/** A document, as its schedule sees it. */
export interface DocumentJob<Doc = Record<string, unknown>> {
  /** Any value that identifies the document to its store. */
  readonly id: unknown;
  /** When it was due, as it stood before the lock. */
  readonly sleepUntil?: Date | null;
  /** Cron text, `@daily`, `@every 1h30m`; none: it runs once. */
  readonly interval?: string | null;
  /** No run is planned after it. */
  readonly repeatUntil?: Date | null;
  /** Delete the document when no run is left. */
  readonly autoRemove?: boolean | null;
  /** The zone in which the interval is read. */
  readonly timezone?: string | null;
  /** What went wrong so far. */
  readonly failure?: DocumentFailure | null;
  /** The end of the last lock that left a mark. Equal to `sleepUntil`: whoever had it died. */
  readonly lockedUntil?: Date | null;
  /**
   * What the schedule says (`interval`, `repeatUntil`, `autoRemove`, `timezone`), in any form that its store can compare with
   * what is there later. Given back as `ifRevision`.
   */
  readonly revision?: unknown;
  /** The other fields. */
  readonly data?: Readonly<Record<string, unknown>>;
  /** The whole document, as handlers get it. Default: the fields above and those of `data`, together. */
  readonly document?: Doc;
}

/** Kept in the document, under a path of its own. */
export interface DocumentFailure {
  /** Failures in a row. */
  readonly count: number;
  readonly reason: string;
  readonly firstAt: Date;
  readonly at: Date;
  /** The time that the failed run was for; a later success plans from it. */
  readonly scheduledFor?: Date;
  /** No attempt is left, or the schedule cannot be read. */
  readonly ended: boolean;
  /** The mark of a lock, where failures are written while there is one. */
  readonly lockedUntil?: Date;
}

/** Undefined leaves a field as it is. Null sets it to null, or, for `failure`, takes it off. */
export interface DocumentChanges {
  readonly sleepUntil?: Date | null;
  readonly autoRemove?: boolean | null;
  readonly failure?: DocumentFailure | null;
}

export interface StoreCall {
  /** Aborts when nobody waits for the answer any more. */
  readonly signal: AbortSignal;
}

export interface LockCall extends StoreCall {
  /** Keep the end of the lock beside failures as well; only asked of stores that say `marks`. */
  readonly marks?: boolean;
}

export interface Fenced {
  /** Write only if `sleepUntil` has this value; null: if it has none. Left out: write in any case. */
  readonly ifSleepUntil?: Date | null;
  /** Write only if the schedule still says this; only given for documents that came with a `revision`. */
  readonly ifRevision?: unknown;
}

/** The preconditions alone, of a call's options. */
export const fenceOf = ({ ifSleepUntil, ifRevision }: Fenced): Fenced => ({
  ...(ifSleepUntil === undefined ? {} : { ifSleepUntil }),
  ...(ifRevision === undefined ? {} : { ifRevision }),
});

/** One write of a batch. */
export type DocumentWrite = Fenced & { readonly id: unknown } & (
    { readonly changes: DocumentChanges } | { readonly remove: true }
  );

export interface DocumentLook {
  /** How far away the earliest due time is; 0 or less: it is due. Null: none is within what was asked. */
  readonly dueInMs: number | null;
  /** Documents whose `sleepUntil` is neither a date nor null. */
  readonly misfits: readonly Misfit[];
}

export interface Misfit {
  readonly id: unknown;
  readonly value: unknown;
}

export interface DocumentWatch {
  /** True where no wake-up can be lost: then nobody polls, as long as the store can also look. Default: false. */
  readonly direct?: boolean;
  close(): Promise<void>;
}

/**
 * `due` and `waiting`: its time has come, or will; one that runs is waiting for the end of its lock. `failed`: no run is
 * planned, and the last one failed for good. `parked`: no run is planned.
 */
export type DocumentState = 'due' | 'waiting' | 'failed' | 'parked';

/** Which documents, for people who look. */
export interface DocumentQuery {
  /** Those with a time, or those without: the two are not mixed. Absent: of any state, by their keys. */
  readonly states?: readonly DocumentState[];
  /** Texts that an earlier answer had as `key`. */
  readonly keys?: readonly string[];
  /** Text contained in the failure's reason. */
  readonly error?: string;
  /** Parts of the document and the values that they have. */
  readonly data?: FieldValues;
  readonly sleepUntil?: TimeRange;
  readonly direction: 1 | -1;
  readonly limit: number;
  /** Start after this one, in the order of due times, or of keys where there are none. */
  readonly after?: { readonly at: Date | null; readonly key: string };
}

export interface FoundDocuments<Doc> {
  readonly documents: readonly { readonly key: string; readonly job: DocumentJob<Doc> }[];
  readonly more: boolean;
  /** The time limit was reached: there may be more than was found. */
  readonly partial: boolean;
}

/** Where documents are, for a scheduler. */
export interface DocumentJobStore<Doc = Record<string, unknown>> {
  /** Finds the next document that is due, sets its `sleepUntil` to `lockUntil`, and answers it as it was before. Atomic. */
  lockNext(lockUntil: Date, call: LockCall): Promise<DocumentJob<Doc> | null | undefined>;
  /** False: the precondition did not hold, or the document is gone. */
  update(id: unknown, changes: DocumentChanges, options: Fenced & StoreCall): Promise<boolean>;
  remove(id: unknown, options: Fenced & StoreCall): Promise<boolean>;

  /**
   * The document as it is now, or null: asked for after a write that was refused, so that a schedule that was changed during
   * its run is concluded as it is. Without it, and without `revision`, runs are concluded from the copy that the lock read.
   */
  current?(id: unknown, call: StoreCall): Promise<DocumentJob<Doc> | null | undefined>;

  /** The clock by which documents are due. Without it the clock of the process is used. */
  now?(): Promise<Date>;
  /** The same for those that live in this process, or keep an estimate of their server's. */
  readonly clock?: Clock;
  /** As `lockNext`, for up to `limit` documents. */
  lockMany?(
    lockUntil: Date,
    options: { readonly limit: number } & LockCall,
  ): Promise<readonly DocumentJob<Doc>[]>;
  /** Several writes at once, each under its own precondition; answers for each, in order. */
  settle?(writes: readonly DocumentWrite[], call: StoreCall): Promise<readonly boolean[]>;
  /** Extends locks: as `update` of `sleepUntil`, for several. */
  renew?(
    locks: readonly ({ readonly id: unknown } & Fenced)[],
    lockUntil: Date,
    call: LockCall,
  ): Promise<readonly boolean[]>;
  /**
   * True where `lockNext`, `lockMany` and `renew` can leave a mark in the document, so that with a policy for retries a
   * crash counts as a failure.
   */
  readonly marks?: boolean;
  /** What is due within a while. `known` are ids of misfits that need not be named again. */
  look?(
    options: { readonly withinMs: number; readonly known: readonly unknown[] } & StoreCall,
  ): Promise<DocumentLook>;
  /** Calls back when something may be due. It only shortens a wait. */
  watch?(wake: () => void): Promise<DocumentWatch>;
  /** How many match, up to `limit`. */
  count?(query: Omit<DocumentQuery, 'direction' | 'after'>, call: StoreCall): Promise<number>;
  /** Documents for people who look; by due time, and never all at once. */
  find?(query: DocumentQuery, call: StoreCall): Promise<FoundDocuments<Doc>>;
  /** The schedule of a document that was read elsewhere. */
  read?(document: Doc): DocumentJob<Doc>;
  /** Called by the scheduler's start. `counts`: failures are to be kept in documents; refused where they cannot be. */
  open?(needs: { readonly counts: boolean }): Promise<void>;
  /** Called by the scheduler's stop. */
  close?(): Promise<void>;
  /** What is missing for a poll to be cheap, as text; empty where all is well. */
  indexFaults?(): Promise<readonly string[]>;
}

/** Where a document keeps the parts of its schedule: dot paths. */
export interface DocumentFields {
  readonly sleepUntil: string;
  readonly interval: string;
  readonly repeatUntil: string;
  readonly autoRemove: string;
  /** Null: documents have no zone of their own. */
  readonly timezone: string | null;
  /** Reason and count of failures. Null: they are kept nowhere. */
  readonly failure: string | null;
}

/** The documents of one collection, or the rows of one table. */
export interface DocumentPlace {
  readonly collection: string;
  /** MongoDB: another database than the store's. */
  readonly database?: string;
  /** Where the parts of a schedule are. Default: at their own names, `failure` at `scheduleFailure`. */
  readonly fields?: Partial<DocumentFields>;
  /** Only documents that match: a query on MongoDB, comparisons or `{ sql, values }` on tables, a function in memory. */
  readonly condition?: unknown;
}
