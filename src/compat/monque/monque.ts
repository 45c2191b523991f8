import { createHash } from 'node:crypto';
import { EventEmitter } from 'node:events';
import type { Db, ObjectId } from 'mongodb';
import type { Job as MillJob, JobStats, Tidemill } from '../../index.js';
import type { MongodbStore } from '../../mongodb/index.js';
import {
  AggregationTimeoutError,
  ConnectionError,
  JobStateError,
  PayloadTooLargeError,
  ShutdownTimeoutError,
  WorkerRegistrationError,
} from './errors.js';
import {
  OWN_KEY,
  toPersisted,
  type EnqueueOptions,
  type JobHandler,
  type JobStatus,
  type PersistedJob,
  type ScheduleOptions,
  type WorkerOptions,
} from './job.js';
import type { MonqueEventMap, MonqueOptions } from './options.js';
import {
  filterOf,
  readCursor,
  selectionOf,
  sortOf,
  writeCursor,
  type BulkOperationResult,
  type CursorOptions,
  type CursorPage,
  type GetJobsFilter,
  type JobSelector,
  type QueueStats,
  type QueueViewSummary,
} from './queries.js';
import { millOf, retryPolicyOf, storeOf } from './mill.js';
import { processZone, validateCronExpression, validateJobName, validateUniqueKey } from './rules.js';

const HOUR_MS = 3_600_000;
const NO_JOBS = { pending: 0, processing: 0, completed: 0, failed: 0, cancelled: 0 };

/** The longest page of `mill.jobs.find`. */
const MOST = 1_000;

const dataKey = (cron: string, data: unknown): string =>
  OWN_KEY +
  createHash('sha256')
    .update(JSON.stringify([cron, data]))
    .digest('base64url');

interface Worker {
  readonly concurrency: number;
}

/**
 * Monque's class on a `Tidemill`. Duties: translate options, jobs, filters and events, throw its errors, and delete ended
 * jobs by `jobRetention`.
 */
export class Monque extends EventEmitter<{ [K in keyof MonqueEventMap]: [MonqueEventMap[K]] }> {
  readonly #options: MonqueOptions;
  readonly #store: MongodbStore;
  readonly #mill: Tidemill<MongodbStore>;
  readonly #workers = new Map<string, Worker>();
  /** Jobs whose handlers run here. */
  readonly #running = new Map<string, PersistedJob>();
  #isReady = false;
  #starting: Promise<void> | undefined;
  #cleaning: NodeJS.Timeout | undefined;
  #stats: { readonly at: number; readonly stats: JobStats } | undefined;

  constructor(db: Db, options: MonqueOptions = {}) {
    super();
    this.setMaxListeners(20);
    this.#options = options;
    this.#store = storeOf(db, options);
    this.#mill = millOf(this.#store, options);
    this.#listen();
  }

  #listen(): void {
    const mill = this.#mill;
    mill.on('job:start', ({ job }) => {
      const started = toPersisted(job);
      this.#running.set(job.id, started);
      this.emit('job:start', started);
    });
    mill.on('job:complete', ({ job, durationMs }) =>
      this.emit('job:complete', { job: toPersisted(job), duration: durationMs }),
    );
    mill.on('job:fail', ({ job, error, willRetry }) =>
      this.emit('job:fail', { job: toPersisted(job), error, willRetry }),
    );
    mill.on('stale:recovered', ({ count }) => this.emit('stale:recovered', { count }));
    mill.on('error', ({ error }) => this.#fail(error));
    mill.on('store:lost', ({ error }) => this.emit('changestream:error', { error }));
    mill.on('start', () => {
      if (mill.health().wakeUp === 'poll')
        this.emit('changestream:fallback', { reason: 'the server sends no notifications' });
      else this.emit('changestream:connected', undefined);
    });
  }

