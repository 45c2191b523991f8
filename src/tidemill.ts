import type { StandardSchemaV1 } from '@standard-schema/spec';
import type { Audit } from './mill/insight/audit.js';
import { checkSurplus } from './core/arguments.js';
import { Emitter } from './core/emitter.js';
import { asError } from './core/errors.js';
import { toJob, type Job, type JobRecord } from './core/records/job.js';
import { safeLogger, unskipped, type Logger } from './core/logger.js';
import { checkFunction, show } from './core/options.js';
import { secondsText } from './core/text/seconds.js';
import type { LockContext } from './locks/lock-hold.js';
import type { AnyHandler, BatchHandler, JobHandler } from './jobs/context.js';
import type { BatchOptions, JobDefinition, JobOptions, WorkOptions } from './jobs/definition.js';
import { readBatch, readJob, readWork, type Handled } from './jobs/handler-arguments.js';
import { checkEvent, emitTurn, type MillEvents } from './mill/events.js';
import type { Jobs } from './jobs/manage/manager.js';
import {
  Enqueuer,
  type EnqueuedJob,
  type EnqueueOptions,
  type ScheduleOptions,
} from './jobs/enqueue/enqueuer.js';
import { LikelyOptions } from './jobs/enqueue/likely-options.js';
import { Registry } from './jobs/registry.js';
import type { Schedules } from './jobs/manage/schedules.js';
import { WatchRegistry } from './jobs/watch/watches.js';
import { UnknownNames } from './jobs/enqueue/unknown-names.js';
import {
  DocumentSchedules,
  type DocumentOptions,
  type DocumentSchedule,
  type NamedSchedule,
} from './mill/document-schedules.js';
import { healthOf, isSilent, type Health } from './mill/insight/health.js';
import { OutageWatch } from './mill/outage-watch.js';
import { StoreHandle } from './mill/opening/store-handle.js';
import { instancesOf, type MillInstance } from './mill/insight/instances.js';
import type { Limits } from './mill/limits/manager.js';
import { SharedLimits } from './mill/limits/shared.js';
import type { SharedLimitOptions } from './engine/limits/options.js';
import {
  jobType,
  MANY_HINT,
  readItems,
  type EnqueueManyOptions,
  type JobType,
  type ManyItem,
  type Payload,
} from './mill/job-types.js';
import { Lifecycle, type StartOptions, type StopOptions } from './mill/lifecycle.js';
import { Locks, type LockOptions } from './locks/locks.js';
import { Monitor } from './metrics/monitor.js';
import type { PrometheusRegistry } from './metrics/prometheus.js';
import type { Metrics } from './metrics/series.js';
import { checkMillOptions, type MillSettings, type TidemillOptions } from './mill/options.js';
import {
  compileTask,
  type ReactiveBatchDefinition,
  type ReactiveTaskDefinition,
} from './reactive/definition.js';
import { Definitions } from './reactive/definitions.js';
import type { Tasks, TaskPage, TasksPageOptions } from './reactive/manage/manager.js';
import { reactiveOf } from './reactive/reactive-of.js';
import type { TasksFilter } from './reactive/manage/tasks-filter.js';
import {
  lateAudit,
  lateJobs,
  lateLimits,
  lateMetrics,
  lateResults,
  lateSchedules,
  lateTasks,
  loadDoctor,
  loadWhy,
} from './mill/parts.js';
import type { Finding } from './store/inspect.js';
import { EVERYTHING, type ScopeRef, type Store, type TransactionOf } from './store/port.js';
import type { ScheduleTimes } from './time/interval.js';
import { Tracing } from './tracing/load.js';
import type { Reason, WhyTarget } from './mill/insight/why.js';

/**
 * The entry point of the library. The constructor neither connects nor starts anything: the store opens on the first
 * call that needs it, so a producer that only enqueues never has to call `start`. `stop` closes whatever was opened.
 */
