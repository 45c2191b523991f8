import { within } from '../core/clock.js';
import type { Emitter } from '../core/emitter.js';
import { toJob, type JobRecord } from '../core/records/job.js';
import type { Logger } from '../core/logger.js';
import type { Meter } from '../core/meter.js';
import { toTask, type TaskRecord } from '../core/records/task.js';
import type { Tracer } from '../core/tracer.js';
import type { Work } from '../core/records/work.js';
import { Engine } from '../engine/engine.js';
import type { EngineHost, EngineState } from '../engine/options.js';
import { FailureLog } from '../engine/record/failure-log.js';
import { InstanceContext, type LeaseListener } from '../engine/lease/instance-context.js';
import { ScheduleGate } from '../documents/run/schedule-gate.js';
import type { WakeSubscription } from '../engine/claim/listener.js';
import type { Permits } from '../engine/limits/permits.js';
import { emitTurn, type MillEvents } from './events.js';
import type { LocalEngine } from '../jobs/enqueue/enqueuer.js';
import type { Registry } from '../jobs/registry.js';
import type { Results } from '../jobs/results.js';
import { JobRunner } from '../jobs/run/job-runner.js';
import { Cleaner } from '../maintenance/cleaner.js';
import { Expirer } from '../maintenance/expirer.js';
import { FailureDetector } from '../engine/lease/failure-detector.js';
import { Handover, type HandoverHost, type Recovered } from '../maintenance/handover.js';
import { Reclaimer, type HandsOn, type ReclaimHost } from '../maintenance/reclaimer.js';
import { clusterTurn } from '../maintenance/turn.js';
import type { ScheduleHost } from './document-schedules.js';
import { dropUnregistered, InstanceLimits, repairKeys, type LimitedDefinition } from './limits/instance.js';
import type { MillSettings } from './options.js';
import type { Role } from './roles.js';
import { ReactiveRuntime, type ReactiveHost } from '../reactive/runtime.js';
import type { SharedLimits } from './limits/shared.js';
import type { Definitions } from '../reactive/definitions.js';
import { reactiveOf } from '../reactive/reactive-of.js';
import type { Vitals } from '../store/metrics.js';
import {
  EVERYTHING,
  type ClusterBrief,
  NOTHING,
  type Capacity,
  type DueSummary,
  type Instance,
  type InstanceLease,
  type ScopeLimits,
  type ScopeRef,
  type Settlement,
  type Shortage,
  type Store,
} from '../store/port.js';

export interface InstanceRuntimeOptions {
  readonly settings: MillSettings;
  readonly roles: ReadonlySet<Role>;
  readonly store: Store;
  readonly registry: Registry;
  readonly definitions: Definitions;
  readonly shared: SharedLimits;
  /** The document schedules by name, with the limits that the code gives them. */
  readonly scheduleLimits: () => ReadonlyMap<string, ScopeLimits | undefined>;
  readonly events: Emitter<MillEvents>;
  readonly log: Logger;
  readonly meter: Meter;
  readonly tracer: () => Tracer | undefined;
  /** Callers in this process that wait for the results of jobs. */
  readonly results: Pick<Results, 'ended'>;
  /** Called with jobs that this instance has cancelled because they did not start in time. */
  readonly expired: (jobs: readonly JobRecord[]) => void;
  /** Reports an error that no caller sees. */
  readonly fault: (error: unknown, where: string) => void;
}

/** How long a stop waits for each answer of the store. */
const STOP_LIMIT_MS = 10_000;

