import { pause, type Clock } from './clock.js';

export interface Renewal {
  readonly clock: Clock;
  readonly leaseMs: number;
  /** Returns false if the store did not answer; the renewal is then repeated sooner. Must not reject. */
  readonly renew: () => Promise<boolean>;
  /** The longest wait before a failed renewal is repeated. Default: 500 ms. */
  readonly mostRetryMs?: number;
}

/** Two renewals can fail before the lease ends. */
const RENEWALS_PER_LEASE = 3;
const TRIES_PER_LEASE = 10;
const MOST_RETRY_MS = 500;

/** How soon to try again if a renewal fails: well before the lease ends. */
export const retryAfter = (leaseMs: number, mostMs: number = MOST_RETRY_MS): number =>
  Math.min(mostMs, leaseMs / TRIES_PER_LEASE);

/** Renews a lease three times per duration, on its own timer, until `over` aborts. */
export async function keepRenewed(
  { clock, leaseMs, renew, mostRetryMs }: Renewal,
  over: AbortSignal,
): Promise<void> {
  const everyMs = leaseMs / RENEWALS_PER_LEASE;
  for (let waitMs = everyMs; await pause(clock, waitMs, over);) {
    const renewal = renew();
    clock.track?.(renewal);
    waitMs = (await renewal) ? everyMs : retryAfter(leaseMs, mostRetryMs);
  }
}