export class Tidemill<S extends Store = Store> implements AsyncDisposable {
  /** Names this instance in the store and in events: the `instanceId` option, or a generated id. */
  readonly instanceId: string;
  /** Finds, cancels, retries, removes and pauses jobs. */
  readonly jobs: Jobs;
  /** Lists, pauses, resumes, runs and removes recurring jobs. */
  readonly schedules: Schedules;
  /** Finds, retries and pauses reactive tasks. */
  readonly tasks: Tasks;
  /** Lists limits with their use, and changes them while everything runs. */
  readonly limits: Limits;
  /** What ran on all instances, minute by minute, over the last day. */
  readonly metrics: Metrics;
  /** The audit log of manual actions. The dashboard and the command line write to it. */
  readonly audit: Audit;
  /**
   * No value, only a type. Declarations leave out the types of private fields, so this is what the compiler infers the
   * store of a mill from.
   */
  declare protected readonly storeType?: S;
  readonly #settings: MillSettings;
  readonly #log: Logger;
  readonly #events: Emitter<MillEvents>;
  readonly #registry: Registry;
  /** Undefined without a logger: there would be nobody to warn. */
  readonly #unknownNames: UnknownNames | undefined;
  readonly #definitions = new Definitions();
  readonly #shared = new SharedLimits();
  readonly #enqueuer: Enqueuer<TransactionOf<S>>;
  readonly #results: ReturnType<typeof lateResults>;
  readonly #locks: Locks;
  readonly #documents: DocumentSchedules;
  readonly #lifecycle: Lifecycle;
  readonly #monitor: Monitor;
  readonly #tracing: Tracing;
  readonly #store: StoreHandle<S>;
  readonly #outage: OutageWatch;
  #historyLost = 0;

