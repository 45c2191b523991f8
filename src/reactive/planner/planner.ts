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
  SetAside,
  TaskPlan,
  TaskState,
  Term,
} from '../../store/reactive.js';
import { BlockedDocuments } from './blocked-documents.js';
import { evolve, plansInForce, type InForce } from './plans-in-force.js';
import { PeerNotifier } from '../peer-notifier.js';
import { LeaderMaintenance, type Planned } from './leader-maintenance.js';
import { ChangePlanner } from './change-planner.js';
import type { TaskEvents } from '../events.js';
import { Followers } from './followers.js';
import { recordLeftOut, type LeftOut } from './left-out.js';
import { Troubles } from './troubles.js';

export interface PlannerOptions {
  readonly reactive: ReactiveStore;
  readonly instances: InstanceStore;
  readonly clock: Clock;
  readonly term: Term;
  readonly instanceId: string;
  readonly leaseMs: number;
  /** How long the instance's own lease holds at least. */
  readonly leaseLeftMs: () => number;
  /** Milliseconds, or `CRON …`. */
  readonly cleanupInterval: number | string;
  readonly reconcileRate: number;
  readonly events: Emitter<TaskEvents>;
  readonly log: Logger;
  readonly meter: Meter;
  readonly tracer: () => Tracer | undefined;
  readonly error: (error: unknown, where: string) => void;
  /** True where no other instance lives that could be woken. */
  readonly alone: () => boolean;
  /** Work was planned: whoever runs it here may look. */
  readonly planned: () => void;
  /** The store says that somebody else leads. */
  readonly overtaken: () => void;
}

/** Looked at again at least this often, whatever was heard. */
const CHORES_MS = 30_000;
const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 5_000;

/**
 * The leader's work, for one term: follows the changes of every watched database, turns them into tasks, looks at
 * everything again where that is needed, and cleans up. It needs no handler: definitions come from the registry.
 * A planner that was overtaken can harm nobody: plans compare before they write, and what it has to remember carries
 * its term.
 */
export class Planner {
  readonly #options: PlannerOptions;
  readonly #stop = new AbortController();
  #plans: ReadonlyMap<string, Planned> = new Map();
  /** Tasks whose collection is not what it was when they were prepared. */
  readonly #unprepared = new Set<string>();
  readonly #followers: Followers;
  readonly #changes: ChangePlanner;
  readonly #blocked: BlockedDocuments;
  readonly #notifier: PeerNotifier;
  readonly #maintenance: LeaderMaintenance;
  readonly #troubles: Troubles;
  #working: Promise<void> = Promise.resolve();
  #nudged = true;
  /** What an earlier leader had set aside, until it is known what to plan it by. */
  #kept: readonly SetAside[] = [];
  /** How far back the history reaches is not for us to know. */
  #isSecret = false;
  #wake: (() => void) | undefined;

