import type { StandardSchemaV1 } from '@standard-schema/spec';
import { Audit } from './mill/audit.js';
import { Emitter } from './core/emitter.js';
import { asError } from './core/errors.js';
import type { Job } from './core/records/job.js';
import { safeLogger, type Logger } from './core/logger.js';
import { checkFunction, show } from './core/options.js';
import type { LockContext } from './locks/lock-hold.js';
import type { AnyHandler, JobHandler } from './jobs/context.js';
import type { JobDefinition, JobOptions, WorkOptions } from './jobs/definition.js';
import { readJob, readWork, type Handled } from './jobs/handler-arguments.js';
import { checkEvent, type MillEvents } from './mill/events.js';
import { Jobs } from './jobs/manager.js';
import { Enqueuer, type EnqueuedJob, type EnqueueOptions, type ScheduleOptions } from './jobs/enqueuer.js';
import { Registry } from './jobs/registry.js';
import { Results } from './jobs/results.js';
import { Schedules } from './jobs/schedules.js';
import { UnknownNames } from './jobs/unknown-names.js';
import {
  DocumentSchedules,
  type DocumentOptions,
  type DocumentSchedule,
  type NamedSchedule,
} from './mill/document-schedules.js';
import { healthOf, type Health } from './mill/health.js';
import { StoreHandle } from './mill/store-handle.js';
import { instancesOf, type MillInstance } from './mill/instances.js';
import { jobType, readItems, type JobType, type ManyItem, type Payload } from './mill/job-types.js';
import { Lifecycle, type StartOptions, type StopOptions } from './mill/lifecycle.js';
import { Locks, type LockOptions } from './locks/locks.js';
import { Monitor } from './metrics/monitor.js';
import type { PrometheusRegistry } from './metrics/prometheus.js';
import { Metrics } from './metrics/series.js';
import { checkMillOptions, type MillSettings, type TidemillOptions } from './mill/options.js';
import { compileTask, type ReactiveTaskDefinition } from './reactive/definition.js';
import { Definitions } from './reactive/definitions.js';
import { Tasks, type TaskPage, type TasksPageOptions } from './reactive/manage/manager.js';
import { reactiveOf } from './reactive/reactive-of.js';
import type { TasksFilter } from './reactive/manage/tasks-filter.js';
import type { InstanceRuntime } from './mill/instance-runtime.js';
import { loadDoctor, loadRuntime, loadWhy } from './mill/parts.js';
import type { Role } from './mill/roles.js';
import type { Finding } from './store/inspect.js';
import type { Store, TransactionOf } from './store/port.js';
import type { ScheduleTimes } from './time/interval.js';
import { Tracing } from './tracing/load.js';
import type { Reason, WhyTarget } from './mill/why.js';

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
  readonly #enqueuer: Enqueuer<TransactionOf<S>>;
  readonly #results: Results;
  readonly #locks: Locks;
  readonly #documents: DocumentSchedules;
  readonly #lifecycle: Lifecycle;
  readonly #monitor: Monitor;
  readonly #tracing: Tracing;
  readonly #store: StoreHandle<S>;
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
    const store = (): Promise<Store> => this.#store.open();
    const due = (): void => this.#lifecycle.runtime?.notify();
    this.#results = new Results(store);
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
    });
    this.#lifecycle = new Lifecycle({
      shutdownMs: this.#settings.shutdownMs,
      documents: this.#documents,
      locks: this.#locks,
      results: this.#results,
      createRuntime: (roles) => this.#createRuntime(roles),
      monitor: this.#monitor,
      close: () => {
        this.#unknownNames?.stop();
        return this.#store.release();
      },
      started: () => this.#events.emit('start', { instanceId: this.instanceId }),
      stopping: (waitUntil) => this.#events.emit('stop', { instanceId: this.instanceId, waitUntil }),
    });
    this.#enqueuer = new Enqueuer(() => this.#store.open(), this.#registry, {
      due,
      reserve: (name, id) => this.#lifecycle.runtime?.reserve(name, id),
      stored: (jobs) => this.stored?.(jobs),
      named: (name, opened) => this.#unknownNames?.note(name, opened),
      meter: this.#monitor.meter,
      tracer: () => this.#tracing.tracer,
    });
    this.jobs = new Jobs({
      store,
      registry: this.#registry,
      results: this.#results,
      due,
      cancelled: (job) => this.#events.emit('job:cancel', { job, instanceId: this.instanceId }),
      why: async (id) => (await this.why({ kind: 'jobs', id })).map(({ text }) => text),
    });
    this.schedules = new Schedules(store, due);
    this.tasks = new Tasks(store, () => this.#definitions.plans);
    this.metrics = new Metrics(store);
    this.audit = new Audit(store, this.#settings.auditMs);
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
  job<T = unknown>(name: string, handler: JobHandler<T, TransactionOf<S>>): JobType<T, TransactionOf<S>>;
  job(
    name: string,
    second: (JobOptions & { readonly schema?: StandardSchemaV1 }) | AnyHandler = {},
    third?: AnyHandler,
  ): JobType<unknown, TransactionOf<S>> {
    const handled = readJob(name, second, third);
    this.#work(handled);
    return jobType(handled.worker.definition, this.#enqueuer);
  }

  /** Registers this instance's handler for a job that `defineJob` defined. */
  work<Input, Output, Result>(
    definition: JobDefinition<Input, Output, Result>,
    handler: JobHandler<Output, TransactionOf<S>, NoInfer<Result>>,
  ): void;
  work<Input, Output, Result>(
    definition: JobDefinition<Input, Output, Result>,
    options: WorkOptions,
    handler: JobHandler<Output, TransactionOf<S>, NoInfer<Result>>,
  ): void;
  work(definition: JobDefinition, second: WorkOptions | AnyHandler = {}, third?: AnyHandler): void {
    this.#work(readWork(definition, second, third));
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
  enqueue(
    target: JobDefinition | string,
    data?: unknown,
    options?: EnqueueOptions<TransactionOf<S>>,
  ): Promise<EnqueuedJob> {
    return this.#enqueuer.enqueue(target, data, options);
  }

  /**
   * Enqueues many jobs in one write and returns them in the same order. One invalid item rejects the whole call. An item
   * names its job, `{ name, data, ...options }`, or has its definition, `{ job: definition, data, ...options }`.
   */
  async enqueueMany<const Inputs extends readonly unknown[]>(items: {
    readonly [K in keyof Inputs]: ManyItem<Inputs[K], TransactionOf<S>>;
  }): Promise<{ -readonly [K in keyof Inputs]: EnqueuedJob<Inputs[K]> }> {
    const asked = readItems<TransactionOf<S>>(items);
    return (await this.#enqueuer.enqueueMany(asked)) as never;
  }

  /** Enqueues a job to run as soon as possible: `enqueue` without options. */
  now<T = unknown>(name: string, data?: T): Promise<EnqueuedJob<T>>;
  /** Enqueues a job by its definition, to run as soon as possible. */
  now<Input>(
    job: JobDefinition<Input, unknown> | string,
    ...rest: Payload<Input, []>
  ): Promise<EnqueuedJob<Input>>;
  now(target: JobDefinition | string, data?: unknown): Promise<EnqueuedJob> {
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
  ): Promise<Job<Input>> {
    return this.#enqueuer.schedule(when, target, data, options) as Promise<Job<Input>>;
  }

  /**
   * Defines a task on a collection or table. Its handler runs when a document starts to match the filter, and when the
   * watched fields of a matching document change. If the instance has started, the task takes effect when the promise
   * resolves.
   */
  reactiveTask<Doc = Record<string, unknown>>(
    definition: ReactiveTaskDefinition<Doc, TransactionOf<S>>,
  ): Promise<void> {
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
  async withTransaction<T>(work: (transaction: TransactionOf<S>) => Promise<T>): Promise<T> {
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

  /** Explains why a job or a reactive task is not running. Returns an empty list if it is running or has ended. */
  async why(target: WhyTarget): Promise<readonly Reason[]> {
    const { Why } = await loadWhy();
    return new Why(() => this.#store.open(), this.tasks).of(target);
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
    const { leads: leader = false, troubles = [] } = this.#lifecycle.runtime ?? {};
    const planning = {
      leader,
      troubles: [...troubles, ...this.#documents.troubles],
      historyLost: this.#historyLost,
    };
    const { state, shortage } = this.#lifecycle.runtime ?? {};
    return healthOf(this.#store.kind, state, planning, this.#settings, shortage);
  }

  #work({ where, worker }: Handled): void {
    this.#registry.add(where, worker);
    this.#lifecycle.runtime?.notify();
  }

  async #createRuntime(roles: ReadonlySet<Role>): Promise<InstanceRuntime> {
    const { InstanceRuntime } = await loadRuntime();
    return new InstanceRuntime({
      settings: this.#settings,
      roles,
      store: await this.#store.open(),
      registry: this.#registry,
      definitions: this.#definitions,
      events: this.#events,
      log: this.#log,
      meter: this.#monitor.meter,
      tracer: () => this.#tracing.tracer,
      ended: (id, job) => this.#results.ended(id, job),
      fault: (error, where) => this.#fault(error, where),
    });
  }

  /** Reports an error that no caller sees: to the listeners of `error`, or to the log if there are none. */
  #fault(problem: unknown, where: string): void {
    const error = asError(problem);
    if (this.#events.has('error') && !where.startsWith('listener of error')) {
      this.#events.emit('error', { error, where, instanceId: this.instanceId });
    } else this.#log.error({ error, where }, `${where}: ${error.message}`);
  }
}
