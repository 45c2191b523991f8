import type { StandardSchemaV1 } from '@standard-schema/spec';
import { Emitter } from './core/emitter.js';
import { asError, OptionError } from './core/errors.js';
import { toJob, type Job } from './core/job.js';
import { safeLogger, type Logger } from './core/logger.js';
import { checkFunction, checkKeys, show } from './core/options.js';
import { Engine } from './engine/engine.js';
import type { AnyHandler, JobHandler } from './jobs/context.js';
import {
  checkWorkOptions,
  compileWork,
  defineJob,
  isDefinition,
  splitOptions,
  type JobDefinition,
  type JobOptions,
  type WorkOptions,
} from './jobs/definition.js';
import type { MillEvents } from './jobs/events.js';
import { Jobs } from './jobs/manager.js';
import { Queue, type EnqueuedJob, type EnqueueOptions, type ScheduleOptions } from './jobs/queue.js';
import { Registry } from './jobs/registry.js';
import { Results } from './jobs/results.js';
import { Schedules } from './jobs/schedules.js';
import { JobTrigger } from './jobs/trigger.js';
import { Cleaner } from './maintenance/cleaner.js';
import { Reclaimer } from './maintenance/reclaimer.js';
import { checkMillOptions, type MillSettings, type TidemillOptions } from './mill-options.js';
import { openStore } from './open-store.js';
import type { Store, TransactionOf, WakeUp } from './store/port.js';
import { toMs, type Duration } from './time/duration.js';

/** A job type: its name with its payload's type, ready to be asked for. */
export interface JobType<Input, Tx> {
  readonly name: string;
  enqueue(data: Input, options?: EnqueueOptions<Tx>): Promise<EnqueuedJob<Input>>;
  enqueueMany(
    items: readonly ({ readonly data: Input } & EnqueueOptions<Tx>)[],
  ): Promise<EnqueuedJob<Input>[]>;
  now(data: Input): Promise<EnqueuedJob<Input>>;
  schedule(cron: string, data: Input, options?: ScheduleOptions): Promise<Job<Input>>;
}

/** One job of `enqueueMany`. */
export type NamedItem<Tx> = { readonly name: string; readonly data?: unknown } & EnqueueOptions<Tx>;

function checkItems<T extends object>(items: readonly T[]): readonly T[] {
  const wrong = !Array.isArray(items) || items.some((item) => typeof item !== 'object' || item === null);
  if (!wrong) return items as readonly T[];
  throw new OptionError(`enqueueMany: expected a list of { name, data, ...options }, got ${show(items)}.`);
}

export interface Health {
  readonly ok: boolean;
  /** Why it is not ok, in words. */
  readonly reasons: readonly string[];
  readonly store: string;
  readonly wakeUp: WakeUp | undefined;
  readonly lastContactAt: Date | undefined;
  readonly running: number;
  readonly buffered: number;
  readonly abandoned: number;
  readonly claims: { readonly total: number; readonly empty: number; readonly short: number };
}

/** One turn of work: made by start, ended by stop. */
interface Shift {
  readonly engine: Engine;
  readonly reclaimer: Reclaimer | undefined;
  readonly cleaner: Cleaner | undefined;
}

/** More silence than this share of a lease means that the store does not answer. */
const SILENT_SHARE = 2 / 3;

/**
 * The front door. The constructor starts nothing and opens nothing: a producer that only enqueues never has to
 * call `start`, and `stop` closes whatever was opened.
 */
export class Tidemill<S extends Store = Store> implements AsyncDisposable {
  readonly instanceId: string;
  readonly jobs: Jobs;
  readonly schedules: Schedules;
  readonly #settings: MillSettings;
  readonly #log: Logger;
  readonly #events: Emitter<MillEvents>;
  readonly #registry: Registry;
  readonly #queue: Queue<TransactionOf<S>>;
  readonly #results: Results;
  readonly #given: S | string;
  #resolved: Promise<Store<TransactionOf<S>>> | undefined;
  #shift: Shift | undefined;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;

