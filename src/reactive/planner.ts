import { pause, type Clock } from '../core/clock.js';
import type { Emitter } from '../core/emitter.js';
import { StoreError, TidemillError } from '../core/errors.js';
import type { Logger } from '../core/logger.js';
import type { InstanceStore } from '../store/port.js';
import type {
  Change,
  FeedEvent,
  Poisoned,
  ReactiveStore,
  Source,
  TaskPlan,
  TaskState,
  Term,
} from '../store/reactive.js';
import { evolve, plansInForce } from './atlas.js';
import { nextTime } from './definition.js';
import type { TaskEvents } from './events.js';
import { Follower } from './follower.js';
import { Mutex } from './mutex.js';
import { Reconciler } from './reconciler.js';

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
  readonly error: (error: unknown, where: string) => void;
  /** True where no other instance lives that could be woken. */
  readonly alone: () => boolean;
  /** Work was planned: whoever runs it here may look. */
  readonly planned: () => void;
  /** The store says that somebody else leads. */
  readonly overtaken: () => void;
}

interface Planned {
  readonly plan: TaskPlan;
  readonly definition: string;
  state: TaskState;
}

const STATEMENT_SHARE = 1 / 2;
/** Documents that were set aside are tried again this often. */
const ASIDE_MS = 1_000;
/** Documents that one statement plans. */
const PLAN_BATCH = 1_000;
const CLEAN_PAGE = 1_000;
/** Looked at again at least this often, whatever was heard. */
const CHORES_MS = 30_000;
const TROUBLE_MS = 2_000;
const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 5_000;
/** Instances elsewhere are woken this often at most. */
const RING_MS = 20;

const sourceKey = ({ database = '', collection }: Source): string => `${database}\0${collection}`;

/**
 * The leader's work, for one term: follows the changes of every watched database, turns them into tasks, looks at
 * everything again where that is needed, and cleans up. It needs no handler: definitions come from the registry.
 * A planner that was overtaken can harm nobody: plans compare before they write, and what it has to remember carries
 * its term.
 */
export class Planner {
  readonly #options: PlannerOptions;
  readonly #stop = new AbortController();
  readonly #turns = new Mutex();
  readonly #followers = new Map<string, Follower>();
  #plans: ReadonlyMap<string, Planned> = new Map();
  #tokens: Record<string, unknown> = {};
  #working: Promise<void> = Promise.resolve();
  #chores: Promise<void> = Promise.resolve();
  #choresWait = false;
  #nudged = true;
  #wake: (() => void) | undefined;
  /** Chores are under way; one of them has failed. */
  #busy = false;
  #troubled = false;
  /** Documents whose tasks somebody's transaction holds. */
  readonly #aside: { readonly plan: TaskPlan; readonly ids: readonly unknown[] }[] = [];
  #catchingUp: Promise<void> | undefined;
  /** Databases whose resume point has moved since it was kept. */
  readonly #unsaved = new Set<string>();
  #rangAt = -Infinity;
  #ringing: Promise<void> | undefined;