  #isOver(): boolean {
    return this.#stop.signal.aborted;
  }

  constructor(options: PlannerOptions) {
    this.#options = options;
    const { clock, reactive, overtaken } = options;
    const error = (problem: unknown): void => options.error(problem, 'plan');
    const stop = this.#stop.signal;
    this.#troubles = new Troubles(clock);
    this.#changes = new ChangePlanner({
      ...options,
      planning: reactive.planning,
      plansOn: (database, collection) => this.#plansOn(database, [collection]),
      blocked: (plan, choked) => this.#blocked.add(plan, choked),
      refused: (plan, problem) => this.#refused(plan, problem),
      error,
    });
    this.#blocked = new BlockedDocuments({
      clock,
      stop,
      retry: (task, ids) => this.#planAgain(task, ids),
      save: (aside) => this.#saveAside(aside),
      troubles: this.#troubles,
      error,
    });
    this.#followers = new Followers({
      ...options,
      blocked: this.#blocked,
      troubles: this.#troubles,
      stop,
      plan: (database, events) => this.#planEvents(database, events),
      historyLost: (database, problem) => this.#historyLost(database, problem),
      error: (problem) => options.error(problem, 'watch'),
      again: () => this.nudge(),
    });
    this.#notifier = new PeerNotifier({ clock, stop, ring: () => reactive.planner.ring(false), error });
    this.#maintenance = new LeaderMaintenance({
      ...options,
      changes: this.#changes,
      stop,
      plans: () => this.#plans,
      isFollowed: ({ database = '' }) => this.#followers.isOpen(database),
      troubled: (task, problem) => this.#troubles.begin(task, problem),
      untroubled: (task) => this.#troubles.end(task),
      planned: () => this.#ring(),
      keepAside: () => this.#blocked.keep(),
      overtaken,
      again: () => this.nudge(),
      idle: () => this.#wake?.(),
    });
  }

  /** What has gone wrong with planning for a while, in words. */
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

  /** Nothing depends on it: a server that refuses to say it is not asked again. */
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

  /** Definitions, requests or the cluster may have changed. */
  nudge(): void {
    this.#nudged = true;
    this.#wake?.();
  }

  /** Ends when the statement under way has ended: a successor must not meet it. */
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
    const { reactive, term, overtaken, clock, error } = this.#options;
    for (let waitMs = FIRST_WAIT_MS; !this.#isOver(); waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS)) {
      try {
        const kept = await reactive.planner.load(term);
        if (kept === undefined) {
          overtaken();
          return;
        }
        this.#kept = await reactive.planner.setAside();
        this.#followers.goOnFrom(kept.tokens);
        break;
      } catch (problem) {
        error(problem, 'plan');
        await pause(clock, waitMs, this.#stop.signal);
      }
    }
    while (!this.#isOver()) {
      this.#nudged = false;
      try {
        await this.#refresh();
        this.#maintenance.start();
      } catch (problem) {
        if (!this.#isOver()) error(problem, 'plan');
        this.#nudged = true;
        await pause(clock, FIRST_WAIT_MS * 5, this.#stop.signal);
      }
      await this.#untilNudged();
    }
  }

  async #untilNudged(): Promise<void> {
    const { clock } = this.#options;
    const end = clock.monotonic() + CHORES_MS;
    while (!this.#nudged && !this.#isOver()) {
      const waitMs = Math.min(end - clock.monotonic(), this.#maintenance.dueIn());
      if (waitMs <= 0) return;
      const wake = new AbortController();
      this.#wake = () => wake.abort();
      await pause(clock, waitMs, wake.signal);
      this.#wake = undefined;
    }
  }

  /** Reads the registry, and brings feeds and states into line with it. */
  async #refresh(): Promise<void> {
    const { reactive, instances, term, overtaken } = this.#options;
    const [published, states, cluster] = await Promise.all([
      reactive.planner.plans(),
      reactive.planner.states(),
      instances.list(),
    ]);
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
      // Without a state it is new to the cluster: what was made for it before may have been taken away.
      const isNew = one.state === undefined || this.#isNew(one.plan, one.published.id);
      // From here on another upheaval counts again.
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
    // Before anything is planned without them.
    if (!(await recordLeftOut(reactive.planner, term, leftOut, states, cluster.now))) {
      overtaken();
      return;
    }
    // What is in force is stored before anything is planned by it: whoever leads next, maybe by another definition, must
    // know that this one moved the resume point. And before anything is reset: no older handler takes up what is to run again.
    this.#keepProgress(next, states);
    if (requested.size > 0) await this.#request(requested);
    for (const planned of changed) {
      const { handlerVersion, ...state } = planned.state;
      const first = reset.some((one) => one.planned === planned) ? state : planned.state;
      if (await reactive.planner.saveState(term, planned.plan.task, first)) continue;
      overtaken();
      return;
    }
    this.#keepProgress(next, states);
    // Before the feeds: what one of them brings while another is being opened must find its plans.
    for (const task of this.#unprepared) next.delete(task);
    this.#plans = next;
    this.#blocked.restore(this.#kept);
    this.#kept = [];
    // Feeds first: what changes from now on is heard before anything is looked at.
    await this.#followers.follow(next, newcomers);
    // An instance whose definition has come into force may not have run anything, and polls rarely.
    if (changed.length > 0) this.#ring();
    for (const { planned, which } of reset) if (!(await this.#reprocess(planned, which))) return;
  }

  /** False where somebody else leads. A task that cannot be reset is tried again by the next refresh. */
  async #reprocess({ plan, state }: Planned, which: 'reprocess_failed' | 'reprocess_all'): Promise<boolean> {
    const { reactive, term, log, error, overtaken } = this.#options;
    const { task } = plan;
    try {
      const count = await reactive.planning.reprocess(plan, which);
      const version = String(plan.evolution.handlerVersion);
      log.info({ count }, `${task}: version ${version}, ${String(count)} tasks run again`);
    } catch (problem) {
      if (isTransient(problem)) throw problem;
      this.#troubles.begin(task, problem);
      error(problem, 'plan');
      return true;
    }
    this.#ring();
    // Only now: a crash before this does it again.
    if (await reactive.planner.saveState(term, task, { handlerVersion: state.handlerVersion })) return true;
    overtaken();
    return false;
  }

  /** What the chores have done since the states were read is kept. */
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

  /** Counted by the store, so that no reconciliation that ends just now answers them. */
  async #request(requested: ReadonlyMap<string, string>): Promise<void> {
    for (const [task, reason] of requested) await this.#options.reactive.planner.request([task], reason);
  }

  /** A task whose source cannot be watched any more must not hold up the others. Returns what is wrong with it. */
  async #prepare(plan: TaskPlan): Promise<unknown> {
    try {
      await this.#options.reactive.prepare([plan]);
      this.#troubles.end(plan.task);
      return undefined;
    } catch (problem) {
      if (isTransient(problem)) throw problem;
      this.#troubles.begin(plan.task, problem);
      this.#options.error(problem, 'plan');
      return problem;
    }
  }

  #isNew({ task }: TaskPlan, definition: string): boolean {
    return this.#plans.get(task)?.definition !== definition;
  }

  /** By the definition that is in force now: the one they were set aside under may be gone. */
  async #planAgain(task: string, ids: readonly unknown[]): Promise<void> {
    const plan = this.#plans.get(task)?.plan;
    // Left out: it is reconciled when it comes back.
    if (plan === undefined) return;
    try {
      await this.#changes.plan(plan, ids);
      await this.#changes.unmatch(plan, ids);
    } catch (problem) {
      if (isTransient(problem)) throw problem;
      await this.#refused(plan, problem);
    }
    this.#ring();
  }

  async #saveAside(aside: SetAside): Promise<void> {
    const { reactive, term, overtaken } = this.#options;
    if (await reactive.planner.saveAside(term, aside)) return;
    overtaken();
    throw new StoreError('plan: another instance leads.', { transient: true });
  }

  /** Its documents are looked at again when that works. */
  async #refused({ task }: TaskPlan, problem: unknown): Promise<void> {
    await this.#options.reactive.planner.request([task], 'could not be planned');
    this.#troubles.begin(task, problem);
    this.#options.error(problem, 'plan');
    this.nudge();
  }

  async #historyLost(database: string, problem: Error): Promise<void> {
    const { reactive, events, log, instanceId, meter } = this.#options;
    const tasks = this.#plansOn(database).map(({ task }) => task);
    const reason = problem.message;
    await reactive.planner.request(tasks, 'history lost');
    log.error({ tasks, error: problem }, `${reason} Everything is looked at again: ${tasks.join(', ')}`);
    meter.historyLost();
    events.emit('history:lost', { reason, tasks, instanceId });
    this.nudge();
  }

  #plansOn(database: string, collections?: readonly string[]): readonly TaskPlan[] {
    return [...this.#plans.values()]
      .map(({ plan }) => plan)
      .filter(({ source }) => (source.database ?? '') === database)
      .filter(({ source }) => collections?.includes(source.collection) ?? true);
  }

  async #planEvents(database: string, events: readonly FeedEvent[]): Promise<void> {
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
    this.#ring();
  }

  /**
   * What has taken the place of a collection may be of another kind, have another collation, or be out of reach for a while. Its
   * tasks are left out until a refresh has prepared them: the other collections need not wait for that.
   */
  async #upheaval(database: string, collections: readonly string[] | 'all'): Promise<void> {
    const tasks = this.#plansOn(database, collections === 'all' ? undefined : collections).map(
      ({ task }) => task,
    );
    if (tasks.length === 0) return;
    await this.#options.reactive.planner.request(tasks, 'collection dropped or renamed');
    for (const task of tasks) this.#unprepared.add(task);
    this.#plans = new Map([...this.#plans].filter(([task]) => !this.#unprepared.has(task)));
    this.nudge();
  }

  /** Wakes the instances elsewhere, whether or not any was known so far. */
  ringElsewhere(): void {
    this.#notifier.notify();
  }

  /** Whoever works here looks at once; instances elsewhere hear the bell. */
  #ring(): void {
    this.#options.planned();
    if (!this.#options.alone()) this.#notifier.notify();
  }
}

const isTransient = (problem: unknown): boolean => problem instanceof StoreError && problem.transient;
