import { within } from '../../core/clock.js';
import { pageOfItems } from '../../core/cursor.js';
import { OptionError, TidemillError } from '../../core/errors.js';
import { lazily } from '../../core/lazily.js';
import type { ErrorGroups, ErrorsOptions } from '../../core/records/failure-groups.js';
import { JOB_STATUSES, toJob, type Job, type JobRecord, type JobStatus } from '../../core/records/job.js';
import {
  checkBoolean,
  checkFunction,
  checkKeys,
  checkMost,
  checkName,
  checkText,
  show,
} from '../../core/options.js';
import {
  EVERYTHING,
  type JobFilter,
  type JobStore,
  type StatusCounts,
  type Store,
} from '../../store/port.js';
import { toInstant, toMs, type Duration } from '../../time/duration.js';
import { payloadOf } from '../enqueue/enqueuer.js';
import { checkExplicit, checkFilter, type JobsFilter } from './filter.js';
import { pageOf, type FindOptions } from './page.js';
import { isDefinition, type JobDefinition } from '../definition.js';
import type { Registry } from '../registry.js';
import type { Results } from '../results.js';
import type { JobWatch, Watched, WatchRegistry } from '../watch/watches.js';
import type { UpdateChanges } from './update.js';
import type { UnknownNames } from '../enqueue/unknown-names.js';

/** What a process that only enqueues does without. */
const loadGroups = lazily(() => import('../../core/records/failure-groups.js'));
const loadUpdate = lazily(() => import('./update.js'));

export interface JobPage {
  readonly items: readonly Job[];
  /** The cursor of the next page; null if there is none. */
  readonly next: string | null;
  /** The cursor of the previous page; null if there is none. */
  readonly previous: string | null;
  /** The search hit its time limit before the page was full: there may be more. */
  readonly partial?: true;
}

export interface JobStats extends StatusCounts {
  /** The approximate number of all jobs in the store. */
  readonly total: number;
  readonly names: Readonly<Record<string, StatusCounts>>;
  /** Name and status pairs with more jobs than were counted: their counts mean "at least". */
  readonly capped: readonly { readonly name: string; readonly status: JobStatus }[];
}

export interface Managed<Outcome extends string> {
  readonly outcome: Outcome;
  /** The job after the call; undefined if the outcome is `missing`. */
  readonly job: Job | undefined;
}

/** A filter with at least one condition, or `{ all: true }` for every job. */
export type Selection = JobsFilter | { readonly all: true };

export interface CountOptions {
  /** Stop counting here; a result equal to it means "at least". Default: count all. */
  readonly limit?: number;
}

export interface ManyOptions {
  /** Aborting it ends the operation after the batch that is being written. Default: none. */
  readonly signal?: AbortSignal;
  /**
   * Called after each batch with the number of jobs changed so far; the next batch waits for its promise. Default: none.
   */
  readonly onProgress?: (count: number) => unknown;
}

export interface ResultOptions {
  /** How long to wait for the job to end. Default: no limit. */
  readonly timeout?: Duration;
  /** Aborting it ends the wait. Default: none. */
  readonly signal?: AbortSignal;
}

export interface WatchOptions {
  /** Aborting it ends the iteration, without an error. Default: none. */
  readonly signal?: AbortSignal;
}

const BATCH = 500;
/** How many jobs of each status `stats` counts, shared among the names. */
const COUNT_CAP = 100_000;

const managed = <O extends string>(
  answer: { outcome: O; job: JobRecord } | undefined,
): Managed<O | 'missing'> =>
  answer === undefined
    ? { outcome: 'missing', job: undefined }
    : { outcome: answer.outcome, job: toJob(answer.job) };

export interface JobsOptions {
  readonly store: () => Promise<Store>;
  readonly registry: Registry;
  readonly results: Pick<Results, 'wait'>;
  readonly watches: WatchRegistry;
  /** Called when work may start at once. */
  readonly due: () => void;
  /** Called when a pending job was cancelled. */
  readonly cancelled: (job: Job) => void;
  /** Says in sentences why a job is not running. */
  readonly why: (id: string) => Promise<readonly string[]>;
  /** Undefined without a logger. */
  readonly unknownNames: UnknownNames | undefined;
}