  #isOver(): boolean {
    return this.#stop.signal.aborted;
  }

  constructor(options: PlannerOptions) {
    this.#options = options;
  }

  /** When the newest planned change was made, by database. */
  get lastEventAt(): Date | undefined {
    const times = [...this.#followers.values()].flatMap((one) => one.lastEventAt ?? []);
    return times.length === 0 ? undefined : new Date(Math.max(...times.map((time) => time.getTime())));
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
    await this.#chores;
    await Promise.all([...this.#followers.values()].map((follower) => follower.stop()));
    await this.#catchingUp;
    await this.#ringing;
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
        this.#tokens = { ...kept.tokens };
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
        this.#startChores();
      } catch (problem) {
        if (!this.#isOver()) error(problem, 'plan');
        this.#nudged = true;
        await pause(clock, FIRST_WAIT_MS * 5, this.#stop.signal);
      }
      await this.#untilNudged();
    }
  }

  /** One at a time, beside the refreshes: a long reconciliation must not keep a new task waiting. */
  #startChores(): void {
    if (this.#choresWait) return;
    this.#choresWait = true;
    this.#chores = this.#chores
      .then(() => {
        this.#choresWait = false;
        this.#busy = true;
        return this.#doChores();
      })
      .catch((problem: unknown) => this.#trouble(problem, 'plan'))
      .then(() => this.#endChores());
  }

  #trouble(problem: unknown, where: string): void {
    if (this.#isOver()) return;
    this.#troubled = true;
    this.#options.error(problem, where);
  }

  /** What failed is tried again, but not in a hurry. */
  async #endChores(): Promise<void> {
    if (this.#troubled) {
      this.#troubled = false;
      await pause(this.#options.clock, TROUBLE_MS, this.#stop.signal);
      this.#nudged = true;
    }
    this.#busy = false;
    this.#wake?.();
  }

  async #untilNudged(): Promise<void> {
    const { clock } = this.#options;
    const end = clock.monotonic() + CHORES_MS;
    while (!this.#nudged && !this.#isOver()) {
      // What is due while the chores are being done is asked again when they are: a long one must not be polled.
      const restMs = end - clock.monotonic();
      const waitMs = this.#busy ? restMs : Math.min(restMs, this.#untilChore());
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
    for (const [task, one] of inForce) {
      if (this.#isNew(one.plan, one.published.id) && !(await this.#prepared(one.plan))) continue;
      const evolved = evolve(one, cluster.now);
      const planned = { plan: one.plan, definition: one.published.id, state: evolved.state };
      next.set(task, planned);
      if (evolved.reprocess !== undefined) reset.push({ planned, which: evolved.reprocess });
      if (evolved.changed) changed.push(planned);
    }
    this.#adopt(next, states);
    // Feeds first: what changes from now on is heard before anything is looked at.
    await this.#follow(next);
    // What is in force is known before anything is reset: no older handler takes up what is to run again.
    for (const planned of changed) {
      const { handlerVersion, ...state } = planned.state;
      const first = reset.some((one) => one.planned === planned) ? state : planned.state;
      if (await reactive.planner.saveState(term, planned.plan.task, first)) continue;
      overtaken();
      return;
    }
    for (const { planned, which } of reset) {
      const count = await reactive.planning.reprocess(planned.plan, which);
      this.#options.log.info(
        { count },
        `${planned.plan.task}: version ${String(planned.plan.evolution.handlerVersion)}, ${String(count)} tasks run again`,
      );
      this.#ring();
      // Only now: a crash before this does it again.
      const { handlerVersion } = planned.state;
      if (await reactive.planner.saveState(term, planned.plan.task, { handlerVersion })) continue;
      overtaken();
      return;
    }
  }

  /**
   * Before the feeds: what one of them brings while another is being opened must find its plans. What the chores have
   * done since the states were read is kept.
   */
  #adopt(next: ReadonlyMap<string, Planned>, read: readonly TaskState[]): void {
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
    this.#plans = next;
  }

  /** A task whose source cannot be watched any more must not hold up the others. */
  async #prepared(plan: TaskPlan): Promise<boolean> {
    try {
      await this.#options.reactive.prepare([plan]);
      return true;
    } catch (problem) {
      if (problem instanceof StoreError) throw problem;
      this.#options.error(problem, 'plan');
      return false;
    }
  }

  #isNew({ task }: TaskPlan, definition: string): boolean {
    return this.#plans.get(task)?.definition !== definition;
  }

  /** One follower per database; where its collections change it goes on from where it is. */
  async #follow(next: ReadonlyMap<string, Planned>): Promise<void> {
    const wanted = new Map<string, Set<string>>();
    for (const { plan } of next.values()) {
      const { database = '', collection } = plan.source;
      wanted.set(database, (wanted.get(database) ?? new Set()).add(collection));
    }
    for (const [database, follower] of this.#followers) {
      if (sameSet(wanted.get(database), new Set(follower.collections))) continue;
      await follower.stop();
      this.#followers.delete(database);
    }
    for (const [database, collections] of wanted) {
      if (this.#followers.has(database) || this.#isOver()) continue;
      // Planned before, and nobody knows up to where: what came in between is found by looking. Asked for before the
      // feed is open, since from then on there is a resume point again, and nobody would know.
      const known = [...next.values()].filter(
        ({ plan, state }) => (plan.source.database ?? '') === database && state.done > 0,
      );
      if (this.#tokens[database] === undefined && known.length > 0) {
        const tasks = known.map(({ plan }) => plan.task);
        await this.#options.reactive.planner.request(tasks, 'no resume point');
        this.nudge();
      }
      const follower = this.#makeFollower(database, [...collections]);
      this.#followers.set(database, follower);
      await follower.start();
    }
  }

  #makeFollower(database: string, collections: readonly string[]): Follower {
    const { reactive, clock, error } = this.#options;
    return new Follower({
      store: reactive.planning,
      clock,
      database: database === '' ? undefined : database,
      collections,
      token: this.#tokens[database],
      plan: (events) => this.#planEvents(database, events),
      reached: (token) => this.#reached(database, token),
      historyLost: (problem) => this.#historyLost(database, problem),
      error: (problem) => error(problem, 'watch'),
    });
  }

  async #reached(database: string, token: unknown): Promise<void> {
    this.#tokens[database] = token;
    this.#unsaved.add(database);
    // The resume point waits for documents that were set aside: a successor must meet their changes again.
    if (this.#aside.length === 0) await this.#saveTokens();
  }

  async #saveTokens(): Promise<void> {
    const { reactive, term, overtaken } = this.#options;
    const databases = [...this.#unsaved];
    this.#unsaved.clear();
    if (databases.length === 0) return;
    const tokens = Object.fromEntries(databases.map((database) => [database, this.#tokens[database]]));
    if (!(await reactive.planner.saveTokens(term, tokens))) overtaken();
  }

  /** A user's open transaction holds these tasks: they are tried again by themselves, and nobody else waits. */
  #setAside(plan: TaskPlan, choked: readonly Poisoned[]): void {
    const ids = choked.filter(({ blocked }) => blocked).map(({ id }) => id);
    if (ids.length === 0) return;
    this.#aside.push({ plan, ids });
    this.#catchingUp ??= this.#catchUp().finally(() => (this.#catchingUp = undefined));
  }

  async #catchUp(): Promise<void> {
    const { clock, error } = this.#options;
    while (this.#aside.length > 0 && (await pause(clock, ASIDE_MS, this.#stop.signal))) {
      const { plan, ids } = this.#aside[0] as { plan: TaskPlan; ids: readonly unknown[] };
      try {
        await this.#inTurn(plan, async () => {
          await this.#plan(plan, ids);
          await this.#unmatch(plan, ids);
        });
        // What is still held has been set aside anew, behind the others.
        this.#aside.shift();
        this.#ring();
        if (this.#aside.length === 0) await this.#saveTokens();
      } catch (problem) {
        error(problem, 'plan');
      }
    }
  }

  async #historyLost(database: string, problem: Error): Promise<void> {
    const { reactive, events, log, instanceId } = this.#options;
    const tasks = this.#tasksOf(database);
    const reason = problem.message;
    await reactive.planner.request(tasks, 'history lost');
    log.error({ tasks, error: problem }, `${reason} Everything is looked at again: ${tasks.join(', ')}`);
    events.emit('history:lost', { reason, tasks, instanceId });
    this.nudge();
  }

  #tasksOf(database: string, collections?: readonly string[]): string[] {
    return [...this.#plans.values()]
      .map(({ plan }) => plan)
      .filter(({ source }) => (source.database ?? '') === database)
      .filter(({ source }) => collections?.includes(source.collection) ?? true)
      .map(({ task }) => task);
  }

  async #planEvents(database: string, events: readonly FeedEvent[]): Promise<void> {
    const byCollection = new Map<string, Map<string, Gathered>>();
    for (const event of events) {
      if (event.kind === 'upheaval') {
        await this.#upheaval(database, event.collections);
        continue;
      }
      const { change } = event;
      const changes = byCollection.get(change.collection) ?? new Map<string, Gathered>();
      changes.set(change.key, gathered(changes.get(change.key), change));
      byCollection.set(change.collection, changes);
    }
    await Promise.all(
      [...byCollection].map(([collection, changes]) =>
        this.#planChanges(database, collection, [...changes.values()]),
      ),
    );
    if (byCollection.size > 0) this.#ring();
  }

  async #upheaval(database: string, collections: readonly string[] | 'all'): Promise<void> {
    const tasks = this.#tasksOf(database, collections === 'all' ? undefined : collections);
    if (tasks.length === 0) return;
    // What has taken its place may be of another kind, or have another collation.
    for (const task of tasks) await this.#prepared((this.#plans.get(task) as Planned).plan);
    await this.#options.reactive.planner.request(tasks, 'collection dropped or renamed');
    this.nudge();
  }

  async #planChanges(database: string, collection: string, changes: readonly Gathered[]): Promise<void> {
    const plans = [...this.#plans.values()]
      .map(({ plan }) => plan)
      .filter(({ source }) => (source.database ?? '') === database && source.collection === collection);
    const present = changes.filter(({ written }) => written).map(({ id }) => id);
    const results = await Promise.allSettled(
      plans.map(async (plan) => {
        // Without a filter only a deletion takes a document out of it.
        const left = changes
          .filter(({ deleted, isNew }) => deleted || (!isNew && plan.filter !== undefined))
          .map(({ id }) => id);
        await this.#inTurn(plan, async () => {
          for (const ids of batches(present)) await this.#plan(plan, ids);
          for (const ids of batches(left)) await this.#unmatch(plan, ids);
        });
      }),
    );
    for (const result of results) if (result.status === 'rejected') throw result.reason;
  }

  /** Two statements on one task at once could write an older snapshot over a newer one. */
  #inTurn<T>(plan: TaskPlan, work: () => Promise<T>): Promise<T> {
    return this.#turns.run(`${sourceKey(plan.source)}\0${plan.task}`, work);
  }

  async #plan(plan: TaskPlan, ids: readonly unknown[]): Promise<void> {
    const { reactive, error } = this.#options;
    const choked = await reactive.planning.plan(plan, ids, this.#limitMs());
    this.#setAside(plan, choked);
    const poisoned = choked.filter(({ blocked }) => !blocked);
    if (poisoned.length === 0) return;
    await reactive.planning.park(plan, poisoned);
    for (const { reason } of poisoned.slice(0, 3))
      error(
        new TidemillError('UNPLANNABLE', `A document of task "${plan.task}" cannot be planned: ${reason}`),
        'plan',
      );
  }

  /** A statement must be over before another instance may lead: it gets a part of what is left of the lease. */
  #limitMs(): number {
    const { leaseMs, leaseLeftMs } = this.#options;
    const limitMs = Math.floor(Math.min(leaseMs, leaseLeftMs()) * STATEMENT_SHARE);
    if (limitMs > 0) return limitMs;
    throw new StoreError('plan: the lease of this instance has ended.', { transient: true });
  }

  async #unmatch(plan: TaskPlan, ids: readonly unknown[]): Promise<void> {
    const { planning } = this.#options.reactive;
    this.#setAside(plan, await planning.unmatch(plan, ids, this.#limitMs()));
    if (plan.cleanup.keepForMs === 0) await planning.clean(plan, { ids });
  }

  /** Whoever works here looks at once; instances elsewhere hear the bell. */
  #ring(): void {
    const { reactive, clock, planned, error } = this.#options;
    planned();
    const now = clock.monotonic();
    if (this.#ringing !== undefined || this.#options.alone()) return;
    const waitMs = Math.max(0, this.#rangAt + RING_MS - now);
    this.#ringing = (async () => {
      if (waitMs > 0) await pause(clock, waitMs, this.#stop.signal);
      this.#rangAt = clock.monotonic();
      await reactive.planner.ring(false);
    })()
      .catch((problem: unknown) => error(problem, 'ring'))
      .finally(() => (this.#ringing = undefined));
  }

  /** What is due now and then: reconciliation and cleanup. */
  async #doChores(): Promise<void> {
    const { clock } = this.#options;
    const now = new Date(clock.now());
    for (const planned of this.#plans.values()) await this.#requestIfDue(planned, now);
    const groups = new Map<string, Planned[]>();
    for (const planned of this.#plans.values()) {
      if (planned.state.wanted <= planned.state.done) continue;
      const key = sourceKey(planned.plan.source);
      groups.set(key, [...(groups.get(key) ?? []), planned]);
    }
    for (const group of groups.values()) if (!(await this.#reconcile(group))) return;
    for (const planned of this.#plans.values()) if (this.#cleanDue(planned, now)) await this.#clean(planned);
  }

  async #requestIfDue(planned: Planned, now: Date): Promise<void> {
    const { plan, state } = planned;
    if (
      plan.reconcileEvery === undefined ||
      state.wanted > state.done ||
      state.lastReconciledAt === undefined
    )
      return;
    const next = nextTime(plan.reconcileEvery, state.lastReconciledAt);
    if (next === null || next > now) return;
    await this.#save(planned, { wanted: state.wanted + 1, reason: 'reconcileEvery' });
  }

  /** A refresh may have replaced what is known of the task meanwhile: only these fields are touched. */
  async #save({ plan: { task } }: Planned, fields: Partial<TaskState>): Promise<void> {
    const { reactive, term, overtaken } = this.#options;
    const current = this.#plans.get(task);
    if (current !== undefined) current.state = { ...current.state, ...fields };
    if (!(await reactive.planner.saveState(term, task, fields))) overtaken();
  }

  async #reconcile(group: readonly Planned[]): Promise<boolean> {
    const { reactive, clock, term, instanceId, reconcileRate, events, log } = this.#options;
    const [{ plan }] = group as [Planned];
    const reconciler = new Reconciler({
      planning: reactive.planning,
      planner: reactive.planner,
      clock,
      term,
      instanceId,
      rate: reconcileRate,
      events,
      log,
      plan: async (plans, ids) => {
        await Promise.all(
          plans.map((one) => this.#patiently(() => this.#inTurn(one, () => this.#plan(one, ids)))),
        );
        this.#ring();
      },
      unmatch: (one, ids) => this.#patiently(() => this.#inTurn(one, () => this.#unmatch(one, ids))),
      stop: this.#stop.signal,
    });
    const wanted = group.map((one) => one.state.wanted);
    const mark = group.map((one, at) => `${one.plan.task}@${one.definition}@${String(wanted[at])}`).sort();
    try {
      const done = await reconciler.run({ source: plan.source, plans: group.map((one) => one.plan), mark });
      if (!done) return false;
    } catch (problem) {
      // Other collections are looked at all the same.
      this.#trouble(problem, 'reconcile');
      return !this.#isOver();
    }
    await this.#catchingUp;
    if (this.#aside.length > 0) return false;
    const at = new Date(clock.now());
    for (const [index, planned] of group.entries())
      await this.#save(planned, { done: wanted[index] ?? 0, lastReconciledAt: at });
    // Requests that came meanwhile are seen by the next refresh.
    this.nudge();
    return true;
  }

  /** A database that does not answer is asked again, for as long as this instance leads. */
  async #patiently<T>(work: () => Promise<T>): Promise<T> {
    const { clock, error } = this.#options;
    for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS)) {
      try {
        return await work();
      } catch (problem) {
        if (this.#isOver() || !(problem instanceof StoreError && problem.transient)) throw problem;
        error(problem, 'reconcile');
        await pause(clock, waitMs, this.#stop.signal);
      }
    }
  }

  #cleanDue({ plan, state }: Planned, now: Date): boolean {
    if (plan.cleanup.deleteWhen === 'never') return false;
    if (state.lastCleanedAt === undefined) return true;
    const next = nextTime(this.#options.cleanupInterval, state.lastCleanedAt);
    return next !== null && next <= now;
  }

  async #clean(planned: Planned): Promise<void> {
    const { reactive, clock, log } = this.#options;
    let after: string | undefined;
    let total = 0;
    do {
      const from = after;
      const page = { limit: CLEAN_PAGE, ...(from === undefined ? {} : { after: from }) };
      // In turn: a document that comes back between the look and the deletion would lose the task of its return.
      const { deleted, after: next } = await this.#patiently(() =>
        this.#inTurn(planned.plan, () => reactive.planning.clean(planned.plan, page)),
      );
      total += deleted;
      after = next;
    } while (after !== undefined && !this.#isOver());
    if (total > 0) log.info({ count: total }, `${planned.plan.task}: ${String(total)} tasks cleaned up`);
    await this.#save(planned, { lastCleanedAt: new Date(clock.now()) });
  }

  /** Until the next reconciliation or cleanup is due. */
  #untilChore(): number {
    const now = this.#options.clock.now();
    const times = [...this.#plans.values()].flatMap(({ plan, state }) => [
      plan.reconcileEvery === undefined || state.lastReconciledAt === undefined
        ? null
        : nextTime(plan.reconcileEvery, state.lastReconciledAt),
      plan.cleanup.deleteWhen === 'never' || state.lastCleanedAt === undefined
        ? null
        : nextTime(this.#options.cleanupInterval, state.lastCleanedAt),
    ]);
    const next = Math.min(...times.map((time) => time?.getTime() ?? Infinity));
    return Math.max(0, Math.min(CHORES_MS, next - now));
  }
}

/** What a batch says of one document. */
interface Gathered {
  readonly id: unknown;
  readonly written: boolean;
  readonly deleted: boolean;
  /** It was not there before, so it cannot have left anything. */
  readonly isNew: boolean;
}

/**
 * The order within a batch is not relied upon: a document that moves between shards is inserted on one and deleted on
 * the other, and the insertion may come first. What was both written and deleted is looked at for both.
 */
const gathered = (before: Gathered | undefined, { id, kind }: Change): Gathered => ({
  id,
  written: kind !== 'delete' || before?.written === true,
  deleted: kind === 'delete' || before?.deleted === true,
  isNew: before === undefined && kind === 'insert',
});

function batches<T>(items: readonly T[]): (readonly T[])[] {
  const count = Math.ceil(items.length / PLAN_BATCH);
  return Array.from({ length: count }, (_, at) => items.slice(at * PLAN_BATCH, (at + 1) * PLAN_BATCH));
}

const sameSet = (a: ReadonlySet<string> | undefined, b: ReadonlySet<string>): boolean =>
  a !== undefined && a.size === b.size && [...a].every((one) => b.has(one));
