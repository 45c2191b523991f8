import type { Emitter } from '../../core/emitter.js';
import { asError } from '../../core/errors.js';
import { deadLetter } from '../../core/records/dead-letter.js';
import { deadLetterId, failedRunId, isLate, toJob, type JobRecord } from '../../core/records/job.js';
import { orderOf } from '../../core/records/limit-order.js';
import { shellArgument } from '../../core/text/shell.js';
import type { Logger } from '../../core/logger.js';
import type { Meter } from '../../core/meter.js';
import type { Finished, Outcome } from '../../core/records/outcome.js';
import { endOf, thrownOutcome } from '../../engine/record/ending.js';
import type { FailureLog } from '../../engine/record/failure-log.js';
import type { LaneOptions } from '../../engine/claim/lanes.js';
import type {
  About,
  AttemptControl,
  BatchControl,
  BatchMember,
  Conclusion,
  WorkRunner,
} from '../../engine/work-runner.js';
import type { NewJob, Settlement, Store } from '../../store/port.js';
import { CATCH_UP_LIMIT, isTooLate } from '../../time/missed.js';
import { bare, conclude, withExtra, type Failed } from './conclude.js';
import type { JobContext, AnyHandler } from '../context.js';
import { validated } from '../definition.js';
import type { JobEvents } from '../events.js';
import { keyOf } from '../enqueue/limit-key.js';
import { recurrenceOf } from '../recurrence.js';
import type { Registry, Worker } from '../registry.js';
import type { Results } from '../results.js';
import { BatchRun } from './batch-run.js';
import { JobCalls, type JobCallsHost } from './job-calls.js';
import { Threads } from './threads.js';

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
  /** Callers in this process that may be waiting for the result of a job. */
  readonly results: Pick<Results, 'ended'>;
}

/** Runs jobs for the engine: calls their handlers and concludes what each outcome means. */
export class JobRunner implements WorkRunner<JobRecord, Settlement>, JobCallsHost {
  readonly #options: JobRunnerOptions;
  /** Names whose handlers have called `complete` in this process: they are treated as `transactional` from then on. */
  readonly #completing = new Set<string>();
  readonly #threads: Threads;

  #lanes: { readonly revision: number; readonly workers: ReadonlyMap<string, LaneOptions> } | undefined;

  constructor(options: JobRunnerOptions) {
    this.#options = options;
    this.#threads = new Threads(options.log);
  }

  /** Jobs that may be started only once are claimed for a free slot, never ahead of one. */
  workers(): ReadonlyMap<string, LaneOptions> {
    const { registry } = this.#options;
    // The engine asks before each claim, and there may be thousands of names.
    if (this.#lanes?.revision === registry.revision) return this.#lanes.workers;
    const workers = new Map(
      [...registry.workers].map(([name, { work, compiled }]) => [
        name,
        {
          concurrency: work.concurrency,
          ahead: compiled.retry.maxAttempts > 1,
          ...(work.batch === undefined ? {} : { batch: work.batch }),
        },
      ]),
    );
    this.#lanes = { revision: registry.revision, workers };
    return workers;
  }

  /** Loads handlers that run in threads. Rejects if one of them cannot be used. */
  prepare(): Promise<void> {
    return this.#threads.prepare(this.#options.registry.workers.values());
  }

  /** Called after the engine has stopped: ends threads, also those of handlers that ignored their signal. */
  stop(): Promise<void> {
    return this.#threads.stop();
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
    const worker = this.#options.registry.workers.get(job.name);
    // A handler of batches may have replaced the one that the job was claimed for.
    if (worker === undefined || worker.work.batch !== undefined) return { kind: 'released' };
    const instead = this.#insteadOf(job);
    if (instead !== undefined) return { kind: instead };
    const run = new JobRun(job, attempt, this);
    this.#began(job);
    return run.perform(this.#handlerOf(worker), (data) => validate(worker, data));
  }

  async performBatch(members: readonly BatchMember<JobRecord>[], control: BatchControl): Promise<void> {
    const [{ work }] = members as readonly [BatchMember<JobRecord>];
    const worker = this.#options.registry.workers.get(work.name);
    const isOver = worker?.work.batch === undefined;
    const runs = members.filter((member) => {
      const instead = isOver ? 'released' : this.#insteadOf(member.work);
      if (instead === undefined) this.#began(member.work);
      else member.end({ kind: instead });
      return instead === undefined;
    });
    if (worker === undefined || runs.length === 0) return;
    const isByKey = worker.work.batch?.byKey === true;
    await new BatchRun(runs, { control, isByKey }, this).perform(this.#handlerOf(worker), (data) =>
      validate(worker, data),
    );
  }

  /** How the attempt of a job ends that is too late to be run; undefined if it is not. */
  #insteadOf(job: JobRecord): 'skipped' | 'expired' | undefined {
    if (this.#tooLate(job)) return 'skipped';
    return isLate(job, this.store.clock.now()) ? 'expired' : undefined;
  }

  #handlerOf(worker: Worker): AnyHandler {
    const { handler } = worker;
    return handler instanceof URL ? this.#threads.handlerOf(worker, handler) : handler;
  }

  #began(job: JobRecord): void {
    const { events, instanceId, store, meter } = this.#options;
    meter.began('job', job.name, job.nextRunAt.getTime(), store.clock.now());
    if (events.has('job:start')) events.emit('job:start', { job: toJob(job), instanceId });
  }

