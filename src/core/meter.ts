/** What made the work due. */
export type MeasuredKind = 'job' | 'task' | 'document';

/**
 * How an attempt ended, once that is recorded. `retried`: it failed, and is tried again. `failed`: it failed, and no
 * attempt is left. `released`: it was handed back, and counts as none.
 */
export type Ended = 'completed' | 'retried' | 'failed' | 'skipped' | 'deferred' | 'cancelled' | 'released';

export const ENDS: readonly Ended[] = [
  'completed',
  'retried',
  'failed',
  'skipped',
  'deferred',
  'cancelled',
  'released',
];

/**
 * What is counted, where it happens. Called for each piece of work: an implementation does no more than raise numbers.
 * Times are milliseconds since 1970, by the store's clock.
 */
export interface Meter {
  /** Jobs were accepted. */
  enqueued(name: string, count: number): void;
  /** A handler is about to be called, for work that was due at `due`. */
  began(kind: MeasuredKind, name: string, due: number, at: number): void;
  /** The end of an attempt was recorded. `runMs` is left out where its handler did not run, or not here. */
  ended(kind: MeasuredKind, name: string, ended: Ended, at: number, runMs?: number): void;
  /** An end was refused: somebody else has the work, or it is gone. */
  lost(kind: MeasuredKind, name: string): void;
  /** Work of a dead process was handed on by this one. */
  reclaimed(kind: MeasuredKind, name: string): void;
  /** This instance lost its lease. */
  leaseLost(): void;
  /** A batch of changes was planned. */
  planned(changes: number): void;
  /** A source was looked at as a whole. */
  reconciled(): void;
  /** Changes were missed for good. */
  historyLost(): void;
}

const nothing = (): void => undefined;

/** For those who do not want to know. */
export const noMeter: Meter = {
  enqueued: nothing,
  began: nothing,
  ended: nothing,
  lost: nothing,
  reclaimed: nothing,
  leaseLost: nothing,
  planned: nothing,
  reconciled: nothing,
  historyLost: nothing,
};
