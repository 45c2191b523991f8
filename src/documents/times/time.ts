import { systemClock, type Clock } from '../../core/clock.js';
import { ServerClock } from '../../core/server-clock.js';
import type { DocumentJobStore } from '../../store/documents.js';

/** The clock of a scheduler, and how its estimate of the store's time is kept current. */
export interface Time {
  readonly clock: Clock;
  /** Reads the store's time again if the estimate is older than a minute. */
  readonly refresh: () => Promise<void>;
}

const CLOCK_AGE_MS = 60_000;
const nothing = (): Promise<void> => Promise.resolve();

/**
 * Returns the given clock, else the store's own, else an estimate of the time that the store reports, else the
 * process's clock.
 */
export function timeOf(store: DocumentJobStore<never>, given: Clock | undefined): Time {
  const clock = given ?? store.clock;
  if (clock !== undefined) return { clock, refresh: nothing };
  if (store.now === undefined) return { clock: systemClock, refresh: nothing };
  const estimate = new ServerClock();
  const refresh = async (): Promise<void> => {
    if (estimate.age <= CLOCK_AGE_MS) return;
    const sentAt = estimate.monotonic();
    const now = await store.now?.();
    if (now !== undefined) estimate.learn(now, sentAt, estimate.monotonic());
  };
  return { clock: estimate, refresh };
}