  get store(): Store {
    return this.#options.store;
  }

  concludeIn(job: JobRecord, attempt: AttemptControl, finished: Finished): Conclusion<Settlement> {
    this.#completing.add(job.name);
    const extra = attempt.unwritten();
    return this.conclude(job, finished, extra === undefined ? {} : { extra });
  }

  progressed(job: JobRecord, progress: unknown): void {
    const { events, instanceId } = this.#options;
    events.emit('job:progress', { job: toJob(job), progress, instanceId });
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
    const { policies = {}, extra, refusals = 0, isStored = false } = about;
    const letterName = registry.deadLetter(job.name, policies);
    const needs = { stored: false };
    const letter = (failed: Failed): Settlement['letter'] => {
      needs.stored = letterName !== undefined && !isStored;
      return letterName === undefined || needs.stored
        ? undefined
        : this.#letter(letterName, failed, refusals);
    };
    const conclusion = conclude(job, finished, {
      letter,
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
    if (needs.stored) return { ...conclusion, needsStored: true };
    if (refusals > 1) return bare(conclusion);
    return extra === undefined ? conclusion : withExtra(conclusion, extra);
  }

  /** A letter that the database found too large goes without a history. */
  #letter(name: string, failed: Failed, refusals: number): Settlement['letter'] {
    const { registry, store } = this.#options;
    const { job, id, error, finishedAt, history } = failed;
    const limits = { rules: store.payload, maxBytes: store.maxPayloadBytes };
    const { priority = 0, retryPolicy, timeoutMs, expireInMs } = registry.options(name) ?? {};
    const about = { id, name: job.name, data: job.data };
    const data = deadLetter(about, error, refusals > 0 ? [] : history, limits);
    return {
      id: deadLetterId(job.id, job.leaseToken, job.lockedAt),
      name,
      data,
      status: 'pending',
      priority,
      nextRunAt: finishedAt,
      createdAt: finishedAt,
      wake: 1,
      ...this.#letterKey(name, data, finishedAt),
      ...(expireInMs === undefined ? {} : { startBy: new Date(finishedAt.getTime() + expireInMs) }),
      ...(retryPolicy === undefined ? {} : { retryPolicy }),
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
      ...(job.trace === undefined ? {} : { trace: job.trace }),
    };
  }

  /** A payload without a usable key gets the key '': it must not prevent the failure from being recorded. */
  #letterKey(name: string, data: unknown, dueAt: Date): Pick<NewJob, 'limitKey' | 'limitOrder'> {
    const { registry, store, log } = this.#options;
    const { keyPath } = registry.options(name) ?? {};
    if (keyPath === undefined) return {};
    const limitOrder = orderOf(dueAt.getTime(), store.clock.now());
    try {
      return { limitKey: keyOf(`dead letter "${name}"`, keyPath, data), limitOrder };
    } catch (error) {
      log.warn(
        { name, err: asError(error) },
        `dead letter "${name}" gets the key '': its key cannot be found`,
      );
      return { limitKey: '', limitOrder };
    }
  }

