import type { Clock, Timer } from '../core/clock.js';
import { AttemptTimeoutError } from '../core/errors.js';
import type { Finished, Outcome } from '../core/records/outcome.js';
import type { Work } from '../core/records/work.js';
import { leaseOf, type Lease } from '../store/port.js';
import type { AttemptControl, WorkRunner } from './work-runner.js';

/** One run of one handler, with its signal. */
export class Attempt<W extends Work = Work> implements AttemptControl {
  readonly work: W;
  readonly lease: Lease;
  readonly startedAt: number;
  readonly note: AttemptControl['note'];
  inTransaction = false;
  /** Made when somebody asks for it: most handlers never look at their signal, and making one takes its time. */
  #controller: AbortController | undefined;

  constructor(work: W, startedAt: number, note: (attempt: Attempt<W>) => AttemptControl['note']) {
    this.work = work;
    this.lease = leaseOf(work);
    this.startedAt = startedAt;
    this.note = note(this);
  }

  get signal(): AbortSignal {
    return this.#made().signal;
  }

  abort(reason: Error): void {
    this.#made().abort(reason);
  }

  #made(): AbortController {
    return (this.#controller ??= new AbortController());
  }
}

export interface AttemptOptions<W extends Work> {
  readonly clock: Clock;
  readonly runner: Pick<WorkRunner<W, unknown>, 'perform' | 'timeoutMs'>;
  /** The handler ignored its timeout and goes on; called again when it ends at last. */
  readonly abandoned: (attempt: Attempt<W>, handler: Promise<unknown>) => void;
}

/**
 * Runs the handler to its end or to its timeout, whichever comes first. A handler that ignores its signal loses
 * its slot all the same: the attempt has failed, and what it does from then on nobody waits for.
 */
export async function runAttempt<W extends Work>(
  attempt: Attempt<W>,
  options: AttemptOptions<W>,
): Promise<Finished> {
  const { clock, runner } = options;
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
