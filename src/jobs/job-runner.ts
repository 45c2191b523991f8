import type { Emitter } from '../core/emitter.js';
import { LeaseLostError, OptionError } from '../core/errors.js';
import { failedRunId, toJob, type JobRecord } from '../core/records/job.js';
import { shellArgument } from '../core/text/shell.js';
import type { Logger } from '../core/logger.js';
import type { Meter } from '../core/meter.js';
import type { Finished, Outcome } from '../core/records/outcome.js';
import { show } from '../core/options.js';
import { checkPayload } from '../core/payload.js';
import { afterTransaction, endOf, thrownOutcome } from '../engine/record/ending.js';
import type { FailureLog } from '../engine/record/failure-log.js';
import type { LaneOptions } from '../engine/claim/lanes.js';
import type { About, AttemptControl, Conclusion, WorkRunner } from '../engine/work-runner.js';
import type { Settlement, Store } from '../store/port.js';
import { toInstant } from '../time/duration.js';
import { CATCH_UP_LIMIT, isTooLate } from '../time/recurrence.js';
import { bare, conclude, withExtra } from './conclude.js';
import type { JobContext, AnyHandler } from './context.js';
import { validated } from './definition.js';
import type { JobEvents } from './events.js';
import { recurrenceOf } from './recurrence.js';
import type { Registry } from './registry.js';

export interface JobRunnerOptions {
  readonly registry: Registry;
  readonly store: Store;
  readonly instanceId: string;
  readonly historyLimit: number;
  readonly pollMs: { readonly max: number; readonly maxWithoutWakeUp: number };
  readonly events: Emitter<JobEvents>;
  readonly log: Logger;
  readonly meter: Meter;
  readonly failures: FailureLog;
  /** Called when a job has ended: a caller in this process may be waiting for its result. */
  readonly ended: (id: string, job: () => JobRecord) => void;
}

/** Runs jobs for the engine: calls their handlers and concludes what each outcome means. */
export class JobRunner implements WorkRunner<JobRecord, Settlement> {
  readonly #options: JobRunnerOptions;
  /** Names whose handlers have called `complete` in this process: they are treated as `transactional` from then on. */
  readonly #completing = new Set<string>();

  constructor(options: JobRunnerOptions) {
    this.#options = options;
  }

