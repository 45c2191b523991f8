import { OptionError, TidemillError } from '../core/errors.js';
import {
  checkErrorsOptions,
  groupsOf,
  type ErrorGroups,
  type ErrorsOptions,
} from '../core/records/failure-groups.js';
import { JOB_STATUSES, toJob, type Job, type JobRecord, type JobStatus } from '../core/records/job.js';
import {
  checkBoolean,
  checkFunction,
  checkKeys,
  checkMost,
  checkName,
  checkText,
  show,
} from '../core/options.js';
import type { JobFilter, JobStore, StatusCounts, Store } from '../store/port.js';
import { toInstant, toMs, type Duration } from '../time/duration.js';
import { checkExplicit, checkFilter, type JobsFilter } from './filter.js';
import { cursorOf, pageOf, type FindOptions } from './page.js';
import type { Registry } from './registry.js';
import type { Results } from './results.js';

export interface JobPage {
  readonly items: readonly Job[];
  readonly next: string | null;
  readonly previous: string | null;
  /** The time limit was reached before the page was full: there may be more. */
  readonly partial?: true;
}

export interface JobStats extends StatusCounts {
  /** About how many jobs the store holds in all. */
  readonly total: number;
  readonly names: Readonly<Record<string, StatusCounts>>;
  /** Counts that stand for "at least": name and status pairs with more jobs than were counted. */
  readonly capped: readonly { readonly name: string; readonly status: JobStatus }[];
}

export interface Managed<Outcome extends string> {
  readonly outcome: Outcome;
  readonly job: Job | undefined;
}

export type Selection = JobsFilter | { readonly all: true };

export interface CountOptions {
  /** Stop counting here: the answer then stands for "at least". Default: count all. */
  readonly limit?: number;
}

export interface ManyOptions {
  /** Ends it after the batch that is being written. */
  readonly signal?: AbortSignal;
  /** Called after each batch, with how many have been changed so far; the next batch waits for it. */
  readonly onProgress?: (count: number) => unknown;
}

const BATCH = 500;
/** Of each status so many are counted, shared among the names. */
const COUNT_CAP = 100_000;

const managed = <O extends string>(
  answer: { outcome: O; job: JobRecord } | undefined,
): Managed<O | 'missing'> =>
  answer === undefined
    ? { outcome: 'missing', job: undefined }
    : { outcome: answer.outcome, job: toJob(answer.job) };

/** `mill.jobs`: reading and managing jobs, whoever runs them. */
export class Jobs {
  readonly #store: () => Promise<Store>;
  readonly #registry: Registry;
  readonly #results: Results;
  readonly #due: () => void;
  readonly #cancelled: (job: Job) => void;

  /** `due` is told of work that may start at once, `cancelled` of a job that was cancelled while it waited. */
  constructor(
    store: () => Promise<Store>,
    registry: Registry,
    results: Results,
    due: () => void,
    cancelled: (job: Job) => void,
  ) {
    this.#store = store;
    this.#registry = registry;
    this.#results = results;
    this.#due = due;
    this.#cancelled = cancelled;
  }

