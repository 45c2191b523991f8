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
import type { MillEvents } from './mill/events.js';
import { Jobs } from './jobs/manager.js';
import { Enqueuer, type EnqueuedJob, type EnqueueOptions, type ScheduleOptions } from './jobs/enqueuer.js';
import { Registry } from './jobs/registry.js';
import { Results } from './jobs/results.js';
import { Schedules } from './jobs/schedules.js';
import {
  DocumentSchedules,
  type DocumentOptions,
  type DocumentSchedule,
  type NamedSchedule,
} from './mill/document-schedules.js';
import { diagnose } from './mill/doctor.js';
import { healthOf, type Health } from './mill/health.js';
import { StoreHandle } from './mill/store-handle.js';
import { instancesOf, type MillInstance } from './mill/instances.js';
import { checkItems, jobType, type JobType, type NamedItem, type Payload } from './mill/job-types.js';
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
import { InstanceRuntime, type Role } from './mill/instance-runtime.js';
import type { Finding } from './store/inspect.js';
import type { Store, TransactionOf } from './store/port.js';
import { Tracing } from './tracing/load.js';
import { Why, type Reason, type WhyTarget } from './mill/why.js';

/**
 * The front door. The constructor starts nothing and opens nothing: a producer that only enqueues never has to
 * call `start`, and `stop` closes whatever was opened.
 */