/** One run of an instance, from `start` to `stop`: its engines, its lease, the reclaimer and the cleaner. */
export class InstanceRuntime
  implements
    EngineHost<JobRecord>,
    HandoverHost<JobRecord, Settlement>,
    ReactiveHost,
    ReclaimHost,
    ScheduleHost,
    LeaseListener
{
  readonly #options: InstanceRuntimeOptions;
  readonly #context: InstanceContext;
  readonly #failures: FailureLog;
  readonly #limits: InstanceLimits;
  readonly #gates = new Map<string, ScheduleGate>();
  /** Keeps the channel open on which limits of document schedules are told. */
  #schedules: WakeSubscription | undefined;
  readonly #runner: JobRunner;
  readonly #engine: Engine<JobRecord, Settlement>;
  readonly #handover: Handover<JobRecord, Settlement>;
  readonly #detector: FailureDetector;
  readonly #reclaimer: Reclaimer | undefined;
  readonly #cleaner: Cleaner | undefined;
  readonly #expirer: Expirer;
  #reactive: ReactiveRuntime | undefined;
  #started = false;
  #isPaused = false;
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
        plans: this.#reactive?.partitions ?? 0,
      }),
      error: fault,
    });
    this.#detector = new FailureDetector(store.clock, settings.leaseMs);
    this.#limits = new InstanceLimits({
      ...options,
      work: () => this.#limitedWork(),
      self: () => this.#context.self,
      changed: () => this.#limitsChanged(),
      turned: (scope, to, until) => emitTurn(options.events, scope, { to, until }, settings.instanceId),
      error: fault,
    });
    this.#engine = this.#makeEngine();
    this.#handover = new Handover({
      store: store.jobs,
      clock: store.clock,
      runner: this.#runner,
      engine: this.#engine,
      host: this,
      turn: this.#turn('strays'),
    });
    const maintains = roles.has('maintain');
    this.#reclaimer =
      settings.recoverStaleJobs && maintains
        ? new Reclaimer({ host: this, store, leaseMs: settings.leaseMs, detector: this.#detector })
        : undefined;
    this.#cleaner = maintains ? this.#makeCleaner() : undefined;
    this.#expirer = new Expirer({
      store,
      retention: registry.retention,
      expired: options.expired,
      done: () => this.#engine.notify(),
      error: (error) => fault(error, 'expire'),
    });
    this.#context.join(this);
    this.#context.leases.join((leases) => {
      this.#reclaimer?.observe(leases);
      this.#reactive?.observe(leases);
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

  /** The engine that runs jobs. */
  get jobs(): LocalEngine {
    return this.#engine;
  }

  get self(): Instance {
    return this.#context.self;
  }

  async vitals(): Promise<Vitals> {
    const { running, buffered, abandoned, wakeUp } = this.state;
    const planner = await this.#reactive?.vitals();
    return { running, buffered, abandoned, wakeUp, ...(planner === undefined ? {} : { planner }) };
  }

  /** True while all work of the cluster is paused, as of the last answer. */
  get isAllPaused(): boolean {
    return this.#isPaused;
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
    // Before the instance registers: one that cannot run its handlers must not claim.
    if (roles.has('work')) await this.#runner.prepare();
    if (definitions.tasks.size > 0 || plansOnly) await this.#createReactive();
    this.#limits.check();
    await this.#context.start();
    this.#detector.renewed();
    if (roles.has('work')) await this.#limits.begin();
    this.#started = true;
    if (roles.has('work')) this.#engine.start();
    this.#reclaimer?.start();
    this.#cleaner?.start();
    await this.#reactive?.start();
  }

  /** Starts batches that wait for more work. */
  startBatches(): void {
    this.#engine.startBatches();
    this.#reactive?.startBatches();
  }

  /** Called when a stop is requested: a start that waits for an earlier process with this instanceId gives up. */
  hurry(): void {
    this.#context.keeper.hurry();
  }

  /** Called when a reactive task is defined while the instance runs. */
  async taskAdded(): Promise<void> {
    this.#limits.check();
    if (this.#started) this.#limits.announce();
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
    const { settings, roles, store, definitions, events, log, meter, tracer } = this.#options;
    const reactive = new ReactiveRuntime({
      host: this,
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
      permits: this.#limits.permits,
    });
    this.#reactive = reactive;
    await reactive.prepare();
    return reactive;
  }

  /** `others`: the end of work that runs under this instance's lease and permits as well. */
  async stop(timeoutMs: number, others?: Promise<unknown>): Promise<void> {
    const { store, fault, log } = this.#options;
    const resigned = this.#reactive?.resign().catch((error: unknown) => fault(error, 'resign'));
    // In parallel: no new work starts while the leader resigns.
    const [jobs, tasks] = await Promise.all([
      this.#engine.stop(timeoutMs),
      this.#reactive?.stop(timeoutMs),
      resigned === undefined ? undefined : within(store.clock, STOP_LIMIT_MS, resigned),
    ]);
    await within(store.clock, STOP_LIMIT_MS, this.#runner.stop());
    const ends = [jobs, tasks];
    const handedBack = ends.flatMap((end): readonly Work[] => end?.handedBack ?? []);
    const unrecorded = ends.reduce((sum, end) => sum + (end?.unrecorded ?? 0), 0);
    // It has limits of time of its own.
    await others?.catch(() => undefined);
    for (const gate of this.#gates.values()) gate.stop();
    const givenBack = this.#limits.end().catch((error: unknown) => fault(error, 'limits'));
    await within(store.clock, STOP_LIMIT_MS, givenBack);
    // What is left counts against limits until its lease has ended and another instance has handed it on.
    const goodbye = this.#context.stop(!this.#limits.isInUse);
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

  /** What has a handler here, with the limits of its definition. */
  *#limitedWork(): Generator<LimitedDefinition> {
    const { registry, definitions, scheduleLimits } = this.#options;
    for (const [name, { compiled }] of registry.workers)
      yield { scope: { kind: 'job', name }, limits: compiled.limits };
    for (const [name, { limits }] of definitions.tasks) yield { scope: { kind: 'task', name }, limits };
    for (const [name, limits] of scheduleLimits()) yield { scope: { kind: 'documents', name }, limits };
  }

  #limitsChanged(): void {
    this.#engine.limitsChanged();
    this.#reactive?.limitsChanged();
    for (const gate of this.#gates.values()) gate.changed();
  }

  /** Undefined if the store has no limits. */
  scheduleGate(name: string): ScheduleGate | undefined {
    const { permits } = this.#limits;
    if (permits === undefined) return undefined;
    const gate = this.#gates.get(name) ?? this.#makeGate(name, permits);
    this.#gates.set(name, gate);
    this.#followLimits(gate);
    return gate;
  }

  /** No engine may listen for this instance: one without jobs and tasks of its own opens no channel. */
  #followLimits({ isLimited }: ScheduleGate): void {
    const { listener } = this.#context;
    if (!isLimited && listener.wakeUp !== 'direct') return;
    this.#schedules ??= listener.join({ kind: 'tasks', wake: () => undefined, cancel: () => undefined });
    void this.#schedules.idle();
  }

  #makeGate(name: string, permits: Permits): ScheduleGate {
    const { keeper } = this.#context;
    const { clock } = this.#options.store;
    return new ScheduleGate({
      name,
      permits,
      clock,
      life: () => (keeper.held ? keeper.self.life : undefined),
    });
  }

  scheduleAdded(): void {
    this.#limits.check();
    this.#limits.announce();
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
    const { settings, store, log, meter, tracer } = this.#options;
    return new Engine({
      ...settings,
      host: this,
      kind: 'jobs',
      context: this.#context,
      store: store.jobs,
      clock: store.clock,
      log,
      meter,
      tracer,
      runner: this.#runner,
      permits: this.#limits.permits,
    });
  }

  /** Undefined if the database does all of it. */
  #makeCleaner(): Cleaner | undefined {
    const { store, fault } = this.#options;
    const { limits } = store;
    const repairs = limits?.repairKeys === undefined ? undefined : () => repairKeys(limits);
    if (store.jobs.sweep === undefined && repairs === undefined) return undefined;
    const error = (problem: unknown): void => fault(problem, 'clean');
    return new Cleaner({ store, turn: this.#turn('sweep'), repairKeys: repairs, error });
  }

  #turn(what: string): (periodMs: number) => Promise<boolean> {
    const { store, settings } = this.#options;
    return clusterTurn(store.locks, settings.instanceId, what);
  }

  error(error: unknown, where: string): void {
    this.#options.fault(error, where);
  }

  slotFreed(): void {
    // The engines are lease listeners themselves.
  }

  leaseLost(reason: string): void {
    this.#options.meter.leaseLost();
    for (const gate of this.#gates.values()) gate.leaseLost(reason);
  }

  leaseRegained(): void {
    this.#detector.renewed();
    for (const gate of this.#gates.values()) gate.changed();
  }

  leaseRenewed(): void {
    this.#detector.renewed();
  }

  freed(scopes: readonly ScopeRef[]): void {
    for (const gate of this.#gates.values()) gate.freed(scopes);
    this.#limits.look();
  }

  /** A handler was added or replaced: what its definition limits holds from now on. */
  jobAdded(): void {
    if (this.#started) this.#limits.announce();
  }

  isHeldUp(name: string): Promise<boolean> {
    return this.#options.store.jobs.isHeldUp(name);
  }

  get handovers(): readonly HandsOn[] {
    return this.#reactive === undefined ? [this.#handover] : [this.#handover, this.#reactive.handover];
  }

  async drop({ life }: Instance): Promise<void> {
    await this.#options.store.limits?.drop(life);
  }

  async dropUnregistered(): Promise<void> {
    const { limits, instances } = this.#options.store;
    if (limits !== undefined) await dropUnregistered(limits, instances);
  }

  /**
   * An instance without reactive tasks cannot reclaim any, so it buries a dead instance only if that holds no tasks.
   */
  async mayBury(instance: InstanceLease): Promise<boolean> {
    const { store, definitions } = this.#options;
    if (this.#reactive !== undefined || instance.runs?.tasks === NOTHING) return true;
    const tasks = store.reactive?.tasks(() => definitions.plans);
    // This instance may lack the privilege to read the tasks: then it leaves the dead instance to others.
    const held = await tasks?.heldBy(instance, 1).catch(() => undefined);
    return held?.length === 0;
  }

  clusterSeen({ paused }: ClusterBrief, summary?: DueSummary): void {
    this.#isPaused = paused.has(EVERYTHING);
    if (summary !== undefined) this.#expirer.saw(summary);
    this.#reportForeign('jobs', summary);
  }

  tasksSeen({ paused }: ClusterBrief, summary?: DueSummary): void {
    this.#isPaused = paused.has(EVERYTHING);
    this.#reportForeign('tasks', summary);
  }

  #reportForeign(kind: 'jobs' | 'tasks', summary?: DueSummary): void {
    if (summary?.foreign !== true || this.#reportedForeign.has(kind)) return;
    this.#reportedForeign.add(kind);
    const message = `there are pending ${kind} of a newer schema version; they are left alone until this process is upgraded`;
    this.#options.log.warn({}, message);
  }

  workLost(reason: string, jobs: readonly JobRecord[]): void {
    const { events, log, settings } = this.#options;
    log.warn({ jobs: jobs.map(({ id }) => id) }, `lease lost: ${reason}`);
    events.emit('lease:lost', {
      reason,
      jobs: jobs.map(toJob),
      tasks: [],
      instanceId: settings.instanceId,
    });
  }

  tasksLost(reason: string, tasks: readonly TaskRecord[]): void {
    const { events, log, settings } = this.#options;
    log.warn({ tasks: tasks.map(({ id }) => id) }, `lease lost: ${reason}`);
    events.emit('lease:lost', {
      reason,
      jobs: [],
      tasks: tasks.map(toTask),
      instanceId: settings.instanceId,
    });
  }

  recovered(works: readonly Recovered<JobRecord, Settlement>[]): void {
    const { log, meter } = this.#options;
    const names = [...new Set(works.map(({ work }) => work.name))];
    log.info({ names }, `${String(works.length)} jobs of a dead process were handed on`);
    for (const { work, finished, settlement, retryAt } of works) {
      meter.reclaimed('job', work.name);
      this.#engine.handedOn(work, finished);
      this.#runner.recorded(work, finished, { settlement, ...(retryAt === undefined ? {} : { retryAt }) });
    }
    this.tasksRecovered(works.length);
    this.#engine.notify();
  }

  tasksRecovered(count: number): void {
    const { events, settings } = this.#options;
    events.emit('stale:recovered', { count, instanceId: settings.instanceId });
  }
}
