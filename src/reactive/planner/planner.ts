import { Backoff } from '../../core/backoff.js';
import { pause, type Clock } from '../../core/clock.js';
import type { Emitter } from '../../core/emitter.js';
import { reasonOf, StoreError } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';
import type { Meter } from '../../core/meter.js';
import type { TraceContext, Tracer } from '../../core/tracer.js';
import type { PlannerVitals } from '../../store/metrics.js';
import type { InstanceStore } from '../../store/port.js';
import type {
  Change,
  FeedEvent,
  ReactiveStore,
  BlockedOfTask,
  TaskPlan,
  TaskState,
  Term,
} from '../../store/reactive/reactive.js';
import { RETRY_MS } from './backoffs.js';
import { BlockedDocuments } from './blocked-documents.js';
import { definitionsInUse, evolve, plansInForce, type InForce } from './plans-in-force.js';
import { PeerNotifier } from '../peer-notifier.js';
import { LeaderMaintenance, type MaintenanceHost, type Planned } from './chores/leader-maintenance.js';
import { ChangePlanner, type ChangePlannerHost } from './changes/change-planner.js';
import type { TaskEvents } from '../events.js';
import { ForgottenTasks } from './forgotten.js';
import { Followers, type FollowersHost } from './changes/followers.js';
import { recordLeftOut, type LeftOut } from './left-out.js';
import { Troubles } from './troubles.js';

/** The instance, as its planner sees it. */
export interface PlannerHost {
  /** The minimum time for which the instance's own lease still holds. */
  readonly leaseLeftMs: number;
  /** True if there is no other instance to notify. */
  readonly isAlone: boolean;
  /** Makes the workers of this instance poll: work was planned. */
  planned(): void;
  /** The store reports that another instance leads. */
  overtaken(): void;
  error(error: unknown, where: string): void;
}

export interface PlannerOptions {
  readonly host: PlannerHost;
  readonly reactive: ReactiveStore;
  readonly instances: InstanceStore;
  readonly clock: Clock;
  readonly term: Term;
  readonly instanceId: string;
  readonly leaseMs: number;
  /** Milliseconds, or `CRON …`. */
  readonly cleanupInterval: number | string;
  readonly reconcileRate: number;
  readonly events: Emitter<TaskEvents>;
  readonly log: Logger;
  readonly meter: Meter;
  readonly tracer: () => Tracer | undefined;
}

/** The registry is read at least this often, even without a notification. */
const CHORES_MS = 30_000;
const REFRESH_RETRY_MS = 500;

/**
 * The leader's work, for one term: follows the changes of every watched database, turns them into tasks, reconciles
 * when needed, and cleans up. It needs no handler: definitions come from the registry. A planner that was overtaken
 * does no harm: plans compare before they write, and writes of the planner's own state carry its term.
 */
export class Planner implements ChangePlannerHost, FollowersHost, MaintenanceHost {
  readonly #options: PlannerOptions;
  readonly #stop = new AbortController();
  #plans: ReadonlyMap<string, Planned> = new Map();
  /** Tasks whose collection was dropped, renamed or altered since they were prepared. */
  readonly #unprepared = new Set<string>();
  readonly #followers: Followers;
  readonly #changes: ChangePlanner;
  readonly #blocked: BlockedDocuments;
  readonly #notifier: PeerNotifier;
  readonly #maintenance: LeaderMaintenance;
  readonly #troubles: Troubles;
  readonly #forgotten: ForgottenTasks;
  #working: Promise<void> = Promise.resolve();
  #nudged = true;
  /** Blocked documents that an earlier leader recorded, until the plans for them are known. */
  #kept: readonly BlockedOfTask[] = [];
  /** The server refuses to tell how far back the history reaches. */
  #isSecret = false;
  #wake: (() => void) | undefined;

