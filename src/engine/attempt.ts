import type { Clock, Timer } from '../core/clock.js';
import { AttemptTimeoutError, LeaseLostError } from '../core/errors.js';
import type { Finished, Outcome } from '../core/records/outcome.js';
import type { Work } from '../core/records/work.js';
import { leaseOf, type Lease } from '../store/port.js';
import type { AttemptControl, WorkRunner } from './work-runner.js';

/** What the engine does for an attempt. */
export interface AttemptEngine extends Pick<AttemptControl, 'note' | 'unwritten'> {
  /** False if the lease of the instance has ended, by the clock. */
  readonly isHeld: () => boolean;
}

/** One run of one handler, with its signal. */
export class Attempt<W extends Work = Work> implements AttemptControl {
  readonly work: W;
  readonly lease: Lease;
  readonly startedAt: number;
  readonly note: AttemptControl['note'];
  readonly unwritten: AttemptControl['unwritten'];
  inTransaction = false;
  /** Its handler was called, as far as is known. */
  hasBegun = false;
  /** Called when the signal aborts, for the batch that the attempt belongs to. */
  aborted?: (reason: Error) => void;
  readonly #isHeld: () => boolean;
  /** Created on first use: most handlers never read their signal, and creating one is slow. */
  #controller: AbortController | undefined;

  constructor(work: W, startedAt: number, engine: (attempt: Attempt<W>) => AttemptEngine) {
    this.work = work;
    this.lease = leaseOf(work);
    this.startedAt = startedAt;
    const { isHeld, note, unwritten } = engine(this);
    this.#isHeld = isHeld;
    this.note = note;
    this.unwritten = unwritten;
  }

  get signal(): AbortSignal {
    return this.#made().signal;
  }

  abort(reason: Error): void {
    this.#made().abort(reason);
    this.aborted?.(reason);
  }

  get isAborted(): boolean {
    return this.#controller?.signal.aborted === true;
  }

  checkLease(): void {
    if (!this.#isHeld())
      this.abort(new LeaseLostError('The lease of this instance ended before the handler was called.'));
    this.#controller?.signal.throwIfAborted();
  }

  #made(): AbortController {
    return (this.#controller ??= new AbortController());
  }
}

export interface AttemptOptions<W extends Work> {
  readonly clock: Clock;
  readonly runner: Pick<WorkRunner<W, unknown>, 'perform' | 'timeoutMs'>;
  /** Called when a handler runs past its timeout. `handler` resolves when it ends at last. */
  readonly abandoned: (attempt: Attempt<W>, handler: Promise<unknown>) => void;
}

/**
 * Runs the handler until it ends or its timeout passes, whichever comes first. At the timeout the signal aborts, the
 * attempt has failed and its slot is free, even if the handler ignores the signal and continues.
 */
export async function runAttempt<W extends Work>(
  attempt: Attempt<W>,
  options: AttemptOptions<W>,
): Promise<Finished> {
  const { clock, runner } = options;
  attempt.hasBegun = true;
  const handler = runner.perform(attempt.work, attempt);
  const timeoutMs = runner.timeoutMs(attempt.work);
  const outcome =
    timeoutMs === undefined ? await handler : await withTimeout(attempt, handler, timeoutMs, options);
  return { outcome, startedAt: attempt.startedAt, finishedAt: clock.now() };
}

function withTimeout<W extends Work>(
  attempt: Attempt<W>,
  handler: Promise<Outcome>,
  timeoutMs: number,
  { clock, abandoned }: AttemptOptions<W>,
): Promise<Outcome> {
  return new Promise((resolve) => {
    const timer: Timer = clock.timer(timeoutMs, () => {
      const error = new AttemptTimeoutError(
        `${attempt.work.name} ${attempt.work.id} ran past its timeout of ${String(timeoutMs)} ms.`,
      );
      attempt.abort(error);
      resolve({ kind: 'timedOut', error });
      abandoned(attempt, handler);
    });
    void handler.then((outcome) => {
      timer.cancel();
      resolve(outcome);
    });
  });
}