/** How long a wait that has timed out asks for the reasons. */
const REASONS_MS = 2_000;

/** `mill.jobs`: reads and manages jobs, whichever instance runs them. */
export class Jobs {
  readonly #store: () => Promise<Store>;
  readonly #registry: Registry;
  readonly #results: Pick<Results, 'wait'>;
  readonly #watches: WatchRegistry;
  readonly #due: () => void;
  readonly #cancelled: (job: Job) => void;
  readonly #why: (id: string) => Promise<readonly string[]>;
  readonly #unknownNames: UnknownNames | undefined;

  constructor({ store, registry, results, watches, due, cancelled, why, unknownNames }: JobsOptions) {
    this.#store = store;
    this.#registry = registry;
    this.#results = results;
    this.#watches = watches;
    this.#due = due;
    this.#cancelled = cancelled;
    this.#why = why;
    this.#unknownNames = unknownNames;
  }

  /** Returns a job; undefined if there is none. */
  async get(id: string): Promise<Job | undefined> {
    const record = await (await this.#jobs()).get(checkText('jobs.get', 'id', id));
    return record && toJob(record);
  }

  /** Returns one page of the jobs that match; without a filter, of all jobs. */
  async find(filter?: JobsFilter, options?: FindOptions): Promise<JobPage> {
    const checked = checkFilter('jobs.find', filter);
    const { page, from, sort } = pageOf('jobs.find', options);
    const jobs = await this.#jobs();
    const found = await jobs.find(checked, page);
    const { items, next, previous } = pageOfItems(
      { items: found.jobs, more: found.more },
      { from },
      (record, back) => ({ at: record[sort.field], key: jobs.cursorKey(record), back, sort }),
    );
    return { items: items.map(toJob), next, previous, ...(found.partial ? { partial: true } : {}) };
  }

  /**
   * Tells what happens to one job, by its id, or to all that match a filter, in whichever process: iterate over the
   * answer with `for await`. With an id it begins with the job as it is (`current`), and ends after `completed`, `failed`
   * or `cancelled`, or when the job is deleted; it rejects if there is no such job (`JOB_MISSING`). With a filter it tells
   * what happens from the call on, until you leave the loop, `signal` aborts or the mill stops. States in between may be
   * left out, but the last state of each job is told.
   */
  watch(watched: string | JobsFilter, options: WatchOptions = {}): JobWatch {
    return this.#watches.watch(() => watchTarget(watched, options), options.signal);
  }

  /** Counts the jobs that match; without a filter, all jobs. */
  async count(filter?: JobsFilter, options: CountOptions = {}): Promise<number> {
    const checked = checkFilter('jobs.count', filter);
    const most = checkMost('jobs.count', options);
    return (await this.#jobs()).count(checked, most);
  }

  /** Groups the newest failed jobs by name and failure message, ignoring ids and numbers in the messages, but not status codes. */
  async errors(options: ErrorsOptions = {}): Promise<ErrorGroups> {
    const { checkErrorsOptions, groupsOf } = await loadGroups();
    const { limit, name } = checkErrorsOptions('jobs.errors', options);
    return groupsOf(await (await this.#jobs()).failures(limit + 1, name), limit);
  }

  /**
   * Counts jobs by name and status. At most 100,000 of each status are counted, shared among the names. If there are
   * more, `capped` lists the name and status, and the count means "at least".
   */
  async stats(): Promise<JobStats> {
    const { names, total } = await (await this.#jobs()).stats(COUNT_CAP);
    const sum = (status: JobStatus): number => names.reduce((count, { counts }) => count + counts[status], 0);
    const counts = Object.fromEntries(JOB_STATUSES.map((status) => [status, sum(status)])) as StatusCounts;
    return {
      ...counts,
      total,
      names: Object.fromEntries(names.map((one) => [one.name, one.counts])),
      capped: names.flatMap(({ name, capped }) => capped.map((status) => ({ name, status }))),
    };
  }

  /**
   * Cancels a job. A pending job is cancelled at once. If the job runs, the signal of its handler aborts, whichever
   * process runs it, and the outcome is `requested`. With `wait` the call resolves when the job has ended: `cancelled`,
   * or `finished` if it ended otherwise.
   */
  async cancel(
    id: string,
    options: {
      /** Wait until a running job has ended. Default: false. */
      readonly wait?: boolean;
    } = {},
  ): Promise<Managed<'cancelled' | 'requested' | 'finished' | 'missing'>> {
    checkKeys('jobs.cancel', options, ['wait']);
    const wait = checkBoolean('jobs.cancel', 'wait', options.wait ?? false);
    const jobs = await this.#jobs();
    const answer = await jobs.cancel(checkText('jobs.cancel', 'id', id), this.#registry.retention);
    if (answer?.outcome === 'cancelled') this.#cancelled(toJob(answer.job));
    if (answer?.outcome !== 'requested' || !wait) return managed(answer);
    const ended = await this.#results.wait(answer.job.id);
    return { outcome: ended.status === 'cancelled' ? 'cancelled' : 'finished', job: toJob(ended) };
  }

  /**
   * Gives a failed or cancelled job a fresh sequence of attempts, due now. `live`: another job has its unique key now.
   * `unfinished`: the job is pending or runs. `finished`: it has completed. With `data`, the job gets this payload in
   * the same write; the limits of the store hold for it, and so does the job's schema if this process works on its
   * name. Default: the payload stays.
   */
  async retry(
    id: string,
    options: {
      /** A payload that replaces the job's, in the same write. Default: the payload stays. */
      readonly data?: unknown;
    } = {},
  ): Promise<Managed<'retried' | 'live' | 'unfinished' | 'finished' | 'missing'>> {
    checkKeys('jobs.retry', options, ['data']);
    checkText('jobs.retry', 'id', id);
    const store = await this.#store();
    const { data } = options;
    const replacement = data === undefined ? undefined : await this.#replacement(store, id, data);
    const answer = await store.jobs.retry(id, new Date(store.clock.now()), replacement);
    this.#due();
    return managed(answer);
  }

  async #replacement(store: Store, id: string, data: unknown): Promise<{ readonly data: unknown }> {
    const name = (await store.jobs.get(id))?.name ?? '';
    const schema = this.#registry.workers.get(name)?.definition.schema;
    return { data: await payloadOf('jobs.retry', store, schema, data) };
  }

  /** Deletes a job, unless it runs. */
  async remove(id: string): Promise<Managed<'removed' | 'running' | 'missing'>> {
    return managed(await (await this.#jobs()).remove(checkText('jobs.remove', 'id', id)));
  }

  /** Moves a pending job to another time. */
  async reschedule(
    id: string,
    when: Date | Duration,
  ): Promise<Managed<'rescheduled' | 'running' | 'finished' | 'missing'>> {
    const store = await this.#store();
    const at = toInstant('jobs.reschedule', 'when', when, store.clock.now());
    const answer = await store.jobs.reschedule(checkText('jobs.reschedule', 'id', id), at);
    this.#due();
    return managed(answer);
  }

  /**
   * Changes a pending job: its payload, its priority or its due time. New data is checked as `enqueue` checks it. A time
   * limit from `expireIn` moves with the due time. `running` and `finished`: the job stays as it is.
   */
  async update(
    id: string,
    changes: UpdateChanges,
  ): Promise<Managed<'updated' | 'running' | 'finished' | 'missing'>> {
    const { changesOf } = await loadUpdate();
    const store = await this.#store();
    const checked = await changesOf(id, changes, store, this.#registry);
    const answer = checked && (await store.jobs.update?.(id, checked));
    this.#due();
    return managed(answer);
  }

  /** Cancels the pending and running jobs that match; returns how many. */
  async cancelMany(filter: Selection, options?: ManyOptions): Promise<{ count: number }> {
    const checked = checkExplicit('jobs.cancelMany', filter);
    const within = narrowed(checked, ['pending', 'processing']);
    const step: Step = (jobs, batch) => jobs.cancelBatch(batch, this.#registry.retention);
    return this.#each('jobs.cancelMany', within, step, options);
  }

  /** Retries the failed and cancelled jobs that match; returns how many. */
  async retryMany(filter: Selection, options?: ManyOptions): Promise<{ count: number }> {
    const checked = checkExplicit('jobs.retryMany', filter);
    const { clock } = await this.#store();
    const within = narrowed(checked, ['failed', 'cancelled']);
    const step: Step = async (jobs, batch) => {
      const count = await jobs.retryBatch(batch, new Date(clock.now()));
      this.#due();
      return count;
    };
    return this.#each('jobs.retryMany', within, step, options);
  }

  /** Deletes the jobs that match, except those that run; returns how many. */
  async removeMany(filter: Selection, options?: ManyOptions): Promise<{ count: number }> {
    const checked = checkExplicit('jobs.removeMany', filter);
    const within = narrowed(checked, ['pending', 'completed', 'failed', 'cancelled']);
    return this.#each('jobs.removeMany', within, (jobs, batch) => jobs.removeBatch(batch), options);
  }

  /** Keeps all instances from starting jobs of this name until `resume`; running jobs continue. */
  async pause(name: string): Promise<void> {
    checkName('jobs.pause', 'name', name);
    const store = await this.#store();
    await store.jobs.pauseName(name);
    this.#unknownNames?.note(name, store, 'paused');
  }

  /** Returns the paused names. */
  async paused(): Promise<readonly string[]> {
    const { paused } = await (await this.#store()).instances.list();
    return [...paused].filter((name) => name !== EVERYTHING).sort();
  }

  /** Lets all instances start jobs of this name again. */
  async resume(name: string): Promise<void> {
    await (await this.#jobs()).resumeName(checkText('jobs.resume', 'name', name));
    this.#due();
  }

  /**
   * Waits for a job to end and returns what its handler returned. Rejects if the job failed (`JOB_FAILED`), was
   * cancelled (`JOB_CANCELLED`), does not exist (`JOB_MISSING`) or does not end within `timeout` (`TIMEOUT`). There is
   * no timeout by default. With the job's definition before the id, the result has the type that the definition says, and
   * a job of another name is refused.
   */
  result<Result>(
    definition: JobDefinition<unknown, unknown, Result>,
    id: string,
    options?: ResultOptions,
  ): Promise<Result>;
  result(id: string, options?: ResultOptions): Promise<unknown>;
  result(
    first: JobDefinition | string,
    second?: string | ResultOptions,
    third?: ResultOptions,
  ): Promise<unknown> {
    return isDefinition(first)
      ? this.#result(second as string, third, first.name)
      : this.#result(first, second as ResultOptions | undefined);
  }

  async #result(id: string, options: ResultOptions = {}, name?: string): Promise<unknown> {
    checkKeys('jobs.result', options, ['timeout', 'signal']);
    checkText('jobs.result', 'id', id);
    checkSignal('jobs.result', options.signal);
    const signals = [...(options.signal === undefined ? [] : [options.signal])];
    const store = await this.#store();
    const limit = new AbortController();
    const timeoutMs =
      options.timeout === undefined ? undefined : toMs('jobs.result', 'timeout', options.timeout);
    const timer =
      timeoutMs === undefined
        ? undefined
        : store.clock.timer(timeoutMs, () => {
            limit.abort(
              new TidemillError('TIMEOUT', `Job ${id} did not end within ${String(timeoutMs)} ms.`),
            );
          });
    try {
      const job = await this.#results.wait(id, AbortSignal.any([limit.signal, ...signals]));
      if (name !== undefined && job.name !== name)
        throw new OptionError(`jobs.result: job ${id} is a ${show(job.name)}, not a ${show(name)}.`);
      return resultOf(job);
    } catch (error) {
      if (!limit.signal.aborted || error !== limit.signal.reason) throw error;
      throw new TidemillError('TIMEOUT', `${(error as Error).message}${await this.#unfinished(store, id)}`);
    } finally {
      timer?.cancel();
    }
  }

  /** Why a job has not ended, as sentences; '' if the store cannot tell in time. */
  async #unfinished({ jobs, clock }: Store, id: string): Promise<string> {
    const asking = Promise.all([jobs.get(id), this.#why(id)]);
    if (!(await within(clock, REASONS_MS, asking))) return '';
    const [job, reasons] = await asking.catch(() => [undefined, []] as const);
    if (job === undefined) return '';
    const running =
      job.status === 'processing' && reasons.length === 0
        ? [`It is running on ${job.claimedBy ?? '?'}.`]
        : [];
    const failed = job.failReason === undefined ? [] : [`Its last attempt failed: ${job.failReason}.`];
    return [...running, ...reasons, ...failed].map((sentence) => ` ${sentence}`).join('');
  }

  async #jobs(): Promise<JobStore> {
    return (await this.#store()).jobs;
  }

  async #each(
    where: string,
    filter: JobFilter | null,
    step: Step,
    options: ManyOptions = {},
  ): Promise<{ count: number }> {
    checkKeys(where, options, ['signal', 'onProgress']);
    checkSignal(where, options.signal);
    if (options.onProgress !== undefined) checkFunction(where, 'onProgress', options.onProgress);
    const jobs = await this.#jobs();
    let count = 0;
    if (filter === null) return { count };
    for await (const batch of jobs.each(filter, BATCH)) {
      if (options.signal?.aborted === true) break;
      count += await step(jobs, batch);
      await options.onProgress?.(count);
    }
    return { count };
  }
}

type Step = (jobs: JobStore, batch: readonly JobRecord[]) => Promise<number>;

/** Restricts a filter to these statuses; null if the filter asks for none of them. */
function narrowed(filter: JobFilter, statuses: readonly JobStatus[]): JobFilter | null {
  const status =
    filter.status === undefined ? statuses : statuses.filter((one) => filter.status?.includes(one));
  return status.length === 0 ? null : { ...filter, status };
}

/** Checks what `jobs.watch` was given. */
export function watchTarget(watched: string | JobsFilter, options: WatchOptions): Watched {
  const where = 'jobs.watch';
  checkKeys(where, options, ['signal']);
  checkSignal(where, options.signal);
  return typeof watched === 'string'
    ? { id: checkText(where, 'id', watched) }
    : { filter: checkFilter(where, watched) };
}

function checkSignal(where: string, signal: unknown): void {
  if (signal === undefined || signal instanceof AbortSignal) return;
  throw new OptionError(`${where}: signal must be an AbortSignal, got ${show(signal)}.`);
}

function resultOf(job: JobRecord): unknown {
  if (job.status === 'completed') return job.result;
  const reason = job.failReason === undefined ? '' : `: ${job.failReason}`;
  if (job.status === 'cancelled')
    throw new TidemillError('JOB_CANCELLED', `Job ${job.id} was cancelled${reason}.`);
  const attempts = job.failCount === 1 ? '1 attempt' : `${String(job.failCount)} attempts`;
  throw new TidemillError('JOB_FAILED', `Job ${job.id} failed after ${attempts}${reason}.`, causeOf(job));
}

/** What the handler threw, as the history keeps it. */
function causeOf({ history }: JobRecord): { readonly cause?: Error } {
  const thrown = history?.at(-1)?.error;
  if (thrown === undefined) return {};
  const { name, message, stack } = thrown;
  return { cause: Object.assign(new Error(message), { name, ...(stack === undefined ? {} : { stack }) }) };
}
