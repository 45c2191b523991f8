import { LeaseLostError, OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import { checkPayload } from '../../core/payload.js';
import type { JobRecord } from '../../core/records/job.js';
import type { Finished, Outcome } from '../../core/records/outcome.js';
import { afterTransaction } from '../../engine/record/ending.js';
import type { AttemptControl, Conclusion } from '../../engine/work-runner.js';
import type { Settlement, Store } from '../../store/port.js';
import { toInstant, type Duration } from '../../time/duration.js';
import type { JobFacts } from '../context.js';

/** The job runner, as the handlers' calls see it. */
export interface JobCallsHost {
  readonly store: Store;
  /** Decides what a completion inside a transaction writes. */
  concludeIn(job: JobRecord, attempt: AttemptControl, finished: Finished): Conclusion<Settlement>;
  progressed(job: JobRecord, value: unknown): void;
}

/** What a handler may ask for one job, whether the job runs alone or in a batch. */
export class JobCalls {
  readonly #job: JobRecord;
  readonly #attempt: AttemptControl;
  readonly #host: JobCallsHost;
  readonly #startedAt: number;
  #completedWith: { readonly result: unknown } | undefined;

  constructor(job: JobRecord, attempt: AttemptControl, host: JobCallsHost) {
    this.#job = job;
    this.#attempt = attempt;
    this.#host = host;
    this.#startedAt = host.store.clock.now();
  }

  /** The part of a context that only tells about the job, or takes notes. */
  facts(data: unknown): JobFacts {
    const { id, name, failCount, uniqueKey, scheduledFor, limitKey = '' } = this.#job;
    const attempt = this.#attempt;
    return {
      id,
      name,
      data,
      failCount,
      attempt: failCount + 1,
      limitKey,
      get signal() {
        return attempt.signal;
      },
      ...(uniqueKey === undefined ? {} : { uniqueKey }),
      ...(scheduledFor === undefined ? {} : { scheduledFor }),
      progress: (value) => {
        const kept = this.checked('progress', value);
        this.#attempt.note({ progress: { value: kept } });
        this.#host.progressed(this.#job, kept);
      },
      log: (message, fields) => {
        const kept = fields === undefined ? {} : { fields: this.checked('log fields', fields) };
        this.#attempt.note({
          log: { message: typeof message === 'string' ? message : show(message), ...kept },
        });
      },
    };
  }

  checked(what: string, value: unknown): unknown {
    const { payload, maxPayloadBytes } = this.#host.store;
    return checkPayload(`job "${this.#job.name}"`, what, value, payload, maxPayloadBytes);
  }

  /** The outcome of a handler that returned this value. */
  returned(result: unknown): Outcome {
    return { kind: 'returned', result: result === undefined ? undefined : this.checked('result', result) };
  }

  deferred(until: Duration | Date): Outcome & { readonly kind: 'deferred' } {
    const runAt = toInstant(`job "${this.#job.name}"`, 'defer', until, this.#host.store.clock.now());
    return { kind: 'deferred', runAt };
  }

  /** A retried transaction calls this again: each try writes the settlement anew. */
  async complete(transaction: unknown, result: unknown): Promise<void> {
    const { store } = this.#host;
    if (!store.isTransaction(transaction)) {
      const message = `complete() needs { transaction }: the handle of a ${store.kind} transaction.`;
      throw new OptionError(message);
    }
    const kept = result === undefined ? undefined : this.checked('result', result);
    this.#attempt.inTransaction = true;
    const outcome = { kind: 'recorded', result: kept } as const;
    const finished = { outcome, startedAt: this.#startedAt, finishedAt: store.clock.now() };
    const settle = async (work: JobRecord): Promise<boolean> => {
      const { settlement } = this.#host.concludeIn(work, this.#attempt, finished);
      return (await store.jobs.settleIn(settlement, transaction)) === 'settled';
    };
    // The schedule may have changed during the run: if this attempt still holds it, conclude from its present state.
    if (!(await settle(this.#job))) {
      const now = await store.jobs.heldIn(this.#attempt.lease, transaction);
      if (now === undefined || !(await settle(now))) {
        throw new LeaseLostError(`${this.#job.name} ${this.#job.id} is no longer held by this attempt.`);
      }
    }
    this.#completedWith = { result: kept };
  }

  /** The outcome after the handler: if it completed the job in a transaction, only the store knows it. */
  settled(outcome: Outcome, isGiven = false): Outcome | Promise<Outcome> {
    if (this.#completedWith === undefined) return outcome;
    const { result } = this.#completedWith;
    const { jobs, clock } = this.#host.store;
    return afterTransaction(jobs, this.#attempt, clock, { outcome, result, call: 'complete()', isGiven });
  }
}