  constructor(options: TidemillOptions<S>) {
    this.#settings = checkMillOptions(options);
    this.instanceId = this.#settings.instanceId;
    this.#log = safeLogger(options.logger);
    this.#events = new Emitter((error, event) => this.#fault(error, `listener of ${event}`));
    this.#events.on('history:lost', () => (this.#historyLost += 1));
    this.#registry = new Registry(this.#settings.retention);
    this.#unknownNames = options.logger === false ? undefined : new UnknownNames(this.#registry, this.#log);
    this.#tracing = new Tracing(this.#settings.tracing);
    this.#store = new StoreHandle(options.store, {
      globals: this.#settings.reactive.globalsCollection,
      ready: this.#tracing.ready,
      opened: (store) => this.#monitor.opened(store),
      isStarted: () => this.started,
      leaving: () => this.#monitor.stop(),
    });
    this.#outage = new OutageWatch({
      store: () => this.#store.opened,
      isStarted: () => this.started,
      isSilent: () => isSilent(this.#lifecycle.runtime?.state, this.#settings),
      report: (error, where) => this.#report(error, where),
      lost: (error) => {
        this.#log.warn(
          unskipped({ error }),
          `the database does not answer; work waits until it does: ${error.message}`,
        );
        this.#events.emit('store:lost', { error, instanceId: this.instanceId });
      },
      back: (forMs) => {
        this.#log.warn(
          unskipped({ forMs }),
          `the database answers again, after ${secondsText(forMs)}; work continues`,
        );
        this.#events.emit('store:back', { forMs, instanceId: this.instanceId });
      },
    });
    const store = (): Promise<Store> => this.#store.open();
    const due = (names?: Iterable<string>): void => this.#lifecycle.runtime?.jobs.notify(names);
    this.#results = lateResults(store);
    const watches = new WatchRegistry(store);
    this.#locks = new Locks(store, this.instanceId, (error, where) => this.#fault(error, where));
    this.#monitor = new Monitor({
      settings: this.#settings.monitoring,
      instanceId: this.instanceId,
      log: this.#log,
      store,
      plans: () => this.#definitions.plans,
      documents: (cap) => this.#documents.depths(cap),
      self: () => this.#lifecycle.runtime?.self,
      vitals: async () => this.#lifecycle.runtime?.vitals() ?? { running: 0, buffered: 0, abandoned: 0 },
    });
    this.#documents = new DocumentSchedules({
      settings: this.#settings,
      log: this.#log,
      store: this.#store.given ?? (() => this.#store.resolve()),
      meter: this.#monitor.meter,
      tracer: () => this.#tracing.tracer,
      fault: (error, where) => this.#fault(error, where),
      instance: () => this.#lifecycle.runtime,
    });
    this.#lifecycle = new Lifecycle({
      store: this.#store,
      runtime: {
        settings: this.#settings,
        registry: this.#registry,
        definitions: this.#definitions,
        shared: this.#shared,
        scheduleLimits: () => this.#documents.limits,
        events: this.#events,
        log: this.#log,
        meter: this.#monitor.meter,
        tracer: () => this.#tracing.tracer,
        results: this.#results,
        expired: (jobs) => this.#expired(jobs),
        fault: (error, where) => this.#fault(error, where),
      },
      documents: this.#documents,
      locks: this.#locks,
      results: this.#results,
      watches,
      monitor: this.#monitor,
      unknownNames: this.#unknownNames,
    });
    this.#enqueuer = new Enqueuer({
      store: () => this.#store.open(),
      registry: this.#registry,
      engine: () => this.#lifecycle.runtime?.jobs,
      stored: (jobs) => this.stored?.(jobs),
      unknownNames: this.#unknownNames,
      expired: (jobs) => this.#expired(jobs),
      likelyOptions: options.logger === false ? undefined : new LikelyOptions(this.#log),
      meter: this.#monitor.meter,
      tracer: () => this.#tracing.tracer,
    });
    this.jobs = lateJobs({
      store,
      registry: this.#registry,
      results: this.#results,
      watches,
      due,
      cancelled: (job) => this.#events.emit('job:cancel', { job, instanceId: this.instanceId }),
      unknownNames: this.#unknownNames,
      why: async (id) => (await this.why({ kind: 'jobs', id })).map(({ text }) => text),
    });
    this.schedules = lateSchedules(store, due);
    this.tasks = lateTasks(store, () => this.#definitions.plans);
    this.limits = lateLimits({
      store,
      scopes: () => this.#scopes(),
      plans: () => this.#definitions.plans,
      documents: (cap) => this.#documents.depths(cap),
      turned: (scope, to, until) => {
        emitTurn(this.#events, scope, { to, until }, this.instanceId);
      },
    });
    this.metrics = lateMetrics(store);
    this.audit = lateAudit(store, this.#settings.auditMs);
  }

  /** All work that this process defines. */
  *#scopes(): Generator<ScopeRef> {
    for (const name of this.#registry.names) yield { kind: 'job', name };
    for (const name of this.#definitions.tasks.keys()) yield { kind: 'task', name };
    for (const name of this.#documents.limits.keys()) yield { kind: 'documents', name };
  }

  #expired(jobs: readonly JobRecord[]): void {
    for (const record of jobs) {
      const { id, name, updatedAt } = record;
      this.#monitor.meter.ended('job', name, 'expired', updatedAt.getTime());
      this.#events.emit('job:expire', { job: toJob(record), instanceId: this.instanceId });
      this.#results.ended(id, () => record);
    }
  }

  /** Names of the jobs that have a handler on this instance. */
  get names(): readonly string[] {
    return [...this.#registry.workers.keys()];
  }

  /** True from the call to `start` until `stop` has finished. */
  get started(): boolean {
    return this.#lifecycle.starting !== undefined;
  }

  /** For subclasses: receives newly stored jobs before `enqueue` returns them. Used by `tidemill/testing`. */
  protected stored?(jobs: readonly EnqueuedJob[]): Promise<readonly EnqueuedJob[]>;

  /** For subclasses: starts batches that wait for more work. Used by `tidemill/testing`. */
  protected startBatches(): void {
    this.#lifecycle.runtime?.startBatches();
  }

  /** Defines a job and its handler in one call. */
  job<Schema extends StandardSchemaV1>(
    name: string,
    options: JobOptions & { readonly schema: Schema },
    handler: JobHandler<StandardSchemaV1.InferOutput<Schema>, TransactionOf<S>>,
  ): JobType<StandardSchemaV1.InferInput<Schema>, TransactionOf<S>>;
  job<T = unknown>(
    name: string,
    options: JobOptions,
    handler: JobHandler<T, TransactionOf<S>>,
  ): JobType<T, TransactionOf<S>>;
  /** With `thread`, the handler is the default export of a module, which runs in worker threads. */
  job<T = unknown>(
    name: string,
    handler: JobHandler<T, TransactionOf<S>> | (JobOptions & { readonly thread: URL | string }),
  ): JobType<T, TransactionOf<S>>;
  job(
    name: string,
    second: (JobOptions & { readonly schema?: StandardSchemaV1 }) | AnyHandler = {},
    third?: AnyHandler,
    ...surplus: readonly unknown[]
  ): JobType<unknown, TransactionOf<S>> {
    const handled = readJob(name, [second, third], surplus);
    this.#work(handled);
    return jobType(handled.worker.definition, this.#enqueuer);
  }

  /**
   * Registers this instance's handler for a job that `defineJob` defined. With `thread`, the handler is the default export
   * of a module, which runs in worker threads.
   */
  work<Input, Output, Result>(
    definition: JobDefinition<Input, Output, Result>,
    handler:
      | JobHandler<Output, TransactionOf<S>, NoInfer<Result>>
      | (WorkOptions & { readonly thread: URL | string }),
  ): void;
  work<Input, Output, Result>(
    definition: JobDefinition<Input, Output, Result>,
    options: WorkOptions,
    handler: JobHandler<Output, TransactionOf<S>, NoInfer<Result>>,
  ): void;
  work(
    definition: JobDefinition,
    second: WorkOptions | AnyHandler = {},
    third?: AnyHandler,
    ...surplus: readonly unknown[]
  ): void {
    this.#work(readWork(definition, [second, third], surplus));
  }

  /**
   * Registers this instance's handler for batches of a job that `defineJob` defined: it gets up to `size` jobs in one
   * call, and each of them has its own outcome.
   */
  batch<Input, Output, Result>(
    definition: JobDefinition<Input, Output, Result>,
    handler: BatchHandler<Output, TransactionOf<S>, NoInfer<Result>>,
  ): void;
  batch<Input, Output, Result>(
    definition: JobDefinition<Input, Output, Result>,
    options: BatchOptions,
    handler: BatchHandler<Output, TransactionOf<S>, NoInfer<Result>>,
  ): void;
  batch(
    definition: JobDefinition,
    second: BatchOptions | AnyHandler = {},
    third?: AnyHandler,
    ...surplus: readonly unknown[]
  ): void {
    this.#work(readBatch(definition, [second, third], surplus));
  }

  /**
   * Defines a limit that several names and kinds of work share: `limits: { shared: [name] }` in their definitions. The
   * definition of the instance that started last holds.
   */
  limit(name: string, options: SharedLimitOptions): void {
    this.#shared.add(name, options);
  }

  /** Enqueues a job. Once the promise resolves, the job is stored and runs at least once, whatever crashes. */
  enqueue<T = unknown>(
    name: string,
    data?: T,
    options?: EnqueueOptions<TransactionOf<S>>,
  ): Promise<EnqueuedJob<T>>;
  /** Enqueues a job by its definition, which types the payload. */
  // Compilers report the error of the last overload. It takes names, too, so that the error is about the wrong argument.
  enqueue<Input>(
    job: JobDefinition<Input, unknown> | string,
    ...rest: Payload<Input, [options?: EnqueueOptions<TransactionOf<S>>]>
  ): Promise<EnqueuedJob<Input>>;
  async enqueue(
    target: JobDefinition | string,
    data?: unknown,
    options?: EnqueueOptions<TransactionOf<S>>,
    ...surplus: readonly unknown[]
  ): Promise<EnqueuedJob> {
    checkSurplus('enqueue(job, data, options)', 'Pass all options in the third one.', surplus);
    return this.#enqueuer.enqueue(target, data, options);
  }

  /**
   * Enqueues many jobs in one write and returns them in the same order. One invalid item rejects the whole call. An item
   * names its job, `{ name, data, ...options }`, or has its definition, `{ job: definition, data, ...options }`. The
   * second argument applies to the call: `{ transaction }`.
   */
  enqueueMany<const Inputs extends readonly unknown[]>(
    items: { readonly [K in keyof Inputs]: ManyItem<Inputs[K], TransactionOf<S>> },
    options?: EnqueueManyOptions<TransactionOf<S>>,
  ): Promise<{ -readonly [K in keyof Inputs]: EnqueuedJob<Inputs[K]> }>;
  async enqueueMany(
    items: readonly ManyItem<unknown, TransactionOf<S>>[],
    options?: EnqueueManyOptions<TransactionOf<S>>,
    ...surplus: readonly unknown[]
  ): Promise<never> {
    checkSurplus('enqueueMany(items, options)', MANY_HINT, surplus);
    return (await this.#enqueuer.enqueueMany(readItems(items, options))) as never;
  }

  /** Enqueues a job to run as soon as possible: `enqueue` without options. */
  now<T = unknown>(name: string, data?: T): Promise<EnqueuedJob<T>>;
  /** Enqueues a job by its definition, to run as soon as possible. */
  now<Input>(
    job: JobDefinition<Input, unknown> | string,
    ...rest: Payload<Input, []>
  ): Promise<EnqueuedJob<Input>>;
  async now(
    target: JobDefinition | string,
    data?: unknown,
    ...surplus: readonly unknown[]
  ): Promise<EnqueuedJob> {
    checkSurplus('now(job, data)', 'For options, call enqueue(job, data, options).', surplus);
    return this.#enqueuer.enqueue(target, data);
  }

  /**
   * Creates or updates a recurring job, identified by its name and `uniqueKey`. The same call from many instances
   * creates one. `when` is a cron expression, `'@every 90s'` or `{ every: '90s' }`.
   */
  schedule<Input>(
    when: ScheduleTimes,
    target: JobDefinition<Input, unknown> | string,
    data?: NoInfer<Input>,
    options?: ScheduleOptions,
  ): Promise<Job<Input>>;
  async schedule(
    when: ScheduleTimes,
    target: JobDefinition | string,
    data?: unknown,
    options?: ScheduleOptions,
    ...surplus: readonly unknown[]
  ): Promise<never> {
    checkSurplus('schedule(times, job, data, options)', 'Pass all options in the fourth one.', surplus);
    return (await this.#enqueuer.schedule(when, target, data, options)) as never;
  }

  /**
   * Defines a task on a collection or table. Its handler runs when a document starts to match the filter, and when the
   * watched fields of a matching document change. If the instance has started, the task takes effect when the promise
   * resolves.
   */
  reactiveTask<Doc = Record<string, unknown>>(
    definition: ReactiveTaskDefinition<Doc, TransactionOf<S>>,
  ): Promise<void>;
  /** Defines a task whose handler gets several due documents in one call. */
  // From a union of both, the compiler could not tell which handler it is and type its arguments.
  reactiveTask<Doc = Record<string, unknown>>(
    // eslint-disable-next-line @typescript-eslint/unified-signatures
    definition: ReactiveBatchDefinition<Doc, TransactionOf<S>>,
  ): Promise<void>;
  reactiveTask(definition: ReactiveTaskDefinition<never> | ReactiveBatchDefinition<never>): Promise<void> {
    const compiled = compileTask(definition);
    const { given } = this.#store;
    const { plan } = compiled;
    if (given !== undefined) reactiveOf(given).check(`reactiveTask(${show(plan.task)})`, plan);
    this.#definitions.add(compiled);
    const added =
      this.#lifecycle.starting?.then(() => this.#lifecycle.runtime?.taskAdded()) ?? Promise.resolve();
    // A caller that does not await the promise still gets the failure as an `error` event.
    added.catch((error: unknown) => {
      this.#definitions.remove(plan.task);
      this.#fault(error, 'reactiveTask');
    });
    return added;
  }

  /**
   * Runs documents of a collection, or rows of a table, when their own `sleepUntil` is due. Schedules defined before
   * `start` start with the mill; each also has its own `start` and `stop`.
   */
  documents<Doc = Record<string, unknown>>(options: DocumentOptions<Doc>): DocumentSchedule<Doc> {
    return this.#documents.add(options);
  }

  /** Returns the document schedules defined on this mill, each with its name. */
  documentSchedules(): readonly NamedSchedule[] {
    return this.#documents.named;
  }

  /** Returns one page of reactive tasks; the same as `tasks.find`. */
  getReactiveTasks(filter?: TasksFilter, page?: TasksPageOptions): Promise<TaskPage> {
    return this.tasks.find(filter, page);
  }

  /** Counts the reactive tasks that match; the same as `tasks.count`. */
  countReactiveTasks(filter?: TasksFilter): Promise<number> {
    return this.tasks.count(filter);
  }

  /** Runs reactive tasks again; the same as `tasks.retryMany`, with another name for its `count`. */
  async retryReactiveTasks(
    filter: TasksFilter | { readonly all: true },
  ): Promise<{ readonly modifiedCount: number }> {
    return { modifiedCount: (await this.tasks.retryMany(filter)).count };
  }

  /**
   * Runs `work` in a transaction of the store. Pass its argument as the `transaction` option of `enqueue` and other
   * calls.
   */
  withTransaction<T>(work: (transaction: TransactionOf<S>) => Promise<T>): Promise<T>;
  async withTransaction<T>(
    work: (transaction: TransactionOf<S>) => Promise<T>,
    ...surplus: readonly unknown[]
  ): Promise<T> {
    checkSurplus('withTransaction(work)', 'For other settings, open a transaction of your driver.', surplus);
    checkFunction('withTransaction', 'work', work);
    return this.#enqueuer.transaction(await this.#store.open(), work);
  }

  /**
   * Runs `work` under the lock `key`, which one call in the whole cluster holds at a time, and returns what `work`
   * returns. The lock is renewed while `work` runs and released when it ends. If the process dies, the lock becomes
   * free when its lease expires. If the lock is lost, `signal` aborts, and the call rejects with a `LeaseLostError`
   * once `work` has ended, unless `work` itself threw. If another holder still has the lock after `wait`, the call
   * rejects with a `LockTakenError`.
   *
   * Not re-entrant: a call for the same key inside `work` waits in vain for the outer one.
   */
  withLock<T>(key: string, work: (lock: LockContext) => T | Promise<T>, options?: LockOptions): Promise<T> {
    return this.#locks.with(key, work, options);
  }

  /**
   * Returns a prom-client registry with all metrics; docs/metrics.md lists them. Returns null if `monitoring.enabled`
   * is false, and also, after one warning, if prom-client is not installed.
   */
  getPrometheusMetrics(): Promise<PrometheusRegistry | null> {
    return this.#monitor.scrape();
  }

  /** Adds a listener. If a listener throws or rejects, the mill emits `error`; nothing else is affected. */
  on<K extends keyof MillEvents>(event: K, listener: (payload: MillEvents[K]) => unknown): this {
    checkEvent('on', event);
    checkFunction('on', `listener of ${event}`, listener);
    this.#events.on(event, listener);
    return this;
  }

  off<K extends keyof MillEvents>(event: K, listener: (payload: MillEvents[K]) => unknown): this {
    this.#events.off(event, listener);
    return this;
  }

  /**
   * Starts this instance. A second call returns when the first start has finished; a call after `stop` starts again.
   * `roles` splits a deployment: `work` runs handlers, `plan` may plan reactive tasks, `maintain` takes over the work
   * of dead instances and deletes expired jobs. Default: all three.
   */
  start(options: StartOptions = {}): Promise<void> {
    return this.#lifecycle.start(options);
  }

  /**
   * Stops claiming and waits up to `timeout` for running handlers; then aborts their signals and returns their work to
   * the queue without using an attempt. Resolves when everything that was opened is closed. Default: `shutdownTimeout`.
   */
  stop(options: StopOptions = {}): Promise<void> {
    return this.#lifecycle.stop(options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** Checks the server, the indexes or schema, and the cluster. Each problem comes with its fix. Changes nothing. */
  async doctor(): Promise<readonly Finding[]> {
    const { diagnose } = await loadDoctor();
    return diagnose(() => this.#store.open(), this.#documents);
  }

  /** Returns the time of the store's server, as this process estimates it. */
  async time(): Promise<Date> {
    return new Date((await this.#store.open()).clock.now());
  }

  /** Returns the registered instances of the cluster: which are alive, what each runs, and which one is the leader. */
  async instances(): Promise<readonly MillInstance[]> {
    return instancesOf(await this.#store.open());
  }

  /**
   * Explains why a job, a reactive task or a document is not running. Returns an empty list if it is running or has
   * ended. Of a document that runs, it tells when its lock ends.
   */
  async why(target: WhyTarget): Promise<readonly Reason[]> {
    const { Why } = await loadWhy();
    return new Why(() => this.#store.open(), this.tasks, this.#documents.named).of(target);
  }

  /**
   * Pauses all work in the cluster: no instance starts a job, a reactive task or a document schedule until `resume`, also
   * after restarts. Running work ends normally. Pauses of single names stay as they are.
   */
  async pause(): Promise<void> {
    await (await this.#store.open()).jobs.pauseName(EVERYTHING);
  }

  /** Ends the pause of all work. Names that were paused by themselves stay paused. */
  async resume(): Promise<void> {
    await (await this.#store.open()).jobs.resumeName(EVERYTHING);
    this.#lifecycle.runtime?.jobs.notify();
  }

  /** Returns whether all work of the cluster is paused. */
  async paused(): Promise<boolean> {
    return (await this.#store.open()).jobs.isPaused(EVERYTHING);
  }

  /**
   * Returns `health().ok`: the instance has started, holds its lease and gets answers from the store, the store accepts
   * outcomes, and fewer than `maxAbandoned` handlers ignore their timeout.
   */
  isHealthy(): boolean {
    return this.health().ok;
  }

  /** Returns the state of this instance: whether it is healthy, why not, and how much it runs. */
  health(): Health {
    const { leads: leader = false, troubles = [], isAllPaused = false } = this.#lifecycle.runtime ?? {};
    const planning = {
      leader,
      paused: isAllPaused || this.#documents.isPaused,
      troubles: [...this.#outage.troubles, ...troubles, ...this.#documents.troubles],
      historyLost: this.#historyLost,
    };
    const { state, shortage } = this.#lifecycle.runtime ?? {};
    return healthOf(this.#store.kind, state, planning, this.#settings, shortage);
  }

  #work({ where, worker }: Handled): void {
    this.#registry.add(where, worker);
    this.#lifecycle.runtime?.jobAdded();
    this.#lifecycle.runtime?.jobs.notify();
  }

  /**
   * Reports an error that no caller sees: to the listeners of `error`, or to the log if there are none. During an outage,
   * only some of those that repeat.
   */
  #fault(problem: unknown, where: string): void {
    this.#outage.fault(asError(problem), where);
  }

  #report(error: Error, where: string): void {
    if (this.#events.has('error') && !where.startsWith('listener of error')) {
      this.#events.emit('error', { error, where, instanceId: this.instanceId });
    } else this.#log.error({ error, where }, `${where}: ${error.message}`);
  }
}