  #fail(error: Error): void {
    if (!this.emit('job:error', { error })) console.error(error);
  }

  /** Opens the collection and creates its indexes. Repeat: no effect. */
  async initialize(): Promise<void> {
    if (this.#isReady) return;
    try {
      await this.#mill.instances();
    } catch (cause) {
      throw new ConnectionError(`Monque cannot be initialized: ${(cause as Error).message}`, { cause });
    }
    this.#isReady = true;
  }

  #ready(): Tidemill<MongodbStore> {
    if (this.#isReady) return this.#mill;
    throw new ConnectionError('Monque is not initialized: call initialize() first.');
  }

  /** Returns the stored job; the live one with the same name and `uniqueKey`, if there is one. */
  async enqueue<T>(name: string, data: T, options: EnqueueOptions = {}): Promise<PersistedJob<T>> {
    const mill = this.#ready();
    this.#check(name, data, options.uniqueKey);
    const { uniqueKey, runAt } = options;
    const given = {
      ...(uniqueKey === undefined ? {} : { uniqueKey }),
      ...(runAt === undefined ? {} : { runAt }),
    };
    return toPersisted(await mill.enqueue<T>(name, data, given));
  }

  now<T>(name: string, data: T): Promise<PersistedJob<T>> {
    return this.enqueue(name, data);
  }

  /** Two calls with the same name and `uniqueKey` make one schedule; without a key, with the same cron and data. */
  async schedule<T>(
    cron: string,
    name: string,
    data: T,
    options: ScheduleOptions = {},
  ): Promise<PersistedJob<T>> {
    const mill = this.#ready();
    validateCronExpression(cron);
    this.#check(name, data, options.uniqueKey);
    const { uniqueKey = dataKey(cron, data) } = options;
    // What an older process has scheduled goes on as it is.
    const live = { name, uniqueKey, status: ['pending', 'processing'] } as const;
    const [existing] = (await mill.jobs.find(live, { limit: 1 })).items;
    if (existing !== undefined) return toPersisted(existing as MillJob<T>);
    const job = await mill.schedule(cron, name, data, { uniqueKey, timezone: processZone() });
    return toPersisted(job as MillJob<T>);
  }

  #check(name: string, data: unknown, uniqueKey: string | undefined): void {
    validateJobName(name);
    if (uniqueKey !== undefined) validateUniqueKey(uniqueKey);
    const { maxPayloadSize } = this.#options;
    if (maxPayloadSize === undefined) return;
    const size = this.#sizeOf(data, maxPayloadSize);
    if (size <= maxPayloadSize) return;
    const message = `The payload of ${name} has ${size} bytes, more than maxPayloadSize (${maxPayloadSize}).`;
    throw new PayloadTooLargeError(message, size, maxPayloadSize);
  }

  #sizeOf(data: unknown, most: number): number {
    try {
      // The store measures `{ value }`, which is one byte more than `{ data }`.
      return (this.#store.payload.measure?.(data) ?? 1) - 1;
    } catch (cause) {
      throw new PayloadTooLargeError('The payload cannot be measured.', -1, most, { cause });
    }
  }

  register<T>(name: string, handler: JobHandler<T>, options: WorkerOptions = {}): void {
    validateJobName(name);
    const { concurrency = this.#concurrency, replace = false } = options;
    if (this.#workers.has(name) && !replace)
      throw new WorkerRegistrationError(
        `${name} has a worker already; pass { replace: true } to replace it.`,
        name,
      );
    this.#mill.job<T>(
      name,
      { concurrency, replace, retryPolicy: retryPolicyOf(this.#options) },
      async ({ id }) => {
        try {
          await handler(this.#running.get(id) as PersistedJob<T>);
        } finally {
          this.#running.delete(id);
        }
      },
    );
    this.#workers.set(name, { concurrency });
  }

  get #concurrency(): number {
    return this.#options.workerConcurrency ?? this.#options.defaultConcurrency ?? 5;
  }

  /** What fails is emitted as `job:error`. */
  start(): void {
    if (this.#starting !== undefined) return;
    const starting = this.#mill.start().then(
      () => {
        if (this.#starting === starting) this.#clean();
      },
      (error: unknown) => {
        if (this.#starting === starting) this.#starting = undefined;
        this.#fail(error as Error);
      },
    );
    this.#starting = starting;
  }

  /** Waits for running jobs until `shutdownTimeout`, and hands back the rest. */
  async stop(): Promise<void> {
    const { shutdownTimeout = 30_000 } = this.#options;
    const isStarted = this.#starting !== undefined;
    this.#starting = undefined;
    clearInterval(this.#cleaning);
    const late = setTimeout(() => {
      const jobs = [...this.#running.values()];
      if (jobs.length > 0) this.#fail(new ShutdownTimeoutError('Jobs still run at the end of stop().', jobs));
    }, shutdownTimeout);
    await this.#mill.stop().finally(() => clearTimeout(late));
    if (isStarted) this.emit('changestream:closed', undefined);
  }

  isHealthy(): boolean {
    return this.#isReady && this.#mill.started;
  }

  /** Deletes ended jobs by `jobRetention`, now and then. */
  #clean(): void {
    const { jobRetention } = this.#options;
    if (jobRetention === undefined) return;
    const clean = async (): Promise<void> => {
      const now = (await this.#mill.time()).getTime();
      for (const status of ['completed', 'failed'] as const) {
        const kept = jobRetention[status];
        if (kept === undefined) continue;
        await this.#mill.jobs.removeMany({ status, updatedAt: { to: new Date(now - kept) } });
      }
    };
    const run = (): void => void clean().catch((error: unknown) => this.#fail(error as Error));
    this.#cleaning = setInterval(run, jobRetention.interval ?? HOUR_MS).unref();
    run();
  }

  /** Returns null if there is no such job. */
  async getJob<T = unknown>(id: ObjectId | string): Promise<PersistedJob<T> | null> {
    const job = await this.#ready().jobs.get(String(id));
    return job === undefined ? null : toPersisted(job as MillJob<T>);
  }

  /** By due time. */
  async getJobs<T = unknown>(filter: GetJobsFilter = {}): Promise<PersistedJob<T>[]> {
    const { limit = 100, skip = 0, ...rest } = filter;
    const jobs = this.#ready().jobs;
    const found: PersistedJob<T>[] = [];
    let cursor: string | null | undefined;
    while (found.length < skip + limit && cursor !== null) {
      const page = await jobs.find(filterOf(rest), {
        limit: Math.min(MOST, skip + limit - found.length),
        sort: { nextRunAt: 1 },
        ...(cursor === undefined ? {} : { cursor }),
      });
      found.push(...page.items.map((job) => toPersisted(job as MillJob<T>)));
      cursor = page.next;
    }
    return found.slice(skip);
  }

  async getJobsWithCursor<T = unknown>(options: CursorOptions = {}): Promise<CursorPage<T>> {
    const jobs = this.#ready().jobs;
    const { limit = 50, direction = 'forward', filter, sort } = options;
    const cursor = options.cursor === undefined ? undefined : readCursor(options.cursor, direction);
    if (cursor === null)
      return {
        jobs: [],
        cursor: options.cursor ?? null,
        hasNextPage: direction === 'backward',
        hasPreviousPage: direction === 'forward',
      };
    const page = await jobs.find(filterOf(filter), {
      limit,
      ...(cursor === undefined ? { sort: sortOf(sort) } : { cursor }),
    });
    return {
      jobs: page.items.map((job) => toPersisted(job as MillJob<T>)),
      cursor: page.items.length === 0 ? null : writeCursor(page),
      hasNextPage: page.next !== null,
      hasPreviousPage: page.previous !== null,
    };
  }

  /** Cancels a pending job. Throws a JobStateError if it runs or has ended otherwise. */
  async cancelJob(id: string): Promise<PersistedJob | null> {
    const jobs = this.#ready().jobs;
    const found = await jobs.get(id);
    if (found === undefined || found.status === 'cancelled') return found ? toPersisted(found) : null;
    // `cancel` would also stop a job that has begun to run since it was read.
    const { count } = await jobs.cancelMany({ ids: id, status: 'pending' });
    const job = await jobs.get(id);
    if (job === undefined) return null;
    if (count === 0 && job.status !== 'cancelled') throw stateError(job, 'cancel');
    const cancelled = toPersisted(job);
    this.emit('job:cancelled', { job: cancelled });
    return cancelled;
  }

  /** Gives a failed or cancelled job a fresh sequence of attempts. */
  async retryJob(id: string): Promise<PersistedJob | null> {
    const jobs = this.#ready().jobs;
    const before = await jobs.get(id);
    if (before === undefined) return null;
    const { outcome, job } = await jobs.retry(id);
    if (job === undefined) return null;
    if (outcome !== 'retried') throw stateError(job, 'retry');
    const retried = toPersisted(job);
    this.emit('job:retried', { job: retried, previousStatus: before.status });
    return retried;
  }

  /** Moves a pending job to another time. */
  async rescheduleJob(id: string, runAt: Date): Promise<PersistedJob | null> {
    const { outcome, job } = await this.#ready().jobs.reschedule(id, runAt);
    if (job === undefined) return null;
    if (outcome !== 'rescheduled') throw stateError(job, 'reschedule');
    return toPersisted(job);
  }

  /** Returns false if there is no such job. Throws a JobStateError if it runs. */
  async deleteJob(id: string): Promise<boolean> {
    const { outcome, job } = await this.#ready().jobs.remove(id);
    if (job === undefined) return false;
    if (outcome === 'running') throw stateError(job, 'delete');
    this.emit('job:deleted', { jobId: id });
    return true;
  }

  /** Cancels pending jobs. */
  async cancelJobs(selector: JobSelector): Promise<BulkOperationResult> {
    const mill = this.#ready();
    const selection = selectionOf(selector, ['pending']);
    const { count } = selection ? await mill.jobs.cancelMany(selection) : { count: 0 };
    if (count > 0) this.emit('jobs:cancelled', { count });
    return { count, errors: [] };
  }

  async retryJobs(selector: JobSelector): Promise<BulkOperationResult> {
    const mill = this.#ready();
    const selection = selectionOf(selector, ['failed', 'cancelled']);
    const { count } = selection ? await mill.jobs.retryMany(selection) : { count: 0 };
    if (count > 0) this.emit('jobs:retried', { count });
    return { count, errors: [] };
  }

  /** Deletes jobs that do not run. */
  async deleteJobs(selector: JobSelector): Promise<BulkOperationResult> {
    const mill = this.#ready();
    const selection = selectionOf(selector, ['pending', 'completed', 'failed', 'cancelled']);
    const { count } = selection ? await mill.jobs.removeMany(selection) : { count: 0 };
    if (count > 0) this.emit('jobs:deleted', { count });
    return { count, errors: [] };
  }

  async #counts(): Promise<JobStats> {
    const mill = this.#ready();
    const { statsCacheTtlMs = 5_000 } = this.#options;
    if (this.#stats !== undefined && performance.now() - this.#stats.at < statsCacheTtlMs)
      return this.#stats.stats;
    const at = performance.now();
    const stats = await mill.jobs.stats().catch((cause: unknown) => {
      if (Reflect.get(Object(cause) as object, 'code') !== 'TIME_LIMIT') throw cause;
      throw new AggregationTimeoutError((cause as Error).message, { cause });
    });
    this.#stats = { at, stats };
    return stats;
  }

  async getQueueStats({ name }: { readonly name?: string } = {}): Promise<QueueStats> {
    const { names, ...all } = await this.#counts();
    return summed(name === undefined ? all : (names[name] ?? NO_JOBS));
  }

  /** One entry for each name that has jobs, or a worker in this process. */
  async getQueueViewSummaries(): Promise<readonly QueueViewSummary[]> {
    const { names } = await this.#counts();
    const all = [...new Set([...Object.keys(names), ...this.#workers.keys()])].sort();
    const active = (name: string): number =>
      [...this.#running.values()].filter((job) => job.name === name).length;
    return Object.freeze(
      all.map((name) => {
        const worker = this.#workers.get(name);
        return {
          name,
          ...summed(names[name] ?? NO_JOBS),
          ...(worker === undefined ? {} : { worker: { ...worker, active: active(name) } }),
        };
      }),
    );
  }
}

function summed({
  pending,
  processing,
  completed,
  failed,
  cancelled,
}: Record<JobStatus, number>): QueueStats {
  const total = pending + processing + completed + failed + cancelled;
  return { pending, processing, completed, failed, cancelled, total };
}

const stateError = ({ id, status }: MillJob, action: string): JobStateError =>
  new JobStateError(`Cannot ${action} job ${id}: it is ${status}.`, id, status, action);