  recorded(record: JobRecord, finished: Finished, conclusion: Conclusion<Settlement>): void {
    const { events, results, meter } = this.#options;
    const { settlement, retryAt } = conclusion;
    const { outcome, startedAt, finishedAt } = finished;
    const runMs = startedAt === undefined ? undefined : finishedAt - startedAt;
    const isCancelled = settlement.status === 'cancelled' && outcome.kind !== 'expired';
    const end = isCancelled ? 'cancelled' : endOf(outcome, retryAt !== undefined);
    meter.ended('job', record.name, end, finishedAt, runMs);
    if ('error' in outcome && settlement.status !== 'cancelled')
      this.#failed(record, outcome.error, conclusion);
    if (HEARD.some((event) => events.has(event))) this.#tell(record, finished, conclusion);
    if (settlement.status !== 'pending') {
      results.ended(record.id, () => ({ ...record, ...settledView(settlement) }));
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
    if (outcome.kind === 'expired') events.emit('job:expire', { job, instanceId });
    else if (settlement.status === 'cancelled') events.emit('job:cancel', { job, instanceId });
  }
}

const validate = ({ definition: { name, schema } }: Worker, data: unknown): Promise<unknown> =>
  validated(`job "${name}"`, schema, data);

/** What can be done about a job that failed for good. Of a recurring one, a failed copy of the run is kept. */
function adviceFor(job: JobRecord, { remove }: Settlement): string {
  if (remove === true) return 'It is not kept: the retention of failed jobs is 0.';
  const isSchedule = job.repeatInterval !== undefined;
  const id = isSchedule ? failedRunId(job.id, job.scheduledFor ?? job.nextRunAt) : job.id;
  const continues = isSchedule ? 'The schedule continues. ' : '';
  return `${continues}To run it again: mill.jobs.retry(${JSON.stringify(id)}), or tidemill retry ${shellArgument(id)}`;
}

/** The events that the end of an attempt may emit. Without a listener for one of them, no payload is built. */
const HEARD = ['job:complete', 'job:fail', 'job:retry', 'job:cancel', 'job:expire'] as const;

function settledView({ set, status }: Settlement): Partial<JobRecord> {
  // Null removes a field, except in `result` and `progress`, where it may be the handler's value.
  const given = (field: string): boolean => field === 'result' || field === 'progress';
  const fields = Object.entries(set).filter(
    ([field, value]) => value !== undefined && (value !== null || given(field)),
  );
  return { ...(Object.fromEntries(fields) as Partial<JobRecord>), status, lockedAt: null };
}

/** One call of a handler, and what the handler requested through its context. */
class JobRun {
  readonly #job: JobRecord;
  readonly #attempt: AttemptControl;
  readonly #calls: JobCalls;
  #deferred: Outcome | undefined;

  constructor(job: JobRecord, attempt: AttemptControl, host: JobCallsHost) {
    this.#job = job;
    this.#attempt = attempt;
    this.#calls = new JobCalls(job, attempt, host);
  }

  async perform(handler: AnyHandler, validate: (data: unknown) => Promise<unknown>): Promise<Outcome> {
    let outcome: Outcome;
    try {
      const data = await validate(this.#job.data);
      this.#attempt.checkLease();
      const result = await (handler as (job: unknown) => unknown)(this.#context(data));
      outcome = this.#deferred ?? this.#calls.returned(result);
    } catch (thrown) {
      outcome = thrownOutcome(thrown, this.#attempt.signal);
    }
    return this.#calls.settled(outcome);
  }

  #context(data: unknown): JobContext {
    const own: Pick<JobContext, 'defer' | 'complete'> = {
      defer: (until) => {
        this.#deferred = this.#calls.deferred(until);
      },
      complete: ({ transaction, result }) => this.#calls.complete(transaction, result),
    };
    return Object.assign(this.#calls.facts(data), own);
  }
}