  constructor(options: TidemillOptions<S>) {
    this.#settings = checkMillOptions(options);
    this.instanceId = this.#settings.instanceId;
    this.#given = options.store;
    this.#log = safeLogger(options.logger);
    this.#events = new Emitter((error, event) => this.#fault(error, `listener of ${event}`));
    this.#registry = new Registry(this.#settings.retention);
    const store = (): Promise<Store> => this.#store();
    const due = (): void => this.#shift?.engine.notify();
    this.#results = new Results(store);
    this.#queue = new Queue(() => this.#store(), this.#registry, due);
    this.jobs = new Jobs(store, this.#registry, this.#results, due);
    this.schedules = new Schedules(store, due);
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
  job<T = unknown>(name: string, handler: JobHandler<T, TransactionOf<S>>): JobType<T, TransactionOf<S>>;
  job(
    name: string,
    second: (JobOptions & { readonly schema?: StandardSchemaV1 }) | AnyHandler = {},
    third?: AnyHandler,
  ): JobType<unknown, TransactionOf<S>> {
    const [options, handler] = typeof second === 'function' ? [{}, second] : [second, third];
    const { definition, work } = splitOptions(`job(${show(name)})`, options);
    const defined =
      definition.schema === undefined
        ? defineJob(name, definition)
        : defineJob(name, { ...definition, schema: definition.schema });
    this.#work(`job(${show(name)})`, defined, work, handler);
    return this.#type(defined);
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
    const [options, handler] = typeof second === 'function' ? [{}, second] : [second, third];
    const where = `work(${show((definition as JobDefinition | undefined)?.name)})`;
    if (!isDefinition(definition)) {
      throw new OptionError(`${where}: the first argument must be a definition made by defineJob.`);
    }
    checkWorkOptions(where, options);
    this.#work(where, definition, options, handler);
  }

  /** Asks for a job. When this has resolved, the job runs at least once, whatever crashes. */
  enqueue<Input>(
    target: JobDefinition<Input, unknown> | string,
    data?: NoInfer<Input>,
    options?: EnqueueOptions<TransactionOf<S>>,
  ): Promise<EnqueuedJob<Input>> {
    return this.#queue.enqueue(target, data, options) as Promise<EnqueuedJob<Input>>;
  }

  /** Asks for many jobs in one write; answers in the same order. One that is invalid refuses the whole call. */
  async enqueueMany(items: readonly NamedItem<TransactionOf<S>>[]): Promise<EnqueuedJob[]> {
    return this.#queue.enqueueMany(
      checkItems(items).map(({ name, data, ...options }) => ({ target: name, data, options })),
    );
  }

  /** Asks for a job to run at once. */
  now<Input>(
    target: JobDefinition<Input, unknown> | string,
    data?: NoInfer<Input>,
  ): Promise<EnqueuedJob<Input>> {
    return this.enqueue(target, data);
  }

  /** Makes or changes a recurring job; the same call from many instances makes one. */
  schedule<Input>(
    cron: string,
    target: JobDefinition<Input, unknown> | string,
    data?: NoInfer<Input>,
    options?: ScheduleOptions,
  ): Promise<Job<Input>> {
    return this.#queue.schedule(cron, target, data, options) as Promise<Job<Input>>;
  }

  /** Runs `work` in a transaction of the store; pass its argument on as `transaction`. */
  async withTransaction<T>(work: (transaction: TransactionOf<S>) => Promise<T>): Promise<T> {
    checkFunction('withTransaction', 'work', work);
    return (await this.#store()).transaction(work);
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

  /** Begins to work. Called again, it answers the same; after a stop it begins anew. */
  async start(): Promise<void> {
    // Only where there is a stop to wait for: a stop right after this call must find the start under way.
    if (this.#stopping !== undefined) await this.#stopping;
    this.#starting ??= this.#begin();
    await this.#starting;
  }

  /** Resolves when nothing runs any more and everything that was opened is closed. */
  stop(options: { readonly timeout?: Duration } = {}): Promise<void> {
    this.#stopping ??= this.#end(options).finally(() => (this.#stopping = undefined));
    return this.#stopping;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** The loop is alive, the store answers, the lease is held, and handlers do not run away. */
  isHealthy(): boolean {
    return this.health().ok;
  }

  health(): Health {
    const store = typeof this.#given === 'string' ? (this.#given.split(':')[0] ?? '') : this.#given.kind;
    const state = this.#shift?.engine.state;
    const claims = {
      total: state?.counters.claims ?? 0,
      empty: state?.counters.empty ?? 0,
      short: state?.counters.short ?? 0,
    };
    const reasons = this.#complaints();
    return {
      ok: reasons.length === 0,
      reasons,
      store,
      wakeUp: state?.wakeUp,
      lastContactAt: state === undefined ? undefined : new Date(Date.now() - state.silentMs),
      running: state?.running ?? 0,
      buffered: state?.buffered ?? 0,
      abandoned: state?.abandoned ?? 0,
      claims,
    };
  }

  #complaints(): string[] {
    const state = this.#shift?.engine.state;
    if (state === undefined) return ['not started'];
    const { leaseMs, maxAbandoned } = this.#settings;
    return [
      ...(state.leaseHeld ? [] : ['the lease of this instance is lost']),
      ...(state.silentMs > leaseMs * SILENT_SHARE
        ? [`the store has not answered for ${String(Math.round(state.silentMs / 1000))} s`]
        : []),
      ...(state.abandoned >= maxAbandoned
        ? [`${String(state.abandoned)} handlers ignore their timeout (maxAbandoned)`]
        : []),
    ];
  }

  #work(where: string, definition: JobDefinition, options: WorkOptions, handler: unknown): void {
    checkFunction(where, 'handler', handler);
    this.#registry.add(where, {
      definition,
      work: compileWork(where, options),
      handler: handler as AnyHandler,
    });
    this.#shift?.engine.notify();
  }

  #type<Input>(definition: JobDefinition<Input>): JobType<Input, TransactionOf<S>> {
    const { name } = definition;
    return {
      name,
      enqueue: (data, options) => this.#queue.enqueue(name, data, options) as Promise<EnqueuedJob<Input>>,
      enqueueMany: async (items) => {
        const named = checkItems(items).map((item) => ({ ...item, name }));
        return (await this.enqueueMany(named)) as EnqueuedJob<Input>[];
      },
      now: (data) => this.#queue.enqueue(name, data) as Promise<EnqueuedJob<Input>>,
      schedule: (cron, data, options) =>
        this.#queue.schedule(cron, name, data, options) as Promise<Job<Input>>,
    };
  }

