import { within } from '../core/clock.js';
import type { Emitter } from '../core/emitter.js';
import { toJob, type JobRecord } from '../core/records/job.js';
import type { Logger } from '../core/logger.js';
import type { Meter } from '../core/meter.js';
import { toTask } from '../core/records/task.js';
import type { Tracer } from '../core/tracer.js';
import type { Work } from '../core/records/work.js';
import { Engine } from '../engine/engine.js';
import type { EngineState } from '../engine/options.js';
import type { Reservation } from '../engine/claim/reservation.js';
import { FailureLog } from '../engine/record/failure-log.js';
import { InstanceContext } from '../engine/lease/instance-context.js';
import type { MillEvents } from './events.js';
import type { Registry } from '../jobs/registry.js';
import { JobRunner } from '../jobs/job-runner.js';
import { Cleaner } from '../maintenance/cleaner.js';
import { FailureDetector } from '../engine/lease/failure-detector.js';
import { Handover, type Recovered } from '../maintenance/handover.js';
import { Reclaimer } from '../maintenance/reclaimer.js';
import { clusterTurn } from '../maintenance/turn.js';
import type { MillSettings } from './options.js';
import type { Role } from './roles.js';
import { ReactiveRuntime } from '../reactive/runtime.js';
import type { Definitions } from '../reactive/definitions.js';
import { reactiveOf } from '../reactive/reactive-of.js';
import type { Vitals } from '../store/metrics.js';
import type {
  Capacity,
  Cluster,
  DueSummary,
  Instance,
  InstanceState,
  Settlement,
  Shortage,
  Store,
} from '../store/port.js';

export interface InstanceRuntimeOptions {
  readonly settings: MillSettings;
  readonly roles: ReadonlySet<Role>;
  readonly store: Store;
  readonly registry: Registry;
  readonly definitions: Definitions;
  readonly events: Emitter<MillEvents>;
  readonly log: Logger;
  readonly meter: Meter;
  readonly tracer: () => Tracer | undefined;
  /** Called when a job has ended in this process. */
  readonly ended: (id: string, job: () => JobRecord) => void;
  /** Reports an error that no caller sees. */
  readonly fault: (error: unknown, where: string) => void;
}

/** How long a stop waits for each answer of the store. */
const STOP_LIMIT_MS = 10_000;

/** One run of an instance, from `start` to `stop`: its engines, its lease, the reclaimer and the cleaner. */
export class InstanceRuntime {
  readonly #options: InstanceRuntimeOptions;
  readonly #context: InstanceContext;
  readonly #failures: FailureLog;
  readonly #runner: JobRunner;
  readonly #engine: Engine<JobRecord, Settlement>;
  readonly #detector: FailureDetector;
  readonly #reclaimer: Reclaimer | undefined;
  readonly #cleaner: Cleaner | undefined;
  #reactive: ReactiveRuntime | undefined;
  #started = false;
  readonly #reportedForeign = new Set<string>();