  /** Jobs that may be started only once are claimed for a free slot, never ahead of one. */
  workers(): ReadonlyMap<string, LaneOptions> {
    const workers = [...this.#options.registry.workers];
    return new Map(
      workers.map(([name, { work, compiled }]) => [
        name,
        { concurrency: work.concurrency, ahead: compiled.retry.maxAttempts > 1 },
      ]),
    );
  }

  mayComplete(job: JobRecord): boolean {
    const worker = this.#options.registry.workers.get(job.name);
    return this.#completing.has(job.name) || worker?.compiled.transactional === true;
  }

  maxAttempts(job: JobRecord): number {
    return this.#options.registry.retryRule(job.name, job.retryPolicy, undefined).maxAttempts;
  }

  /** Judged by the policies of the instance that ran the job: that instance decided whether to mark the start. */
  isLastAttempt(job: JobRecord, policies: Readonly<Record<string, unknown>>): boolean {
    const rule = this.#options.registry.foreignRule(job.name, job.retryPolicy, policies);
    return rule !== undefined && this.attempt(job) >= rule.maxAttempts;
  }

  attempt(job: JobRecord): number {
    return job.failCount + 1;
  }

  timeoutMs(job: JobRecord): number | undefined {
    return job.timeoutMs ?? this.#options.registry.workers.get(job.name)?.compiled.timeoutMs;
  }

  async perform(job: JobRecord, attempt: AttemptControl): Promise<Outcome> {
    const { registry, events, instanceId, store, meter } = this.#options;
    const worker = registry.workers.get(job.name);
    if (worker === undefined) return { kind: 'released' };
    if (this.#tooLate(job)) return { kind: 'skipped' };
    const run = new Run(
      job,
      attempt,
      store,
      (work, finished) => {
        this.#completing.add(job.name);
        const extra = attempt.unwritten();
        return this.conclude(work, finished, extra === undefined ? {} : { extra });
      },
      (progress) => {
        events.emit('job:progress', { job: toJob(job), progress, instanceId });
      },
    );
    meter.began('job', job.name, job.nextRunAt.getTime(), store.clock.now());
    if (events.has('job:start')) events.emit('job:start', { job: toJob(job), instanceId });
    return run.perform(worker.handler, (data) =>
      validated(`job "${job.name}"`, worker.definition.schema, data),
    );
  }

  #tooLate(job: JobRecord): boolean {
    if (job.missed !== 'skip' || job.failCount > 0) return false;
    const recurrence = recurrenceOf(job);
    const now = new Date(job.lockedAt ?? this.#options.store.clock.now());
    const { max, maxWithoutWakeUp } = this.#options.pollMs;
    const attention = { delayMs: Math.max(max, maxWithoutWakeUp) };
    return recurrence !== null && isTooLate(recurrence, job.nextRunAt, now, attention);
  }

  conclude(job: JobRecord, finished: Finished, about: About = {}): Conclusion<Settlement> {
    const { registry, instanceId, historyLimit, log } = this.#options;
    const { policies = {}, extra, refusals = 0 } = about;
    const conclusion = conclude(job, finished, {
      instanceId,
      retry: registry.retryRule(job.name, job.retryPolicy, policies[job.name]),
      retention: registry.retention(job.name),
      historyLimit: registry.workers.get(job.name)?.work.historyLimit ?? historyLimit,
      dropped: () => {
        log.warn(
          { job: job.id },
          `schedule ${job.id} had missed more than ${String(CATCH_UP_LIMIT)} runs; older ones were dropped`,
        );
      },
    });
    if (refusals > 1) return bare(conclusion);
    return extra === undefined ? conclusion : withExtra(conclusion, extra);
  }

  recorded(record: JobRecord, finished: Finished, conclusion: Conclusion<Settlement>): void {
    const { events, ended, meter } = this.#options;
    const { settlement, retryAt } = conclusion;
    const { outcome, startedAt, finishedAt } = finished;
    const runMs = startedAt === undefined ? undefined : finishedAt - startedAt;
    const end = settlement.status === 'cancelled' ? 'cancelled' : endOf(outcome, retryAt !== undefined);
    meter.ended('job', record.name, end, finishedAt, runMs);
    if ('error' in outcome && settlement.status !== 'cancelled')
      this.#failed(record, outcome.error, conclusion);
    if (HEARD.some((event) => events.has(event))) this.#tell(record, finished, conclusion);
    if (settlement.status !== 'pending') {
      ended(record.id, () => ({ ...record, ...settledView(settlement) }));
    }
  }

  #failed(record: JobRecord, error: Error, { settlement, retryAt }: Conclusion<Settlement>): void {
    const { id, name, failCount } = record;
    const advice = (): string => adviceFor(record, settlement);
    this.#options.failures.failed({ kind: 'job', name, id, attempt: failCount + 1, error, retryAt, advice });
  }

  #tell(record: JobRecord, finished: Finished, { settlement, retryAt }: Conclusion<Settlement>): void {
    const { events, instanceId } = this.#options;
    const { outcome } = finished;
    const job = toJob({ ...record, ...settledView(settlement) });
    if (outcome.kind === 'returned' || outcome.kind === 'recorded') {
      const durationMs = finished.finishedAt - (finished.startedAt ?? finished.finishedAt);
      events.emit('job:complete', { job, result: outcome.result, durationMs, instanceId });
    } else if ('error' in outcome && settlement.status !== 'cancelled') {
      const willRetry = retryAt !== undefined;
      events.emit('job:fail', {
        job,
        error: outcome.error,
        attempt: record.failCount + 1,
        willRetry,
        instanceId,
      });
      if (retryAt !== undefined) events.emit('job:retry', { job, runAt: retryAt, instanceId });
    }
    if (settlement.status === 'cancelled') events.emit('job:cancel', { job, instanceId });
  }
}

/** What can be done about a job that failed for good. Of a recurring one, a failed copy of the run is kept. */
function adviceFor(job: JobRecord, { remove }: Settlement): string {
  if (remove === true) return 'It is not kept: the retention of failed jobs is 0.';
  const isSchedule = job.repeatInterval !== undefined;
  const id = isSchedule ? failedRunId(job.id, job.scheduledFor ?? job.nextRunAt) : job.id;
  const continues = isSchedule ? 'The schedule continues. ' : '';
  return `${continues}To run it again: mill.jobs.retry(${JSON.stringify(id)}), or tidemill retry ${shellArgument(id)}`;
}

/** The events that the end of an attempt may emit. Without a listener for one of them, no payload is built. */
const HEARD = ['job:complete', 'job:fail', 'job:retry', 'job:cancel'] as const;

