/** How the call of a handler ends, whatever its work is. */
import { pause, type Clock } from '../../core/clock.js';
import { asError, CancelledError, LeaseLostError, StoppingError, TidemillError } from '../../core/errors.js';
import type { Ended } from '../../core/meter.js';
import type { Outcome } from '../../core/records/outcome.js';
import type { TracedEnd } from '../../core/tracer.js';
import type { Work } from '../../core/records/work.js';
import type { WorkStore } from '../../store/port.js';
import type { AttemptControl } from '../work-runner.js';

/** A throw after the signal aborted is the handler's answer to the signal: what counts is why it aborted. */
export function thrownOutcome(thrown: unknown, signal: AbortSignal): Outcome {
  if (signal.aborted) {
    if (signal.reason instanceof CancelledError) return { kind: 'cancelled' };
    if (signal.reason instanceof StoppingError || signal.reason instanceof LeaseLostError)
      return { kind: 'released' };
  }
  return { kind: 'threw', error: asError(thrown) };
}

/** What the end of an attempt counts as. */
export function endOf(outcome: Outcome, isRetried: boolean): Ended {
  if ('error' in outcome) return isRetried ? 'retried' : 'failed';
  return outcome.kind === 'returned' || outcome.kind === 'recorded' ? 'completed' : outcome.kind;
}

/** What a span says of it. */
export const tracedEnd = (outcome: Outcome): TracedEnd => ({
  outcome: outcome.kind,
  ...('error' in outcome ? { error: outcome.error } : {}),
});

/** Asked until the store answers, or until the lease is gone and the answer does not matter any more. */
async function whose(
  store: Pick<WorkStore<Work, unknown>, 'held' | 'settledUnder'>,
  { lease, signal }: AttemptControl,
  clock: Clock,
): Promise<'held' | 'settled' | 'lost' | 'unknown'> {
  for (let waitMs = 50; ; waitMs = Math.min(waitMs * 2, 2_000)) {
    try {
      if ((await store.held([lease]))[0] !== undefined) return 'held';
      // Not held may also mean that somebody else has it: the transaction was lost with the lease.
      return (await store.settledUnder(lease)) ? 'settled' : 'lost';
    } catch {
      if (signal.aborted) return 'unknown';
      await pause(clock, waitMs, signal);
    }
  }
}

/**
 * The handler completed its work inside a transaction: whether that was committed, only the store knows. `call` is what
 * the handler called, `outcome` what it came to otherwise.
 */
export async function afterTransaction(
  store: Pick<WorkStore<Work, unknown>, 'held' | 'settledUnder'>,
  attempt: AttemptControl,
  clock: Clock,
  { outcome, result, call }: { outcome: Outcome; result: unknown; call: string },
): Promise<Outcome> {
  const state = await whose(store, attempt, clock);
  // Held may also mean that the transaction is still open: the outcome is recorded apart, where it may wait for that.
  if (state === 'unknown' || state === 'lost') return { kind: 'released' };
  if (state === 'settled') return { kind: 'recorded', result };
  if (outcome.kind !== 'returned') return outcome;
  const message = `${call} was called, but its transaction was not committed when the handler returned.`;
  return { kind: 'threw', error: new TidemillError('NOT_COMMITTED', message) };
}