  constructor(options: InstanceRuntimeOptions) {
    this.#options = options;
    const { settings, store, registry, definitions, roles, fault } = options;
    this.#failures = new FailureLog(options.log, store.clock);
    this.#runner = new JobRunner({ ...options, ...settings, failures: this.#failures });
    this.#context = new InstanceContext({
      ...settings,
      store,
      log: options.log,
      describe: () => ({
        names: roles.has('work') ? [...this.#runner.workers().keys()] : [],
        tasks: this.#reactive?.adverts ?? [],
        policies: { ...registry.policies(), ...definitions.policies() },
        capacity: this.#capacity(),
      }),
      error: fault,
    });
    this.#detector = new FailureDetector(store.clock, settings.leaseMs);
    this.#engine = this.#makeEngine();
    const maintains = roles.has('maintain');
    this.#reclaimer = settings.recoverStaleJobs && maintains ? this.#makeReclaimer() : undefined;
    this.#cleaner =
      store.jobs.sweep === undefined || !maintains
        ? undefined
        : new Cleaner(store, this.#turn('sweep'), (error) => fault(error, 'clean'));
    this.#context.join({
      slotFreed: () => undefined,
      leaseLost: () => options.meter.leaseLost(),
      leaseRegained: () => this.#detector.renewed(),
      leaseRenewed: () => {
        this.#detector.renewed();
        this.#reclaimer?.renewed();
      },
    });
  }

  get state(): EngineState {
    const jobs = this.#engine.state;
    const tasks = this.#reactive?.state;
    if (tasks === undefined) return jobs;
    return {
      ...jobs,
      running: jobs.running + tasks.running,
      buffered: jobs.buffered + tasks.buffered,
      unsettled: jobs.unsettled + tasks.unsettled,
      refused: [...jobs.refused, ...tasks.refused],
      abandoned: jobs.abandoned + tasks.abandoned,
      stuckMs: Math.max(jobs.stuckMs, tasks.stuckMs),
      silentMs: Math.min(jobs.silentMs, tasks.silentMs),
      counters: {
        claims: jobs.counters.claims + tasks.counters.claims,
        empty: jobs.counters.empty + tasks.counters.empty,
        short: jobs.counters.short + tasks.counters.short,
      },
    };
  }

  /** True while this instance is the leader, which plans reactive tasks. */
  get leads(): boolean {
    return this.#reactive?.leads === true;
  }

  get self(): Instance {
    return this.#context.self;
  }

  async vitals(): Promise<Vitals> {
    const { running, buffered, abandoned, wakeUp } = this.state;
    const planner = await this.#reactive?.vitals();
    return { running, buffered, abandoned, wakeUp, ...(planner === undefined ? {} : { planner }) };
  }

  get shortage(): Shortage | undefined {
    return this.#options.store.shortage?.();
  }

  get troubles(): readonly string[] {
    return this.#reactive?.troubles ?? [];
  }

  async start(): Promise<void> {
    const { roles, definitions, store } = this.#options;
    // An instance that plans but does not work needs no definitions of its own: the registry has those of others.
    const plansOnly = roles.has('plan') && !roles.has('work') && store.reactive !== undefined;
    if (definitions.tasks.size > 0 || plansOnly) await this.#createReactive();
    await this.#context.start();
    this.#detector.renewed();
    this.#started = true;
    if (roles.has('work')) this.#engine.start();
    this.#reclaimer?.start();
    this.#cleaner?.start();
    await this.#reactive?.start();
  }

  /** Called when a stop is requested: a start that waits for an earlier process with this instanceId gives up. */
  hurry(): void {
    this.#context.keeper.hurry();
  }

  /** Called when a reactive task is defined while the instance runs. */
  async taskAdded(): Promise<void> {
    if (this.#reactive !== undefined) {
      await this.#reactive.added();
      return;
    }
    const reactive = await this.#createReactive();
    if (!this.#started) return;
    await this.#context.keeper.announce();
    await reactive.start();
  }

  async #createReactive(): Promise<ReactiveRuntime> {
    const { settings, roles, store, definitions, events, log, meter, tracer, fault } = this.#options;
    const reactive = new ReactiveRuntime({
      store,
      reactive: reactiveOf(store),
      context: this.#context,
      detector: this.#detector,
      definitions,
      settings: settings.reactive,
      instanceId: settings.instanceId,
      leaseMs: settings.leaseMs,
      pollMs: settings.pollMs,
      maxAbandoned: settings.maxAbandoned,
      works: roles.has('work'),
      plans: roles.has('plan'),
      events,
      log,
      meter,
      failures: this.#failures,
      tracer,
      error: fault,
      leaseLost: (reason, tasks) => {
        log.warn({ tasks: tasks.map(({ id }) => id) }, `lease lost: ${reason}`);
        events.emit('lease:lost', {
          reason,
          jobs: [],
          tasks: tasks.map(toTask),
          instanceId: settings.instanceId,
        });
      },
      recovered: (count) => {
        events.emit('stale:recovered', { count, instanceId: settings.instanceId });
      },
      observed: (cluster, summary) => {
        this.#reclaimer?.observe(cluster);
        this.#reportForeign('tasks', summary);
      },
    });
    this.#reactive = reactive;
    await reactive.prepare();
    return reactive;
  }

  /** Called when something may be due: a new job, or a new name. */
  notify(): void {
    this.#engine.notify();
  }

  /** Takes a free slot for a job that is about to be stored; undefined if the job has to queue. */
  reserve(name: string, id: string): Reservation<JobRecord> | undefined {
    return this.#engine.reserve(name, id);
  }

  async stop(timeoutMs: number): Promise<void> {
    const { store, fault, log } = this.#options;
    const resigned = this.#reactive?.resign().catch((error: unknown) => fault(error, 'resign'));
    // In parallel: no new work starts while the leader resigns.
    const [jobs, tasks] = await Promise.all([
      this.#engine.stop(timeoutMs),
      this.#reactive?.stop(timeoutMs),
      resigned === undefined ? undefined : within(store.clock, STOP_LIMIT_MS, resigned),
    ]);
    const ends = [jobs, tasks];
    const handedBack = ends.flatMap((end): readonly Work[] => end?.handedBack ?? []);
    const unrecorded = ends.reduce((sum, end) => sum + (end?.unrecorded ?? 0), 0);
    const goodbye = this.#context.stop();
    goodbye.catch((error: unknown) => fault(error, 'deregister'));
    // Bounded: a store that does not answer must not hold up the stop.
    await within(store.clock, STOP_LIMIT_MS, goodbye);
    if (this.#reclaimer !== undefined) await within(store.clock, STOP_LIMIT_MS, this.#reclaimer.stop());
    this.#cleaner?.stop();
    this.#failures.stop();
    if (handedBack.length > 0) {
      const named = handedBack.map(({ name, id }) => `${name} ${id}`).join(', ');
      const jobs = handedBack.map(({ id }) => id);
      log.warn({ jobs }, `stopped before these had ended; they go back to the queue: ${named}`);
    }
    if (unrecorded > 0) {
      const count = String(unrecorded);
      log.error({ count: unrecorded }, `${count} outcomes could not be recorded; that work will run again`);
    }
  }

  #capacity(): Capacity {
    const { settings, definitions, roles } = this.#options;
    const most = settings.reactive.concurrency;
    const tasks = [...definitions.tasks].map(([name, one]) => [name, one.concurrency ?? most] as const);
    const jobs = [...this.#runner.workers()].map(([name, { concurrency }]) => [name, concurrency] as const);
    return {
      slots: settings.concurrency,
      ...(roles.has('work') ? { jobs, tasks } : { jobs: [], tasks: [] }),
    };
  }

  #makeEngine(): Engine<JobRecord, Settlement> {
    const { settings, store, log, meter, tracer, fault } = this.#options;
    return new Engine({
      ...settings,
      kind: 'jobs',
      context: this.#context,
      store: store.jobs,
      clock: store.clock,
      log,
      meter,
      tracer,
      runner: this.#runner,
      paused: async (name) => (await store.instances.list()).paused.has(name),
      events: {
        error: fault,
        leaseLost: (reason, works) => this.#leaseLost(reason, works),
        observed: (cluster, summary) => this.#observed(cluster, summary),
      },
    });
  }

  #makeReclaimer(): Reclaimer {
    const { settings, store, fault } = this.#options;
    const jobs = new Handover({
      store: store.jobs,
      clock: store.clock,
      conclude: (work, finished, policies) => this.#runner.conclude(work, finished, { policies }),
      isLastAttempt: (job, policies) => this.#runner.isLastAttempt(job, policies),
      turn: this.#turn('strays'),
      unknown: () => this.#engine.unknown(),
      recovered: (works) => this.#recovered(works),
      error: (error) => fault(error, 'reclaim'),
    });
    return new Reclaimer({
      store,
      leaseMs: settings.leaseMs,
      self: () => this.#context.self,
      detector: this.#detector,
      handovers: () => [jobs, ...(this.#reactive === undefined ? [] : [this.#reactive.handover])],
      mayBury: (instance) => this.#mayBury(instance),
      error: (error) => fault(error, 'reclaim'),
    });
  }

  #turn(what: string): (periodMs: number) => Promise<boolean> {
    const { store, settings } = this.#options;
    return clusterTurn(store.locks, settings.instanceId, what);
  }

  /**
   * An instance without reactive tasks cannot reclaim any, so it buries a dead instance only if that holds no tasks.
   */
  async #mayBury(instance: InstanceState): Promise<boolean> {
    const { store, definitions } = this.#options;
    if (this.#reactive !== undefined || instance.tasks.length === 0) return true;
    const tasks = store.reactive?.tasks(() => definitions.plans);
    // This instance may lack the privilege to read the tasks: then it leaves the dead instance to others.
    const held = await tasks?.heldBy(instance, 1).catch(() => undefined);
    return held?.length === 0;
  }

  #observed(cluster: Cluster, summary?: DueSummary): void {
    this.#reclaimer?.observe(cluster);
    this.#reactive?.observe(cluster);
    this.#reportForeign('jobs', summary);
  }

  #reportForeign(kind: 'jobs' | 'tasks', summary?: DueSummary): void {
    if (summary?.foreign !== true || this.#reportedForeign.has(kind)) return;
    this.#reportedForeign.add(kind);
    const message = `there are pending ${kind} of a newer schema version; they are left alone until this process is upgraded`;
    this.#options.log.warn({}, message);
  }

  #leaseLost(reason: string, works: readonly JobRecord[]): void {
    const { events, log, settings } = this.#options;
    log.warn({ jobs: works.map(({ id }) => id) }, `lease lost: ${reason}`);
    events.emit('lease:lost', {
      reason,
      jobs: works.map(toJob),
      tasks: [],
      instanceId: settings.instanceId,
    });
  }

  #recovered(works: readonly Recovered<JobRecord, Settlement>[]): void {
    const { events, log, settings, meter } = this.#options;
    const names = [...new Set(works.map(({ work }) => work.name))];
    log.info({ names }, `${String(works.length)} jobs of a dead process were handed on`);
    for (const { work, finished, settlement, retryAt } of works) {
      meter.reclaimed('job', work.name);
      this.#runner.recorded(work, finished, { settlement, ...(retryAt === undefined ? {} : { retryAt }) });
    }
    events.emit('stale:recovered', { count: works.length, instanceId: settings.instanceId });
    this.#engine.notify();
  }
}
