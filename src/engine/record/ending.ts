/** Turns the end of a handler's run into an outcome, for every kind of work. */
import { Backoff } from '../../core/backoff.js';
import { pause, type Clock } from '../../core/clock.js';
import { asError, CancelledError, LeaseLostError, StoppingError, TidemillError } from '../../core/errors.js';
import type { Ended } from '../../core/meter.js';
import type { Outcome } from '../../core/records/outcome.js';
import type { TracedEnd } from '../../core/tracer.js';
import type { Work } from '../../core/records/work.js';
import type { WorkStore } from '../../store/port.js';
import type { AttemptControl, BatchMember } from '../work-runner.js';

const RETRY_MS = { min: 50, max: 2_000 };

/** The outcome of a handler that threw. After a cancel, a stop or a lost lease, the abort reason decides. */
export function thrownOutcome(thrown: unknown, signal: AbortSignal): Outcome {
  if (signal.aborted) {
    if (signal.reason instanceof CancelledError) return { kind: 'cancelled' };
    if (signal.reason instanceof StoppingError || signal.reason instanceof LeaseLostError)
      return { kind: 'released' };
  }
  return { kind: 'threw', error: asError(thrown) };
}

/** Ends a member of a batch whose lease is lost, and says whether the handler may see it. */
export function mayRun<W extends Work>(
  { attempt, hasEnded }: BatchMember<W>,
  end: (outcome: Outcome) => void,
): boolean {
  if (hasEnded) return false;
  try {
    attempt.checkLease();
    return true;
  } catch (thrown) {
    end(thrownOutcome(thrown, attempt.signal));
    return false;
  }
}

/** How metrics count the outcome. */
export function endOf(outcome: Outcome, isRetried: boolean): Ended {
  if ('error' in outcome) return isRetried ? 'retried' : 'failed';
  return outcome.kind === 'returned' || outcome.kind === 'recorded' ? 'completed' : outcome.kind;
}

/** How a span records the outcome. */
export const tracedEnd = (outcome: Outcome): TracedEnd => ({
  outcome: outcome.kind,
  ...('error' in outcome ? { error: outcome.error } : {}),
});

/** Asks who holds the work until the store answers, or until the signal aborts; after that the answer is irrelevant. */
async function whose(
  store: Pick<WorkStore<Work, unknown>, 'held' | 'settledUnder'>,
  { lease, signal }: AttemptControl,
  clock: Clock,
): Promise<'held' | 'settled' | 'lost' | 'unknown'> {
  for (const retry = new Backoff(RETRY_MS); ;) {
    try {
      if ((await store.held([lease]))[0] !== undefined) return 'held';
      // If it is not held, another holder may have it: the lease was lost, and the transaction with it.
      return (await store.settledUnder(lease)) ? 'settled' : 'lost';
    } catch {
      if (signal.aborted) return 'unknown';
      await pause(clock, retry.next(), signal);
    }
  }
}

export interface Completion {
  readonly outcome: Outcome;
  readonly result: unknown;
  readonly call: string;
  /** The handler of a batch gave this outcome itself, so it counts if the transaction was rolled back. */
  readonly isGiven?: boolean;
}

/**
 * The outcome of a handler that completed its work inside a transaction. Only the store knows whether it was committed.
 * `call` names the method that the handler called; `outcome` applies if the transaction was not committed.
 */
export async function afterTransaction(
  store: Pick<WorkStore<Work, unknown>, 'held' | 'settledUnder'>,
  attempt: AttemptControl,
  clock: Clock,
  { outcome, result, call, isGiven = false }: Completion,
): Promise<Outcome> {
  const state = await whose(store, attempt, clock);
  // If held, the transaction may still be open: such outcomes have a recorder of their own, which may wait.
  if (state === 'unknown' || state === 'lost') return { kind: 'released' };
  if (state === 'settled') return { kind: 'recorded', result };
  if (outcome.kind !== 'returned' || isGiven) return outcome;
  const message = `${call} was called, but its transaction was not committed when the handler returned. Await the commit inside the handler.`;
  return { kind: 'threw', error: new TidemillError('NOT_COMMITTED', message) };
}