  /** The open store; opened with the first call that needs it, and again after a stop. */
  async #store(): Promise<Store<TransactionOf<S>>> {
    this.#resolved ??= (
      typeof this.#given === 'string' ? openStore(this.#given) : Promise.resolve(this.#given)
    ) as Promise<Store<TransactionOf<S>>>;
    const store = await this.#resolved;
    await store.acquire(this);
    return store;
  }

  async #begin(): Promise<void> {
    try {
      const store = (await this.#store()) as unknown as Store;
      const shift = this.#makeShift(store);
      await shift.engine.start();
      shift.reclaimer?.start();
      shift.cleaner?.start();
      this.#shift = shift;
    } catch (error) {
      this.#starting = undefined;
      throw error;
    }
  }

  #makeShift(store: Store): Shift {
    const { instanceId, historyLimit, leaseMs, recoverStaleJobs } = this.#settings;
    const [events, log, registry] = [this.#events, this.#log, this.#registry];
    const trigger = new JobTrigger({
      registry,
      store,
      instanceId,
      historyLimit,
      events,
      log,
      ended: (id, job) => this.#results.ended(id, job),
    });
    const engine: Engine = new Engine({
      ...this.#settings,
      store,
      trigger,
      log,
      policies: () => registry.policies(),
      events: {
        error: (error, where) => this.#fault(error, where),
        leaseLost: (reason, works) => this.#leaseLost(reason, works.map(toJob)),
        observed: (cluster, glance) => {
          reclaimer?.observe(cluster);
          if (glance?.foreign === true) this.#foreign();
        },
        renewed: () => reclaimer?.renewed(),
      },
    });
    const reclaimer = recoverStaleJobs
      ? new Reclaimer({
          store,
          leaseMs,
          self: () => engine.self,
          conclude: (work, finished, policies) => trigger.conclude(work, finished, policies),
          unknown: () => engine.unknown(),
          recovered: (works) => this.#recovered(works.map(({ work }) => work.name)),
          error: (error) => this.#fault(error, 'reclaim'),
        })
      : undefined;
    const cleaner =
      store.jobs.sweep === undefined ? undefined : new Cleaner(store, (error) => this.#fault(error, 'clean'));
    return { engine, reclaimer, cleaner };
  }

  async #end(options: { readonly timeout?: Duration }): Promise<void> {
    checkKeys('stop', options, ['timeout']);
    const timeoutMs =
      options.timeout === undefined ? this.#settings.shutdownMs : toMs('stop', 'timeout', options.timeout);
    await this.#starting?.catch(() => undefined);
    const shift = this.#shift;
    if (shift !== undefined) {
      const { handedBack, unrecorded } = await shift.engine.stop(timeoutMs);
      this.#shift = undefined;
      await shift.reclaimer?.stop();
      shift.cleaner?.stop();
      if (handedBack.length > 0) {
        const named = handedBack.map(({ name, id }) => `${name} ${id}`).join(', ');
        this.#log.warn(
          { jobs: handedBack.map(({ id }) => id) },
          `stopped before these had ended; they go back to the queue: ${named}`,
        );
      }
      if (unrecorded > 0) {
        this.#log.error(
          { count: unrecorded },
          `${String(unrecorded)} outcomes could not be recorded; those jobs will run again`,
        );
      }
    }
    this.#starting = undefined;
    this.#results.stop();
    const store = await this.#resolved?.catch(() => undefined);
    await store?.release(this);
  }

  #leaseLost(reason: string, jobs: readonly Job[]): void {
    this.#log.warn({ jobs: jobs.map(({ id }) => id) }, `lease lost: ${reason}`);
    this.#events.emit('lease:lost', { reason, jobs, instanceId: this.instanceId });
  }

  #recovered(names: readonly string[]): void {
    this.#log.info(
      { names: [...new Set(names)] },
      `${String(names.length)} jobs of a dead process were handed on`,
    );
    this.#events.emit('stale:recovered', { count: names.length, instanceId: this.instanceId });
    this.#shift?.engine.notify();
  }

  #reportedForeign = false;
  #foreign(): void {
    if (this.#reportedForeign) return;
    this.#reportedForeign = true;
    this.#log.warn(
      {},
      'there are pending jobs of a newer schema version; they are left alone until this process is upgraded',
    );
  }

  /** An error that no caller sees: to the listeners, or to the log where nobody listens. */
  #fault(problem: unknown, where: string): void {
    const error = asError(problem);
    if (this.#events.has('error') && !where.startsWith('listener of error')) {
      this.#events.emit('error', { error, where, instanceId: this.instanceId });
    } else this.#log.error({ error, where }, `${where}: ${error.message}`);
  }
}