  #isOver(): boolean {
    return this.#stop.signal.aborted;
  }

  constructor(options: PlannerOptions) {
    this.#options = options;
    const { clock, reactive } = options;
    const error = (problem: unknown): void => this.error(problem, 'plan');
    const stop = this.#stop.signal;
    const troubles = new Troubles(clock);
    const blocked = new BlockedDocuments({
      clock,
      stop,
      retry: (task, ids) => this.#planAgain(task, ids),
      save: (documents) => this.#saveBlocked(documents),
      troubles,
      error,
    });
    const shared = { ...options, host: this, blocked, troubles, stop };
    const changes = new ChangePlanner({ ...shared, planning: reactive.planning });
    const followers = new Followers(shared);
    this.#troubles = troubles;
    this.#blocked = blocked;
    this.#changes = changes;
    this.#forgotten = new ForgottenTasks({ reactive, changes });
    this.#followers = followers;
    this.#notifier = new PeerNotifier({
      clock,
      stop,
      send: () => reactive.planner.notifyPeers(false),
      error,
    });
    this.#maintenance = new LeaderMaintenance({ ...shared, changes, followers });
  }

  get plans(): ReadonlyMap<string, Planned> {
    return this.#plans;
  }

  get leaseLeftMs(): number {
    return this.#options.host.leaseLeftMs;
  }

  error(problem: unknown, where: string): void {
    this.#options.host.error(problem, where);
  }

  overtaken(): void {
    this.#options.host.overtaken();
  }

  /** Planning problems that have lasted longer than a lease, as text. */
  get troubles(): readonly string[] {
    return this.#troubles.olderThan(this.#options.leaseMs);
  }

  async vitals(): Promise<PlannerVitals> {
    const { lagMs, resumeAt } = this.#followers;
    const times = [...this.#plans.values()].flatMap(({ state }) => state.lastReconciledAt?.getTime() ?? []);
    const since = await this.#historySince();
    return {
      lagMs,
      reconciling: this.#maintenance.reconciling,
      setAside: this.#blocked.size,
      ...(times.length === 0 ? {} : { lastReconciledAt: Math.max(...times) }),
      ...(since === undefined || resumeAt === undefined
        ? {}
        : { headroomMs: Math.max(0, resumeAt - since.getTime()) }),
    };
  }

  /** For information only: a server that refuses is not asked again. */
  async #historySince(): Promise<Date | undefined> {
    if (this.#isSecret) return undefined;
    try {
      return await this.#options.reactive.planning.historySince?.();
    } catch (problem) {
      this.#isSecret = !isTransient(problem);
      return undefined;
    }
  }

  start(): void {
    this.#working = this.#run();
  }

  /** Called when definitions, requests or the cluster may have changed. */
  nudge(): void {
    this.#nudged = true;
    this.recheck();
  }

  recheck(): void {
    this.#wake?.();
  }

  /** Resolves when the statement in progress has ended, so that it cannot overlap with those of a successor. */
  async stop(): Promise<void> {
    this.#stop.abort();
    this.#wake?.();
    await this.#working;
    await this.#maintenance.ended();
    await this.#followers.stop();
    await this.#blocked.ended();
    await this.#notifier.quiet();
  }

  async #run(): Promise<void> {
    const { reactive, term, clock } = this.#options;
    for (const retry = new Backoff(RETRY_MS); !this.#isOver();) {
      try {
        const kept = await reactive.planner.load(term);
        if (kept === undefined) {
          this.overtaken();
          return;
        }
        this.#kept = await reactive.planner.blocked();
        this.#followers.goOnFrom(kept.tokens);
        break;
      } catch (problem) {
        this.error(problem, 'plan');
        await pause(clock, retry.next(), this.#stop.signal);
      }
    }
    while (!this.#isOver()) {
      this.#nudged = false;
      try {
        await this.#refresh();
        this.#maintenance.start();
      } catch (problem) {
        if (!this.#isOver()) this.error(problem, 'plan');
        this.#nudged = true;
        await pause(clock, REFRESH_RETRY_MS, this.#stop.signal);
      }
      await this.#untilNudged();
    }
  }

  async #untilNudged(): Promise<void> {
    const { clock } = this.#options;
    const end = clock.monotonic() + CHORES_MS;
    while (!this.#nudged && !this.#isOver()) {
      const choresMs = end - clock.monotonic();
      const dueMs = this.#maintenance.dueIn();
      if (Math.min(choresMs, dueMs) <= 0) return;
      const wake = new AbortController();
      this.#wake = () => wake.abort();
      const chores = clock.timer(choresMs, this.#wake, { housekeeping: true });
      await pause(clock, dueMs, wake.signal);
      chores.cancel();
      this.#wake = undefined;
    }
  }

  /** Reads the registry, and brings feeds and states in line with it. */
  async #refresh(): Promise<void> {
    const { reactive, instances, term } = this.#options;
    const [states, cluster] = await Promise.all([reactive.planner.states(), instances.list()]);
    const published = await reactive.planner.plans(definitionsInUse(states, cluster));
    const inForce = plansInForce(published, states, cluster);
    const next = new Map<string, Planned>();
    const reset: { planned: Planned; which: 'reprocess_failed' | 'reprocess_all' }[] = [];
    const changed: Planned[] = [];
    const requested = new Map<string, string>();
    const newcomers: InForce[] = [];
    const leftOut: LeftOut[] = states
      .filter(({ task }) => !inForce.has(task))
      .map(({ task }) => ({ task, reason: 'no instance has run it for seven days' }));
    for (const [task, one] of inForce) {
      // Without a state the task is new to the cluster: what was created for it earlier may have been removed.
      const isNew = one.state === undefined || this.#isNew(one.plan, one.published.id);
      // From here on, another upheaval marks the task again.
      this.#unprepared.delete(task);
      const problem = isNew ? await this.#prepare(one.plan) : undefined;
      if (problem !== undefined) {
        leftOut.push({ task, reason: reasonOf(problem) });
        continue;
      }
      const evolved = evolve(one, cluster.now);
      if (evolved.isNew) newcomers.push(one);
      const planned = { plan: one.plan, definition: one.published.id, state: evolved.state };
      next.set(task, planned);
      if (evolved.reprocess !== undefined) reset.push({ planned, which: evolved.reprocess });
      if (evolved.changed) changed.push(planned);
      if (evolved.request !== undefined) requested.set(task, evolved.request);
    }
    // Recorded before anything is planned without these tasks.
    if (!(await recordLeftOut(reactive.planner, term, leftOut, states, cluster.now))) {
      this.overtaken();
      return;
    }
    // Store what is in force before planning by it: the next leader, maybe with another definition, must know that this
    // one moved the resume point. Store it before resetting tasks, too, so that no older handler takes up what is to
    // run again.
    this.#keepProgress(next, states);
    if (requested.size > 0) await this.#request(requested);
    for (const planned of changed) {
      const { handlerVersion, ...state } = planned.state;
      const first = reset.some((one) => one.planned === planned) ? state : planned.state;
      if (await reactive.planner.saveState(term, planned.plan.task, first)) continue;
      this.overtaken();
      return;
    }
    this.#keepProgress(next, states);
    // Set before the feeds are opened: an event of one feed may arrive while another is being opened, and must find its
    // plans.
    for (const task of this.#unprepared) next.delete(task);
    const before = this.#plans;
    this.#plans = next;
    this.#blocked.restore(this.#kept);
    this.#kept = [];
    // Open the feeds before any reconciliation begins, so that no change is missed meanwhile.
    await this.#followers.follow(next, newcomers);
    // An instance whose definition has just come into force may have been idle until now, and polls rarely.
    if (changed.length > 0) this.planned();
    for (const { planned, which } of reset) if (!(await this.#reprocess(planned, which))) return;
    await this.#forgotten.sweep(before, next, new Set(states.map(({ task }) => task)));
  }

  /**
   * Resets tasks for a raised handler version. Returns false if another instance leads. If the server refuses the
   * reset, the next refresh tries it again.
   */
  async #reprocess({ plan, state }: Planned, which: 'reprocess_failed' | 'reprocess_all'): Promise<boolean> {
    const { reactive, term, log } = this.#options;
    const { task } = plan;
    try {
      const count = await reactive.planning.reprocess(plan, which);
      const version = String(plan.evolution.handlerVersion);
      log.info({ count }, `${task}: handlerVersion ${version}, ${String(count)} tasks run again`);
    } catch (problem) {
      if (isTransient(problem)) throw problem;
      this.#troubles.begin(task, problem);
      this.error(problem, 'plan');
      return true;
    }
    this.planned();
    // Stored last: after a crash before this, the reset is repeated.
    if (await reactive.planner.saveState(term, task, { handlerVersion: state.handlerVersion })) return true;
    this.overtaken();
    return false;
  }

  /** Keeps the progress that maintenance has made since the states were read. */
  #keepProgress(next: ReadonlyMap<string, Planned>, read: readonly TaskState[]): void {
    const stored = new Set(read.map(({ task }) => task));
    for (const [task, planned] of next) {
      const known = this.#plans.get(task)?.state;
      if (known === undefined || !stored.has(task)) continue;
      if (known.done <= planned.state.done) continue;
      const { done, lastReconciledAt } = known;
      planned.state = {
        ...planned.state,
        done,
        ...(lastReconciledAt === undefined ? {} : { lastReconciledAt }),
      };
    }
  }

  /** The store counts requests, so a reconciliation that ends just now does not satisfy these. */
  async #request(requested: ReadonlyMap<string, string>): Promise<void> {
    for (const [task, reason] of requested) await this.#options.reactive.planner.request([task], reason);
  }

  /**
   * Prepares the source of a task. Returns the problem if it cannot be watched, so that the other tasks are not held
   * up. Throws transient errors.
   */
  async #prepare(plan: TaskPlan): Promise<unknown> {
    try {
      await this.#options.reactive.prepare([plan]);
      this.#troubles.end(plan.task);
      return undefined;
    } catch (problem) {
      if (isTransient(problem)) throw problem;
      this.#troubles.begin(plan.task, problem);
      this.error(problem, 'plan');
      return problem;
    }
  }

  #isNew({ task }: TaskPlan, definition: string): boolean {
    return this.#plans.get(task)?.definition !== definition;
  }

  /** Plans blocked documents by the definition in force now: the one they were blocked under may be gone. */
  async #planAgain(task: string, ids: readonly unknown[]): Promise<void> {
    const plan = this.#plans.get(task)?.plan;
    // The task is left out, and is reconciled when it comes back.
    if (plan === undefined) return;
    try {
      await this.#changes.plan(plan, ids);
      await this.#changes.unmatch(plan, ids);
    } catch (problem) {
      if (isTransient(problem)) throw problem;
      await this.refused(plan, problem);
    }
    this.planned();
  }

  async #saveBlocked(documents: BlockedOfTask): Promise<void> {
    const { reactive, term } = this.#options;
    if (await reactive.planner.saveBlocked(term, documents)) return;
    this.overtaken();
    throw new StoreError('plan: another instance leads.', { transient: true });
  }

  /** Requests a reconciliation of a task whose statements the server refuses. */
  async refused({ task }: TaskPlan, problem: unknown): Promise<void> {
    await this.#options.reactive.planner.request([task], 'could not be planned');
    this.#troubles.begin(task, problem);
    this.error(problem, 'plan');
    this.nudge();
  }

  async historyLost(database: string, problem: Error): Promise<void> {
    const { reactive, events, log, instanceId, meter } = this.#options;
    const tasks = this.plansOn(database).map(({ task }) => task);
    const reason = problem.message;
    await reactive.planner.request(tasks, 'history lost');
    log.error({ tasks, error: problem }, `${reason} Every document is reconciled for: ${tasks.join(', ')}`);
    meter.historyLost();
    events.emit('history:lost', { reason, tasks, instanceId });
    this.nudge();
  }

  plansOn(database: string, collections?: readonly string[]): readonly TaskPlan[] {
    return [...this.#plans.values()]
      .map(({ plan }) => plan)
      .filter(({ source }) => (source.database ?? '') === database)
      .filter(({ source }) => collections?.includes(source.collection) ?? true);
  }

  async planEvents(database: string, events: readonly FeedEvent[]): Promise<void> {
    const changes: Change[] = [];
    for (const event of events) {
      if (event.kind === 'change') changes.push(event.change);
      else await this.#upheaval(database, event.collections);
    }
    if (changes.length === 0) return;
    const { meter, tracer } = this.#options;
    const plan = (trace?: TraceContext): Promise<void> => this.#changes.changes(database, changes, trace);
    await (tracer()?.plan(changes.length, plan) ?? plan());
    meter.planned(changes.length);
    this.planned();
  }

  /**
   * Handles a collection that was dropped, renamed or altered. What has taken its place may be of another kind, have
   * another collation, or be unavailable for a while. Its tasks are left out until a refresh has prepared them, so that
   * other collections need not wait.
   */
  async #upheaval(database: string, collections: readonly string[] | 'all'): Promise<void> {
    const tasks = this.plansOn(database, collections === 'all' ? undefined : collections).map(
      ({ task }) => task,
    );
    if (tasks.length === 0) return;
    await this.#options.reactive.planner.request(tasks, 'collection dropped or renamed');
    for (const task of tasks) this.#unprepared.add(task);
    this.#plans = new Map([...this.#plans].filter(([task]) => !this.#unprepared.has(task)));
    this.nudge();
  }

  /** Notifies other instances, even if none was known so far. */
  notifyPeers(): void {
    this.#notifier.notify();
  }

  /** Wakes the workers of this instance at once, and notifies other instances if there are any. */
  planned(): void {
    this.#options.host.planned();
    if (!this.#options.host.isAlone) this.#notifier.notify();
  }
}

const isTransient = (problem: unknown): boolean => problem instanceof StoreError && problem.transient;
