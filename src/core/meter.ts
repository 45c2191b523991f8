/** What made the work due. */
export type MeasuredKind = 'job' | 'task' | 'document';

/**
 * How an attempt ended, once its outcome is recorded. `retried`: it failed and will be retried. `failed`: it failed and
 * no attempt is left. `released`: it was handed back without using an attempt. `expired`: a job was cancelled because it
 * did not start in time.
 */
export type Ended =
  'completed' | 'retried' | 'failed' | 'skipped' | 'deferred' | 'cancelled' | 'released' | 'expired';

export const ENDS: readonly Ended[] = [
  'completed',
  'retried',
  'failed',
  'skipped',
  'deferred',
  'cancelled',
  'released',
  'expired',
];

/** What kept a limit from granting all that a claim wanted; `key`: the limits of each key. */
export type HeldUpBy = 'concurrency' | 'rate' | 'breaker' | 'key';

/**
 * Counts events where they happen. The methods are called for every piece of work, so an implementation only
 * increments numbers. Times are milliseconds since 1970, by the store's clock.
 */
export interface Meter {
  /** Jobs were accepted. */
  enqueued(name: string, count: number): void;
  /** A handler is about to run, for work that was due at `due`. */
  began(kind: MeasuredKind, name: string, due: number, at: number): void;
  /** The outcome of an attempt was recorded. `runMs` is absent if no handler ran, or it ran in another process. */
  ended(kind: MeasuredKind, name: string, ended: Ended, at: number, runMs?: number): void;
  /** The store refused an outcome: another holder has the work, or it was removed. */
  lost(kind: MeasuredKind, name: string): void;
  /** This process handed on work of a dead one. */
  reclaimed(kind: MeasuredKind, name: string): void;
  /** Work started that counts against a limit. `scope`: the kind and the name of the limit, with a colon between. */
  limitStarted(scope: string, count: number): void;
  /** A claim got less of a limit than it wanted. */
  limitHeldUp(scope: string, by: HeldUpBy): void;
  /** This instance lost its lease. */
  leaseLost(): void;
  /** A batch of changes was planned. */
  planned(changes: number): void;
  /** A source was fully reconciled. */
  reconciled(): void;
  /** Changes were lost: the database no longer has the history after the resume point. */
  historyLost(): void;
}

const nothing = (): void => undefined;

/** Counts nothing. */
export const noMeter: Meter = {
  enqueued: nothing,
  began: nothing,
  ended: nothing,
  lost: nothing,
  reclaimed: nothing,
  limitStarted: nothing,
  limitHeldUp: nothing,
  leaseLost: nothing,
  planned: nothing,
  reconciled: nothing,
  historyLost: nothing,
};
