import type { Emitter } from '../core/emitter.js';
import type { Logger } from '../core/logger.js';
import type { Meter } from '../core/meter.js';
import type { TaskRecord } from '../core/records/task.js';
import type { Tracer } from '../core/tracer.js';
import { Engine } from '../engine/engine.js';
import type { FailureLog } from '../engine/record/failure-log.js';
import type { EngineState } from '../engine/options.js';
import type { WakeSubscription } from '../engine/claim/listener.js';
import type { LeaseListener, InstanceContext } from '../engine/lease/instance-context.js';
import type { FailureDetector } from '../engine/lease/failure-detector.js';
import { Handover, type Recovered } from '../maintenance/handover.js';
import type { PlannerVitals } from '../store/metrics.js';
import { isAlive, type Cluster, type DueSummary, type Store, type TaskAdvert } from '../store/port.js';
import type { ReactiveStore, TaskPlan, TaskSettlement, TaskStore, Term } from '../store/reactive.js';
import { Peers } from './peer-notifier.js';
import type { Definitions } from './definitions.js';
import { Election } from './planner/election.js';
import type { TaskEvents } from './events.js';
import type { ReactiveSettings } from './options.js';
import { Planner, type PlannerHost } from './planner/planner.js';
import { TaskRunner } from './run/task-runner.js';

export interface ReactiveRuntimeOptions {
  readonly store: Store;
  readonly reactive: ReactiveStore;
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
  readonly error: (error: unknown, where: string) => void;
  readonly leaseLost: (reason: string, tasks: readonly TaskRecord[]) => void;
  readonly recovered: (count: number) => void;
  readonly observed: (cluster: Cluster, summary?: DueSummary) => void;
}

/** Reactive tasks on one instance: the engine that runs them and, while this instance leads, the planner. */
export class ReactiveRuntime implements LeaseListener, PlannerHost {
  readonly tasks: TaskStore;
  readonly handover: Handover<TaskRecord, TaskSettlement>;
  readonly #options: ReactiveRuntimeOptions;
  readonly #runner: TaskRunner;
  readonly #engine: Engine<TaskRecord, TaskSettlement>;
  readonly #election: Election;
  #planner: Planner | undefined;
  #subscription: WakeSubscription | undefined;
  #ending: Promise<void> = Promise.resolve();
  /** The instances that were alive in the last cluster snapshot. */
  #lives = '';
  #adverts: readonly TaskAdvert[] = [];
  readonly #peers: Peers;
  readonly #published = new Set<TaskPlan>();

