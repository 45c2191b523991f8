/** What became of an attempt. The trigger decides what it means; a store only records. */
export type Outcome =
  | { readonly kind: 'returned'; readonly result: unknown }
  | { readonly kind: 'threw'; readonly error: Error }
  | { readonly kind: 'timedOut'; readonly error: Error }
  /** The process that ran it died; somebody else says so. */
  | { readonly kind: 'crashed'; readonly error: Error }
  | { readonly kind: 'deferred'; readonly runAt: Date }
  /** Handed back untried, or by a stop: no attempt is used. */
  | { readonly kind: 'released' }
  | { readonly kind: 'cancelled' }
  /** Too late for a schedule that skips missed runs. */
  | { readonly kind: 'skipped' }
  /** Completed inside the caller's transaction: already recorded. */
  | { readonly kind: 'recorded'; readonly result: unknown };

/** An attempt that is over. */
export interface Finished {
  readonly outcome: Outcome;
  /** Absent where the handler was never called. */
  readonly startedAt?: number;
  readonly finishedAt: number;
}
