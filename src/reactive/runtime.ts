import type { Emitter } from '../core/emitter.js';
import type { Logger } from '../core/logger.js';
import type { Meter } from '../core/meter.js';
import type { TaskRecord } from '../core/records/task.js';
import type { Tracer } from '../core/tracer.js';
import { Engine } from '../engine/engine.js';
import type { Permits } from '../engine/limits/permits.js';
import type { FailureLog } from '../engine/record/failure-log.js';
import type { EngineHost, EngineState } from '../engine/options.js';
import type { WakeSubscription } from '../engine/claim/listener.js';
import type { LeaseListener, InstanceContext } from '../engine/lease/instance-context.js';
import type { FailureDetector } from '../engine/lease/failure-detector.js';
import { Handover, type HandoverHost, type Recovered } from '../maintenance/handover.js';
import type { PlannerVitals } from '../store/metrics.js';
import {
  isAlive,
  readLeases,
  type ClusterBrief,
  type DueSummary,
  type Leases,
  type Store,
  type TaskAdvert,
} from '../store/port.js';
import type { Partitioned } from '../store/reactive/partitions.js';
import type { ReactiveStore, TaskPlan, TaskSettlement, TaskStore } from '../store/reactive/reactive.js';
import { Peers } from './peer-notifier.js';
import type { Definitions } from './definitions.js';
import type { TaskEvents } from './events.js';
import type { ReactiveSettings } from './options.js';
import type { SeatHost } from './planner/partitions/seat.js';
import { Seats } from './planner/partitions/seats.js';
import { TaskRunner } from './run/task-runner.js';

/** The instance, as its reactive tasks see it. */
export interface ReactiveHost {
  /** This instance may no longer run or record these tasks. */
  tasksLost(reason: string, tasks: readonly TaskRecord[]): void;
  /** So many tasks of a dead instance were handed on. */
  tasksRecovered(count: number): void;
  /** Takes note of the cluster that came with a peek or a claim of tasks. */
  tasksSeen(cluster: ClusterBrief, summary?: DueSummary): void;
  error(error: unknown, where: string): void;
}

export interface ReactiveRuntimeOptions {
  readonly host: ReactiveHost;
  readonly store: Store;
  readonly reactive: ReactiveStore & Partitioned;
  readonly context: InstanceContext;
  readonly detector: FailureDetector;
  readonly definitions: Definitions;
  readonly settings: ReactiveSettings;
  readonly instanceId: string;
  readonly leaseMs: number;
  readonly pollMs: { readonly min: number; readonly max: number; readonly maxWithoutWakeUp: number };
  readonly maxAbandoned: number;
  /** This instance runs handlers. */
  readonly works: boolean;
  /** This instance may lead. */
  readonly plans: boolean;
  readonly events: Emitter<TaskEvents>;
  readonly log: Logger;
  readonly meter: Meter;
  readonly failures: FailureLog;
  readonly tracer: () => Tracer | undefined;
  /** The permits of the instance; absent if the store has no limits. */
  readonly permits: Permits | undefined;
}

/** How long a task may be unknown to the cluster before its definition is published again. */
const REPUBLISH_MS = 60_000;