function settledView({ set, status }: Settlement): Partial<JobRecord> {
  // Null removes a field, except in `result` and `progress`, where it may be the handler's value.
  const given = (field: string): boolean => field === 'result' || field === 'progress';
  const fields = Object.entries(set).filter(
    ([field, value]) => value !== undefined && (value !== null || given(field)),
  );
  return { ...(Object.fromEntries(fields) as Partial<JobRecord>), status, lockedAt: null };
}

/** One call of a handler, and what the handler requested through its context. */
class Run {
  readonly #job: JobRecord;
  readonly #attempt: AttemptControl;
  readonly #store: Store;
  readonly #conclude: (work: JobRecord, finished: Finished) => Conclusion<Settlement>;
  readonly #progressed: (value: unknown) => void;
  readonly #startedAt: number;
  #deferredTo: Date | undefined;
  #completedWith: { readonly result: unknown } | undefined;

  constructor(
    job: JobRecord,
    attempt: AttemptControl,
    store: Store,
    conclude: (work: JobRecord, finished: Finished) => Conclusion<Settlement>,
    progressed: (value: unknown) => void,
  ) {
    this.#job = job;
    this.#attempt = attempt;
    this.#store = store;
    this.#conclude = conclude;
    this.#progressed = progressed;
    this.#startedAt = store.clock.now();
  }

  async perform(handler: AnyHandler, validate: (data: unknown) => Promise<unknown>): Promise<Outcome> {
    let outcome: Outcome;
    try {
      const data = await validate(this.#job.data);
      this.#attempt.checkLease();
      const result = await (handler as (job: unknown) => unknown)(this.#context(data));
      outcome = this.#returned(result);
    } catch (thrown) {
      outcome = thrownOutcome(thrown, this.#attempt.signal);
    }
    if (this.#completedWith === undefined) return outcome;
    const { result } = this.#completedWith;
    const { jobs, clock } = this.#store;
    return afterTransaction(jobs, this.#attempt, clock, { outcome, result, call: 'complete()' });
  }

  #returned(result: unknown): Outcome {
    if (this.#deferredTo !== undefined) return { kind: 'deferred', runAt: this.#deferredTo };
    const kept = result === undefined ? undefined : this.#checked('result', result);
    return { kind: 'returned', result: kept };
  }

  #checked(what: string, value: unknown): unknown {
    return checkPayload(
      `job "${this.#job.name}"`,
      what,
      value,
      this.#store.payload,
      this.#store.maxPayloadBytes,
    );
  }

  #context(data: unknown): JobContext {
    const { id, name, failCount, uniqueKey, scheduledFor } = this.#job;
    const attempt = this.#attempt;
    return {
      id,
      name,
      data,
      failCount,
      attempt: failCount + 1,
      get signal() {
        return attempt.signal;
      },
      ...(uniqueKey === undefined ? {} : { uniqueKey }),
      ...(scheduledFor === undefined ? {} : { scheduledFor }),
      progress: (value) => {
        const kept = this.#checked('progress', value);
        this.#attempt.note({ progress: { value: kept } });
        this.#progressed(kept);
      },
      log: (message, fields) => {
        const kept = fields === undefined ? {} : { fields: this.#checked('log fields', fields) };
        this.#attempt.note({
          log: { message: typeof message === 'string' ? message : show(message), ...kept },
        });
      },
      defer: (until) => {
        this.#deferredTo = toInstant(`job "${name}"`, 'defer', until, this.#store.clock.now());
      },
      complete: (options) => this.#complete(options),
    };
  }

  /** A retried transaction calls this again: each try writes the settlement anew. */
  async #complete({ transaction, result }: { transaction: unknown; result?: unknown }): Promise<void> {
    if (!this.#store.isTransaction(transaction)) {
      const message = `complete() needs { transaction }: the handle of a ${this.#store.kind} transaction.`;
      throw new OptionError(message);
    }
    const kept = result === undefined ? undefined : this.#checked('result', result);
    this.#attempt.inTransaction = true;
    const outcome = { kind: 'recorded', result: kept } as const;
    const finished = { outcome, startedAt: this.#startedAt, finishedAt: this.#store.clock.now() };
    const settle = async (work: JobRecord): Promise<boolean> =>
      (await this.#store.jobs.settleIn(this.#conclude(work, finished).settlement, transaction)) === 'settled';
    // The schedule may have changed during the run: if this attempt still holds it, conclude from its present state.
    if (!(await settle(this.#job))) {
      const now = await this.#store.jobs.heldIn(this.#attempt.lease, transaction);
      if (now === undefined || !(await settle(now))) {
        throw new LeaseLostError(`${this.#job.name} ${this.#job.id} is no longer held by this attempt.`);
      }
    }
    this.#completedWith = { result: kept };
  }
}