  async get(id: string): Promise<Job | undefined> {
    const record = await (await this.#jobs()).get(checkText('jobs.get', 'id', id));
    return record && toJob(record);
  }

  async find(filter?: JobsFilter, options?: FindOptions): Promise<JobPage> {
    const checked = checkFilter('jobs.find', filter);
    const request = pageOf('jobs.find', options);
    const jobs = await this.#jobs();
    const found = await jobs.find(checked, request.page);
    const records = request.back ? [...found.jobs].reverse() : found.jobs;
    const [first, last] = [records[0], records[records.length - 1]];
    const more = {
      forward: request.back ? true : found.more,
      backward: request.back ? found.more : request.continued,
    };
    const cursor = (record: JobRecord | undefined, back: boolean): string | null =>
      record === undefined ? null : cursorOf(request, record, jobs.cursorKey(record), back);
    return {
      items: records.map(toJob),
      next: more.forward ? cursor(last, false) : null,
      previous: more.backward ? cursor(first, true) : null,
      ...(found.partial ? { partial: true } : {}),
    };
  }

  async count(filter?: JobsFilter, options: CountOptions = {}): Promise<number> {
    const checked = checkFilter('jobs.count', filter);
    const most = checkMost('jobs.count', options);
    return (await this.#jobs()).count(checked, most);
  }

  /** What the newest failed jobs say, grouped by name and message; ids and numbers in messages make no difference. */
  async errors(options: ErrorsOptions = {}): Promise<ErrorGroups> {
    const { limit, name } = checkErrorsOptions('jobs.errors', options);
    return groupsOf(await (await this.#jobs()).failures(limit + 1, name), limit);
  }

  /**
   * Counts by name and status. 100,000 of each status are counted, shared among the names; where there are more,
   * `capped` names the pair and the count stands for "at least".
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
   * Pending: cancelled at once. Running: its signal aborts, in whichever process that is; with `wait` the answer says
   * what came of it.
   */
  async cancel(
    id: string,
    options: { readonly wait?: boolean } = {},
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

  /** Failed or cancelled: a fresh sequence of attempts. `live`: its unique key is taken by another job meanwhile. */
  async retry(id: string): Promise<Managed<'retried' | 'live' | 'unfinished' | 'finished' | 'missing'>> {
    const store = await this.#store();
    const answer = await store.jobs.retry(checkText('jobs.retry', 'id', id), new Date(store.clock.now()));
    this.#due();
    return managed(answer);
  }

  async remove(id: string): Promise<Managed<'removed' | 'running' | 'missing'>> {
    return managed(await (await this.#jobs()).remove(checkText('jobs.remove', 'id', id)));
  }

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

  async cancelMany(filter: Selection, options?: ManyOptions): Promise<{ count: number }> {
    const checked = checkExplicit('jobs.cancelMany', filter);
    const within = narrowed(checked, ['pending', 'processing']);
    const step: Step = (jobs, batch) => jobs.cancelBatch(batch, this.#registry.retention);
    return this.#each('jobs.cancelMany', within, step, options);
  }

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

  /** Running jobs are left alone. */
  async removeMany(filter: Selection, options?: ManyOptions): Promise<{ count: number }> {
    const checked = checkExplicit('jobs.removeMany', filter);
    const within = narrowed(checked, ['pending', 'completed', 'failed', 'cancelled']);
    return this.#each('jobs.removeMany', within, (jobs, batch) => jobs.removeBatch(batch), options);
  }

  /** No instance of the cluster starts jobs of this name until `resume`; running ones go on. */
  async pause(name: string): Promise<void> {
    await (await this.#jobs()).pauseName(checkName('jobs.pause', 'name', name));
  }

  /** The names that are paused. */
  async paused(): Promise<readonly string[]> {
    return [...(await (await this.#store()).instances.list()).paused].sort();
  }

  async resume(name: string): Promise<void> {
    await (await this.#jobs()).resumeName(checkText('jobs.resume', 'name', name));
    this.#due();
  }

  /**
   * Waits for a job to end and answers what its handler returned. Rejects where it failed (`JOB_FAILED`), was
   * cancelled (`JOB_CANCELLED`), is not there (`JOB_MISSING`) or takes longer than `timeout`.
   */
  async result(
    id: string,
    options: { readonly timeout?: Duration; readonly signal?: AbortSignal } = {},
  ): Promise<unknown> {
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
      return resultOf(await this.#results.wait(id, AbortSignal.any([limit.signal, ...signals])));
    } finally {
      timer?.cancel();
    }
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

/** Only jobs in these states are meant; null where the filter asks for none of them. */
function narrowed(filter: JobFilter, statuses: readonly JobStatus[]): JobFilter | null {
  const status =
    filter.status === undefined ? statuses : statuses.filter((one) => filter.status?.includes(one));
  return status.length === 0 ? null : { ...filter, status };
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
  throw new TidemillError(
    'JOB_FAILED',
    `Job ${job.id} failed after ${String(job.failCount)} attempts${reason}.`,
  );
}
