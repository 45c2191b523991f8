/** How an attempt ended. The work runner decides what that means; the store only records it. */
export type Outcome =
  | { readonly kind: 'returned'; readonly result: unknown }
  | { readonly kind: 'threw'; readonly error: Error }
  | { readonly kind: 'timedOut'; readonly error: Error }
  /** The process that ran it died or lost its lease. Another instance records this. */
  | { readonly kind: 'crashed'; readonly error: Error }
  | { readonly kind: 'deferred'; readonly runAt: Date }
  /** Handed back before it started, or because of a stop or a lost lease. No attempt is used. */
  | { readonly kind: 'released' }
  | { readonly kind: 'cancelled' }
  /**
   * Ended without work: too late for `missed: 'skip'`, or the document is gone, does not match or has changed. `byHandler`:
   * the handler found that out.
   */
  | { readonly kind: 'skipped'; readonly byHandler?: true }
  /** The job was claimed in time, but its turn came after its `startBy`. */
  | { readonly kind: 'expired' }
  /** Completed inside the handler's transaction, and so recorded already. */
  | { readonly kind: 'recorded'; readonly result: unknown };

/** An attempt that has ended. */
export interface Finished {
  readonly outcome: Outcome;
  /** Absent if the handler was never called. */
  readonly startedAt?: number;
  readonly finishedAt: number;
}

/** True if it is certain that the handler was not called. Of a process that died nobody knows. */
export const isUnstarted = (finished: Finished): boolean =>
  finished.outcome.kind !== 'crashed' && !wasStarted(finished);

/** False if the handler was never called, so that the attempt counts as no start. */
export const wasStarted = ({ outcome, startedAt }: Finished): boolean =>
  startedAt !== undefined &&
  outcome.kind !== 'expired' &&
  (outcome.kind !== 'skipped' || outcome.byHandler === true);