/** Reactive tasks on one instance: the engine that runs them and, for the partitions that it leads, the planners. */
export class ReactiveRuntime
  implements LeaseListener, SeatHost, EngineHost<TaskRecord>, HandoverHost<TaskRecord, TaskSettlement>
{
  readonly tasks: TaskStore;
  readonly handover: Handover<TaskRecord, TaskSettlement>;
  readonly #options: ReactiveRuntimeOptions;
  readonly #runner: TaskRunner;
  readonly #engine: Engine<TaskRecord, TaskSettlement>;
  readonly #seats: Seats;
  #subscription: WakeSubscription | undefined;
  /** The instances that were alive at the last look. */
  #lives = '';
  #adverts: readonly TaskAdvert[] = [];
  readonly #peers: Peers;
  #isLeaving = false;
  readonly #published = new Set<TaskPlan>();
  /** When the cluster knew all of them, or they were published again. */
  #knownAt: number;

  constructor(options: ReactiveRuntimeOptions) {
    this.#options = options;
    this.#knownAt = options.store.clock.monotonic();
    const { host, store, reactive, definitions, settings, context } = options;
    this.#peers = new Peers(store.clock);
    this.tasks = reactive.tasks(() => definitions.plans);
    this.#runner = new TaskRunner({
      ...settings,
      store,
      tasks: this.tasks,
      definitions: definitions.tasks,
      adverts: () => this.#adverts,
      instanceId: options.instanceId,
      events: options.events,
      error: (problem, where) => host.error(problem, where),
      log: options.log,
      meter: options.meter,
      failures: options.failures,
      changed: () => this.#engine.notify(),
    });
    this.#engine = this.#makeEngine();
    this.#seats = new Seats({
      ...settings,
      host: this,
      reactive,
      instances: store.instances,
      clock: store.clock,
      instanceId: options.instanceId,
      leaseMs: options.leaseMs,
      self: () => context.self,
      detector: options.detector,
      mayLead: () => context.keeper.held,
      look: () => this.#lookAround(),
      events: options.events,
      log: options.log,
      meter: options.meter,
      tracer: options.tracer,
    });
    this.handover = new Handover({
      store: this.tasks,
      clock: store.clock,
      runner: this.#runner,
      engine: this.#engine,
      host: this,
    });
    context.join(this);
    if (options.plans) context.leases.watchClosely();
  }

  startBatches(): void {
    this.#engine.startBatches();
  }

  /** Limits have changed. */
  limitsChanged(): void {
    this.#engine.limitsChanged();
  }

  get state(): EngineState {
    return this.#engine.state;
  }

  /** The definitions that this instance advertises. */
  get adverts(): readonly TaskAdvert[] {
    return this.#adverts;
  }

  get leaseLeftMs(): number {
    return this.#options.context.keeper.leftMs;
  }

  get isAlone(): boolean {
    return this.#peers.none;
  }

  planned(): void {
    this.#engine.notify();
  }

  error(problem: unknown, where: string): void {
    this.#options.host.error(problem, where);
  }

  /** Never asked: slots are reserved for jobs only. */
  isHeldUp(): Promise<boolean> {
    return Promise.resolve(false);
  }

  workLost(reason: string, tasks: readonly TaskRecord[]): void {
    this.#options.host.tasksLost(reason, tasks);
  }

  clusterSeen(cluster: ClusterBrief, summary?: DueSummary): void {
    if (this.#runner.observe(cluster.inForce)) this.#engine.notify();
    this.#publishMissing(cluster.inForce);
    this.#options.host.tasksSeen(cluster, summary);
  }

  /** True while this instance leads partition 0. */
  get leads(): boolean {
    return this.#seats.leads;
  }

  /** The number of partitions that this instance is set to; 0 if it plans nothing. */
  get partitions(): number {
    const { plans, settings, reactive } = this.#options;
    if (!plans || this.#isLeaving) return 0;
    return reactive.partitioning === undefined ? 1 : settings.partitions;
  }

  /** Planning problems that have lasted longer than a lease; empty unless this instance plans. */
  get troubles(): readonly string[] {
    return this.#seats.troubles;
  }

  /** The state of planning here; undefined unless this instance plans. */
  vitals(): Promise<PlannerVitals | undefined> {
    return this.#seats.vitals();
  }

  /**
   * Stores definitions and creates indexes. Called before the instance registers, so that it advertises what it runs.
   */
  async prepare(): Promise<void> {
    const { reactive, definitions } = this.#options;
    const plans = [...definitions.plans.values()].filter((plan) => !this.#published.has(plan));
    await reactive.prepare(plans);
    this.#adverts = [...this.#adverts, ...(await reactive.planner.publish(plans))];
    for (const plan of plans) this.#published.add(plan);
  }

  async start(): Promise<void> {
    const { works, reactive, store } = this.#options;
    if (works) this.#engine.start();
    else this.#subscription = this.#listen();
    try {
      this.observe(await readLeases(store.instances));
      // Tell the leader that there is a new instance.
      await reactive.planner.notifyPeers(true);
    } catch (problem) {
      // The next renewal reads the cluster again, and the leader refreshes by itself every 30 s.
      this.error(problem, 'start');
    }
  }

  /** An instance that only plans has no claim loop to listen for it. */
  #listen(): WakeSubscription {
    const subscription = this.#options.context.listener.join({
      kind: 'tasks',
      wake: () => this.#listenAndLook(),
      cancel: () => undefined,
    });
    void subscription.idle().then(() => this.#lookAround());
    return subscription;
  }

  /**
   * Listens first, then reads the cluster: an instance that started before the channel was open is found by the read.
   */
  #listenAndLook(): void {
    void this.#subscription?.idle().then(() => this.#lookAround());
  }

  /** Called when a task is defined while the instance runs. */
  async added(): Promise<void> {
    const { context, reactive } = this.#options;
    await this.prepare();
    await context.keeper.announce();
    this.#engine.notify();
    await reactive.planner.notifyPeers(true);
    this.#seats.nudge();
  }

  /** Gives up leadership before handlers are stopped, so that the next leader need not wait for them. */
  async resign(): Promise<void> {
    this.#isLeaving = true;
    // The others must know that it takes no share of the partitions any more before they learn that some are free.
    if (this.#seats.count > 1) await this.#options.context.keeper.announce().catch(() => undefined);
    await this.#seats.resign();
  }

  async stop(
    timeoutMs: number,
  ): Promise<{ readonly handedBack: readonly TaskRecord[]; readonly unrecorded: number }> {
    this.#runner.stop();
    return this.#engine.stop(timeoutMs);
  }

  /** `isNews`: something may have changed that the leases do not show. */
  observe(leases: Leases, isNews = false): void {
    // Work that was planned while this instance believed it was alone notified no other instance: do so now.
    if (this.#peers.observe(leases, this.#options.context.self)) this.#seats.notifyPeers();
    if (this.#options.plans) this.#seats.observe(leases, isNews);
    this.#countAlive(leases);
  }

  /**
   * Which definitions are in force depends on which instances are alive: a rollback takes effect when the newer ones
   * are gone.
   */
  #countAlive({ instances }: Leases): void {
    const alive = instances.filter(isAlive).map((one) => one.life);
    const lives = alive.sort().join();
    if (lives === this.#lives) return;
    this.#lives = lives;
    this.#seats.nudge();
  }

  news(): void {
    this.#seats.nudge();
    // A new instance must be notified from now on; one that left may have been the leader.
    this.#lookAround();
  }

  #lookAround(): void {
    const { store, plans } = this.#options;
    if (!plans) return;
    readLeases(store.instances).then(
      (leases) => this.observe(leases, true),
      (problem: unknown) => this.error(problem, 'lead'),
    );
  }

  slotFreed(): void {
    // The engine is a lease listener itself.
  }

  leaseLost(): void {
    this.#seats.lose('it lost its lease');
  }

  /** Publishes the definitions again. The next cluster snapshot decides who leads. */
  leaseRegained(): void {
    this.#republish().catch((problem: unknown) => this.error(problem, 'publish'));
  }

  /**
   * The lease may have been lost together with the whole database: definitions and indexes must then be created again.
   */
  async #republish(): Promise<void> {
    const { reactive } = this.#options;
    const plans = [...this.#published];
    await reactive.prepare(plans);
    await reactive.planner.publish(plans);
    await reactive.planner.notifyPeers(true);
    this.#seats.nudge();
  }

  /**
   * Publishes definitions again if the cluster does not know their tasks: a task may be forgotten at the moment at which
   * an instance that defines it starts.
   */
  #publishMissing(inForce: ClusterBrief['inForce']): void {
    const { reactive, store } = this.#options;
    const missing = [...this.#published].filter(({ task }) => inForce?.has(task) === false);
    if (missing.length === 0) {
      this.#knownAt = store.clock.monotonic();
      return;
    }
    if (store.clock.monotonic() - this.#knownAt < REPUBLISH_MS) return;
    this.#knownAt = store.clock.monotonic();
    reactive.planner
      .publish(missing)
      .then(() => reactive.planner.notifyPeers(true))
      .catch((problem: unknown) => this.error(problem, 'publish'));
  }

  leaseRenewed(): void {
    if (this.#subscription === undefined) return;
    // Without a claim loop nothing else listens, or checks who leads.
    this.#listenAndLook();
  }

  #makeEngine(): Engine<TaskRecord, TaskSettlement> {
    const { store, settings, ...rest } = this.#options;
    return new Engine({
      ...rest,
      host: this,
      kind: 'tasks',
      store: this.tasks,
      clock: store.clock,
      runner: this.#runner,
      concurrency: settings.concurrency,
    });
  }

  recovered(works: readonly Recovered<TaskRecord, TaskSettlement>[]): void {
    const { host, log, meter } = this.#options;
    const names = [...new Set(works.map(({ work }) => work.name))];
    log.info({ names }, `${String(works.length)} tasks of a dead process were handed on`);
    for (const { work, finished, settlement, retryAt } of works) {
      meter.reclaimed('task', work.name);
      this.#engine.handedOn(work, finished);
      this.#runner.recorded(work, finished, { settlement, ...(retryAt === undefined ? {} : { retryAt }) });
    }
    host.tasksRecovered(works.length);
    this.#engine.notify();
  }
}