  constructor(options: ReactiveRuntimeOptions) {
    this.#options = options;
    const { store, reactive, definitions, settings, context } = options;
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
      error: options.error,
      log: options.log,
      meter: options.meter,
      failures: options.failures,
      changed: () => this.#engine.notify(),
    });
    this.#engine = this.#makeEngine();
    this.#election = new Election({
      planner: reactive.planner,
      instances: store.instances,
      clock: store.clock,
      self: () => context.self,
      detector: options.detector,
      mayLead: () => context.keeper.held,
      gained: (term) => this.#gained(term),
      lost: (term, reason) => this.#lost(term, reason),
      error: (error) => options.error(error, 'lead'),
    });
    this.handover = new Handover({
      store: this.tasks,
      clock: store.clock,
      conclude: (work, finished, policies) => this.#runner.conclude(work, finished, { policies }),
      isLastAttempt: (task, policies) => this.#runner.isLastAttempt(task, policies),
      unknown: () => this.#engine.unknown(),
      recovered: (works) => this.#recovered(works),
      error: (error) => options.error(error, 'reclaim'),
    });
    context.join(this);
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

  overtaken(): void {
    this.#election.lose('another instance leads');
  }

  error(problem: unknown, where: string): void {
    this.#options.error(problem, where);
  }

  get leads(): boolean {
    return this.#election.term !== undefined;
  }

  /** Planning problems that have lasted longer than a lease; empty unless this instance leads. */
  get troubles(): readonly string[] {
    return this.#planner?.troubles ?? [];
  }

  /** The state of planning; undefined unless this instance leads. */
  async vitals(): Promise<PlannerVitals | undefined> {
    return this.#planner?.vitals();
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
    const { works, reactive, store, error } = this.#options;
    if (works) this.#engine.start();
    else this.#subscription = this.#listen();
    try {
      this.observe(await store.instances.list());
      // Tell the leader that there is a new instance.
      await reactive.planner.notifyPeers(true);
    } catch (problem) {
      // The next renewal reads the cluster again, and the leader refreshes by itself every 30 s.
      error(problem, 'start');
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
    this.#planner?.nudge();
  }

  /** Gives up leadership before handlers are stopped, so that the next leader need not wait for them. */
  async resign(): Promise<void> {
    this.#stopPlanner();
    await this.#ending;
    await this.#election.resign();
  }

  async stop(
    timeoutMs: number,
  ): Promise<{ readonly handedBack: readonly TaskRecord[]; readonly unrecorded: number }> {
    this.#runner.stop();
    return this.#engine.stop(timeoutMs);
  }

  observe(cluster: Cluster): void {
    // Work that was planned while this instance believed it was alone notified no other instance: do so now.
    if (this.#peers.observe(cluster, this.#options.context.self)) this.#planner?.notifyPeers();
    if (this.#options.plans) this.#election.observe(cluster);
    this.#countAlive(cluster);
  }

  /**
   * Which definitions are in force depends on which instances are alive: a rollback takes effect when the newer ones
   * are gone.
   */
  #countAlive(cluster: Cluster): void {
    const alive = cluster.instances.filter(isAlive).map((one) => one.life);
    const lives = alive.sort().join();
    if (lives === this.#lives) return;
    this.#lives = lives;
    this.#planner?.nudge();
  }

  news(): void {
    this.#planner?.nudge();
    // A new instance must be notified from now on; one that left may have been the leader.
    this.#lookAround();
  }

  #lookAround(): void {
    const { store, error, plans } = this.#options;
    if (!plans) return;
    store.instances.list().then(
      (cluster) => this.observe(cluster),
      (problem: unknown) => error(problem, 'lead'),
    );
  }

  slotFreed(): void {
    // The engine is a lease listener itself.
  }

  leaseLost(): void {
    this.#election.lose('it lost its lease');
  }

  /** Publishes the definitions again. The next cluster snapshot decides who leads. */
  leaseRegained(): void {
    this.#republish().catch((problem: unknown) => this.#options.error(problem, 'publish'));
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
    this.#planner?.nudge();
  }

  leaseRenewed(): void {
    if (this.#subscription === undefined) return;
    // Without a claim loop nothing else listens, or checks who leads.
    this.#listenAndLook();
  }

  #makeEngine(): Engine<TaskRecord, TaskSettlement> {
    const { store, context, settings, error, leaseLost, observed, ...rest } = this.#options;
    return new Engine({
      ...rest,
      kind: 'tasks',
      context,
      store: this.tasks,
      clock: store.clock,
      runner: this.#runner,
      concurrency: settings.concurrency,
      paused: () => Promise.resolve(false),
      events: {
        error,
        leaseLost,
        observed: (cluster, summary) => {
          if (this.#runner.observe(cluster.inForce)) this.#engine.notify();
          this.observe(cluster);
          observed(cluster, summary);
        },
      },
    });
  }

  #gained(term: Term): void {
    const { store, reactive, settings, events, instanceId, log, meter, tracer } = this.#options;
    const planner = new Planner({
      ...settings,
      host: this,
      reactive,
      instances: store.instances,
      clock: store.clock,
      term,
      instanceId,
      leaseMs: this.#options.leaseMs,
      events,
      log,
      meter,
      tracer,
    });
    this.#planner = planner;
    log.info({ term: term.term }, 'this instance now plans reactive tasks');
    events.emit('leader:gained', { term: term.term, instanceId });
    void this.#ending.then(() => {
      if (this.#planner === planner) planner.start();
    });
  }

  #lost(term: Term, reason: string): void {
    const { events, instanceId, log } = this.#options;
    this.#stopPlanner();
    log.warn({ term: term.term }, `this instance no longer plans reactive tasks: ${reason}`);
    events.emit('leader:lost', { term: term.term, reason, instanceId });
  }

  #stopPlanner(): void {
    const planner = this.#planner;
    this.#planner = undefined;
    if (planner === undefined) return;
    const { error } = this.#options;
    this.#ending = this.#ending
      .then(() => planner.stop())
      .catch((problem: unknown) => error(problem, 'plan'));
  }

  #recovered(works: readonly Recovered<TaskRecord, TaskSettlement>[]): void {
    const { log, recovered, meter } = this.#options;
    const names = [...new Set(works.map(({ work }) => work.name))];
    log.info({ names }, `${String(works.length)} tasks of a dead process were handed on`);
    for (const { work, finished, settlement, retryAt } of works) {
      meter.reclaimed('task', work.name);
      this.#runner.recorded(work, finished, { settlement, ...(retryAt === undefined ? {} : { retryAt }) });
    }
    recovered(works.length);
    this.#engine.notify();
  }
}