export class Tidemill<S extends Store = Store> implements AsyncDisposable {
  readonly instanceId: string;
  readonly jobs: Jobs;
  readonly schedules: Schedules;
  readonly tasks: Tasks;
  readonly metrics: Metrics;
  /** Who did what by hand; the dashboard and the command line write it. */
  readonly audit: Audit;
  readonly #settings: MillSettings;
  readonly #log: Logger;
  readonly #events: Emitter<MillEvents>;
  readonly #registry: Registry;
  readonly #definitions = new Definitions();
  readonly #enqueuer: Enqueuer<TransactionOf<S>>;
  readonly #results: Results;
  readonly #locks: Locks;
  readonly #why: Why;
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
    this.#tracing = new Tracing(this.#settings.tracing);
    this.#store = new StoreHandle(options.store, {
      globals: this.#settings.reactive.globalsCollection,
      ready: this.#tracing.ready,
      opened: (store) => this.#monitor.opened(store),
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
      shift: (roles) => this.#makeShift(roles),
      monitor: this.#monitor,
      close: () => this.#store.release(),
      started: () => this.#events.emit('start', { instanceId: this.instanceId }),
      stopping: (waitUntil) => this.#events.emit('stop', { instanceId: this.instanceId, waitUntil }),
    });
    this.#enqueuer = new Enqueuer(() => this.#store.open(), this.#registry, {
      due,
      reserve: (name, id) => this.#lifecycle.runtime?.reserve(name, id),
      stored: (jobs) => this.stored?.(jobs),
      meter: this.#monitor.meter,
      tracer: () => this.#tracing.tracer,
    });
    this.jobs = new Jobs(store, this.#registry, this.#results, due, (job) =>
      this.#events.emit('job:cancel', { job, instanceId: this.instanceId }),
    );
    this.schedules = new Schedules(store, due);
    this.tasks = new Tasks(store, () => this.#definitions.plans);
    this.metrics = new Metrics(store);
    this.audit = new Audit(store, this.#settings.auditMs);
    this.#why = new Why(store, this.tasks);
  }

  /** Names of the jobs that have a handler on this instance. */
  get names(): readonly string[] {
    return [...this.#registry.workers.keys()];
  }

  /** True from the call of `start` until the end of `stop`. */
  get started(): boolean {
    return this.#lifecycle.starting !== undefined;
  }

  /** For subclasses that do something with jobs before their caller has them: see `tidemill/testing`. */
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

  /** Gives a definition its handler on this instance. */
  work<Input, Output>(
    definition: JobDefinition<Input, Output>,
    handler: JobHandler<Output, TransactionOf<S>>,
  ): void;
  work<Input, Output>(
    definition: JobDefinition<Input, Output>,
    options: WorkOptions,
    handler: JobHandler<Output, TransactionOf<S>>,
  ): void;
  work(definition: JobDefinition, second: WorkOptions | AnyHandler = {}, third?: AnyHandler): void {
    this.#work(readWork(definition, second, third));
  }

  /** Asks for a job. When this has resolved, the job runs at least once, whatever crashes. */
  enqueue<Input>(
    definition: JobDefinition<Input, unknown>,
    ...rest: Payload<Input, [options?: EnqueueOptions<TransactionOf<S>>]>
  ): Promise<EnqueuedJob<Input>>;
  enqueue<T = unknown>(
    name: string,
    data?: T,
    options?: EnqueueOptions<TransactionOf<S>>,
  ): Promise<EnqueuedJob<T>>;
  enqueue(
    target: JobDefinition | string,
    data?: unknown,
    options?: EnqueueOptions<TransactionOf<S>>,
  ): Promise<EnqueuedJob> {
    return this.#enqueuer.enqueue(target, data, options);
  }

  /** Asks for many jobs in one write; answers in the same order. One that is invalid refuses the whole call. */
  async enqueueMany(items: readonly NamedItem<TransactionOf<S>>[]): Promise<EnqueuedJob[]> {
    return this.#enqueuer.enqueueMany(
      checkItems(items).map(({ name, data, ...options }) => ({ target: name, data, options })),
    );
  }

  /** Asks for a job to run at once. */
  now<Input>(
    definition: JobDefinition<Input, unknown>,
    ...rest: Payload<Input, []>
  ): Promise<EnqueuedJob<Input>>;
  now<T = unknown>(name: string, data?: T): Promise<EnqueuedJob<T>>;
  now(target: JobDefinition | string, data?: unknown): Promise<EnqueuedJob> {
    return this.#enqueuer.enqueue(target, data);
  }

  /** Makes or changes a recurring job; the same call from many instances makes one. */
  schedule<Input>(
    cron: string,
    target: JobDefinition<Input, unknown> | string,
    data?: NoInfer<Input>,
    options?: ScheduleOptions,
  ): Promise<Job<Input>> {
    return this.#enqueuer.schedule(cron, target, data, options) as Promise<Job<Input>>;
  }

  /**
   * Defines a task on a collection: its handler runs when a document comes to match, or its watched fields change.
   * On an instance that runs already it takes effect when the promise resolves.
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
    // Whoever does not wait for it hears of a failure all the same.
    added.catch((error: unknown) => {
      this.#definitions.remove(plan.task);
      this.#fault(error, 'reactiveTask');
    });
    return added;
  }

  /**
   * Runs documents of a collection, or rows of a table, when their own `sleepUntil` says so. Those defined before `start`
   * begin with it; each has a `start` and a `stop` of its own as well.
   */
  documents<Doc = Record<string, unknown>>(options: DocumentOptions<Doc>): DocumentSchedule<Doc> {
    return this.#documents.add(options);
  }

  /** The schedules of documents that were defined on this mill, each with a name. */
  documentSchedules(): readonly NamedSchedule[] {
    return this.#documents.named;
  }

  /** One page of reactive tasks; the same as `tasks.find`. */
  getReactiveTasks(filter?: TasksFilter, page?: TasksPageOptions): Promise<TaskPage> {
    return this.tasks.find(filter, page);
  }

  /** How many reactive tasks match; the same as `tasks.count`. */
  countReactiveTasks(filter?: TasksFilter): Promise<number> {
    return this.tasks.count(filter);
  }

  /** Runs reactive tasks again; the same as `tasks.retryMany`. */
  async retryReactiveTasks(
    filter: TasksFilter | { readonly all: true },
  ): Promise<{ readonly modifiedCount: number }> {
    return { modifiedCount: (await this.tasks.retryMany(filter)).count };
  }

  /** Runs `work` in a transaction of the store; pass its argument on as `transaction`. */
  async withTransaction<T>(work: (transaction: TransactionOf<S>) => Promise<T>): Promise<T> {
    checkFunction('withTransaction', 'work', work);
    return (await this.#store.open()).transaction(work);
  }

  /**
   * Runs `work` while this call alone, in the whole cluster, has the lock of that key; answers what it answers. The
   * lock is renewed while it runs and given back when it ends, and is free after its lease if the process dies. If it
   * is lost, `signal` aborts, and a `LeaseLostError` is thrown once `work` has ended. A `LockTakenError` is thrown
   * where somebody else still has it after `wait`.
   *
   * Not re-entrant: a call for the same key inside `work` waits for the outer one, in vain.
   */
  withLock<T>(key: string, work: (lock: LockContext) => T | Promise<T>, options?: LockOptions): Promise<T> {
    return this.#locks.with(key, work, options);
  }

  /**
   * A registry of prom-client with everything that is measured; docs/metrics.md has the list. Null where `monitoring` is off,
   * and, after one warning, where prom-client is not installed.
   */
  getPrometheusMetrics(): Promise<PrometheusRegistry | null> {
    return this.#monitor.scrape();
  }

  on<K extends keyof MillEvents>(event: K, listener: (payload: MillEvents[K]) => unknown): this {
    checkFunction('on', `listener of ${event}`, listener);
    this.#events.on(event, listener);
    return this;
  }

  off<K extends keyof MillEvents>(event: K, listener: (payload: MillEvents[K]) => unknown): this {
    this.#events.off(event, listener);
    return this;
  }

  /**
   * Begins to work. Called again, it answers the same; after a stop it begins anew. `roles` splits a deployment:
   * `work` runs handlers, `plan` may plan reactive tasks, `maintain` hands on the work of dead instances. Default: all.
   */
  start(options: StartOptions = {}): Promise<void> {
    return this.#lifecycle.start(options);
  }

  /** Resolves when nothing runs any more and everything that was opened is closed. */
  stop(options: StopOptions = {}): Promise<void> {
    return this.#lifecycle.stop(options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** Looks at the server, at indexes or schema, and at the cluster: each finding with its fix. Changes nothing. */
  doctor(): Promise<readonly Finding[]> {
    return diagnose(() => this.#store.open(), this.#documents);
  }

  /** The time of the store's server, as this process estimates it. */
  async time(): Promise<Date> {
    return new Date((await this.#store.open()).clock.now());
  }

  /** The instances of the cluster that are registered: who is alive, what each runs, and who plans. */
  async instances(): Promise<readonly MillInstance[]> {
    return instancesOf(await this.#store.open());
  }

  /** Why a job or a task does not run: reasons with a code and a sentence; none where it runs or has ended. */
  async why(target: WhyTarget): Promise<readonly Reason[]> {
    return this.#why.of(target);
  }

  /** The loop is alive, the store answers, the lease is held, and handlers do not run away. */
  isHealthy(): boolean {
    return this.health().ok;
  }

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

  async #makeShift(roles: ReadonlySet<Role>): Promise<InstanceRuntime> {
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

  /** An error that no caller sees: to the listeners, or to the log where nobody listens. */
  #fault(problem: unknown, where: string): void {
    const error = asError(problem);
    if (this.#events.has('error') && !where.startsWith('listener of error')) {
      this.#events.emit('error', { error, where, instanceId: this.instanceId });
    } else this.#log.error({ error, where }, `${where}: ${error.message}`);
  }
}
