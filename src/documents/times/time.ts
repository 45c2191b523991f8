import { systemClock, type Clock } from '../../core/clock.js';
import { ServerClock } from '../../core/server-clock.js';
import type { DocumentJobStore } from '../../store/documents.js';

/** Whose time it is, and how it is kept right. */
export interface Time {
  readonly clock: Clock;
  readonly refresh: () => Promise<void>;
}

const CLOCK_AGE_MS = 60_000;
const nothing = (): Promise<void> => Promise.resolve();

/** The clock that was given, the store's own, an estimate of the one that it tells, or the process's. */
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
