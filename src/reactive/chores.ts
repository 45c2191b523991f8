import { pause, type Clock } from '../core/clock.js';
import type { Emitter } from '../core/emitter.js';
import { StoreError } from '../core/errors.js';
import type { Logger } from '../core/logger.js';
import type { Meter } from '../core/meter.js';
import type { ReactiveStore, Source, TaskPlan, TaskState, Term } from '../store/reactive.js';
import { nextTime } from './definition.js';
import type { Drafter } from './drafter.js';
import type { TaskEvents } from './events.js';
import { Reconciler } from './reconciler.js';
import { Rests } from './rests.js';

/** A task that is planned by, and what the cluster knows of it. */
export interface Planned {
  readonly plan: TaskPlan;
  readonly definition: string;
  state: TaskState;
}

export interface ChoresOptions {
  readonly reactive: ReactiveStore;
  readonly drafter: Drafter;
  readonly clock: Clock;
  readonly term: Term;
  readonly instanceId: string;
  /** Milliseconds, or `CRON …`. */
  readonly cleanupInterval: number | string;
  readonly reconcileRate: number;
  readonly events: Emitter<TaskEvents>;
  readonly log: Logger;
  readonly meter: Meter;
  readonly stop: AbortSignal;
  readonly plans: () => ReadonlyMap<string, Planned>;
  /** True where the changes of a source are heard: only then may it be looked at, or what comes meanwhile is missed. */
  readonly isFollowed: (source: Source) => boolean;
  readonly error: (error: unknown, where: string) => void;
  /** Something went wrong with a task, or is right again. */
  readonly troubled: (task: string, problem: unknown) => void;
  readonly untroubled: (task: string) => void;
  /** Work was planned. */
  readonly planned: () => void;
  /** Until nothing waits for a transaction any more; false where that was stopped. */
  readonly caughtUp: () => Promise<boolean>;
  readonly overtaken: () => void;
  /** The registry may say more by now. */
  readonly again: () => void;
  /** All is done for now: when the next thing is due can be asked. */
  readonly idle: () => void;
}

const CLEAN_PAGE = 1_000;
/** Where the planner's own state could not be written, all is tried again after this. */
const TROUBLE_MS = 2_000;
const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 5_000;

const sourceKey = ({ database = '', collection }: Source): string => `${database}\0${collection}`;

/**
 * What a leader does now and then, one thing after the other, beside the live changes: looks at everything again where
 * that was asked for or is due, and deletes tasks whose time is over.
 */
export class Chores {
  readonly #options: ChoresOptions;
  /** Tasks that failed for a reason of their own: they are tried again later, and others do not wait for them. */
  readonly #rests: Rests;
  #working: Promise<void> = Promise.resolve();
  #waiting = false;
  #busy = false;
  #troubled = false;
  #reconciling: { readonly collection: string; readonly by: Reconciler } | undefined;

  constructor(options: ChoresOptions) {
    this.#options = options;
    this.#rests = new Rests(options.clock);
  }

  get busy(): boolean {
    return this.#busy;
  }

  /** What is being looked at as a whole, and how many of its documents have been. */
  get reconciling(): readonly { readonly collection: string; readonly processed: number }[] {
    if (this.#reconciling === undefined) return [];
    const { collection, by } = this.#reconciling;
    return [{ collection, processed: by.processed }];
  }

  /** Does what is due, after what is being done; once, however often it is asked meanwhile. */
  start(): void {
    if (this.#waiting) return;
    this.#waiting = true;
    this.#working = this.#working
      .then(() => {
        this.#waiting = false;
        this.#busy = true;
        return this.#doAll();
      })
      .catch((problem: unknown) => this.#trouble(problem))
      .then(() => this.#end());
  }

  /** Until everything that was begun has ended. */
  ended(): Promise<void> {
    return this.#working;
  }

  /** Milliseconds until the next reconciliation or cleanup is due, or may be tried again. */
  dueIn(): number {
    const { plans, clock } = this.#options;
    const times = [...plans().values()]
      .filter(({ plan }) => !this.#rests.isResting(plan.task))
      .flatMap((planned) => [this.#reconcileAt(planned), this.#cleanAt(planned)]);
    const next = Math.min(...times.map((time) => time?.getTime() ?? Infinity));
    return Math.min(this.#rests.nextIn(plans().keys()), Math.max(0, next - clock.now()));
  }

  #trouble(problem: unknown): void {
    const { stop, error } = this.#options;
    if (stop.aborted) return;
    this.#troubled = true;
    error(problem, 'plan');
  }

  #failed(task: string, problem: unknown, where: string): void {
    const { stop, error, troubled } = this.#options;
    if (stop.aborted) return;
    this.#rests.begin(task);
    troubled(task, problem);
    error(problem, where);
  }

  #succeeded(task: string): void {
    this.#rests.end(task);
    this.#options.untroubled(task);
  }

  /** What failed is tried again, but not in a hurry. */
  async #end(): Promise<void> {
    const { clock, stop, again, idle } = this.#options;
    const troubled = this.#troubled;
    this.#troubled = false;
    if (troubled) await pause(clock, TROUBLE_MS, stop);
    this.#busy = false;
    if (troubled) again();
    else idle();
  }

  async #doAll(): Promise<void> {
    const { clock, plans, isFollowed } = this.#options;
    const now = new Date(clock.now());
    this.#rests.wake();
    const awake = [...plans().values()].filter(({ plan }) => !this.#rests.isResting(plan.task));
    for (const planned of awake) await this.#requestIfDue(planned, now);
    const groups = new Map<string, Planned[]>();
    for (const planned of awake) {
      const { plan, state } = planned;
      if (state.wanted <= state.done || !isFollowed(plan.source)) continue;
      const key = sourceKey(plan.source);
      groups.set(key, [...(groups.get(key) ?? []), planned]);
    }
    for (const group of groups.values()) if (!(await this.#reconcile(group))) return;
    for (const planned of awake) if (this.#isCleaningDue(planned, now)) await this.#clean(planned);
  }

  #reconcileAt({ plan, state }: Planned): Date | null {
    if (plan.reconcileEvery === undefined || state.lastReconciledAt === undefined) return null;
    return nextTime(plan.reconcileEvery, state.lastReconciledAt);
  }

  #cleanAt({ plan, state }: Planned): Date | null {
    if (plan.cleanup.deleteWhen === 'never' || state.lastCleanedAt === undefined) return null;
    return nextTime(this.#options.cleanupInterval, state.lastCleanedAt);
  }

  /** A task that was never cleaned up is due as soon as it has been looked at. */
  #isCleaningDue(planned: Planned, now: Date): boolean {
    if (planned.plan.cleanup.deleteWhen === 'never') return false;
    if (planned.state.lastCleanedAt === undefined) return true;
    const at = this.#cleanAt(planned);
    return at !== null && at <= now;
  }

  async #requestIfDue(planned: Planned, now: Date): Promise<void> {
    const { wanted, done } = planned.state;
    const at = this.#reconcileAt(planned);
    if (at === null || at > now || wanted > done) return;
    await this.#save(planned, { wanted: wanted + 1, reason: 'reconcileEvery' });
  }

  /** A refresh may have replaced what is known of the task meanwhile: only these fields are touched. */
  async #save({ plan: { task } }: Planned, fields: Partial<TaskState>): Promise<void> {
    const { reactive, term, plans, overtaken } = this.#options;
    const current = plans().get(task);
    if (current !== undefined) current.state = { ...current.state, ...fields };
    if (!(await reactive.planner.saveState(term, task, fields))) overtaken();
  }

  async #reconcile(group: readonly Planned[]): Promise<boolean> {
    const { clock, caughtUp, again, stop } = this.#options;
    const [{ plan }] = group as [Planned];
    const wanted = group.map((one) => one.state.wanted);
    const mark = group.map((one, at) => `${one.plan.task}@${one.definition}@${String(wanted[at])}`).sort();
    const plans = group.map((one) => one.plan);
    const failed = new Set<string>();
    const by = this.#reconciler(failed);
    this.#reconciling = { collection: plan.source.collection, by };
    try {
      if (!(await by.run({ source: plan.source, plans, mark }))) return false;
    } catch (problem) {
      // Other collections are looked at all the same.
      for (const { task } of plans) if (!failed.has(task)) this.#failed(task, problem, 'reconcile');
      return !stop.aborted;
    } finally {
      this.#reconciling = undefined;
    }
    if (!(await caughtUp())) return false;
    const lastReconciledAt = new Date(clock.now());
    for (const [index, planned] of group.entries()) {
      if (failed.has(planned.plan.task)) continue;
      this.#succeeded(planned.plan.task);
      await this.#save(planned, { done: wanted[index] ?? 0, lastReconciledAt });
    }
    // Requests that came meanwhile are seen by the next refresh.
    again();
    return true;
  }

  /** A task whose statements are refused drops out (`failed`), and the others of its collection go on. */
  #reconciler(failed: Set<string>): Reconciler {
    const { reactive, drafter, reconcileRate, planned, stop } = this.#options;
    const orFails = async ({ task }: TaskPlan, count: number, work: () => Promise<void>): Promise<void> => {
      if (failed.has(task)) return;
      try {
        await this.#patiently(work);
      } catch (problem) {
        if (stop.aborted) throw problem;
        failed.add(task);
        this.#failed(task, problem, 'reconcile');
        if (failed.size === count) throw problem;
      }
    };
    return new Reconciler({
      ...this.#options,
      planning: reactive.planning,
      planner: reactive.planner,
      rate: reconcileRate,
      plan: async (plans, ids) => {
        await Promise.all(plans.map((one) => orFails(one, plans.length, () => drafter.plan(one, ids))));
        planned();
      },
      unmatch: (one, ids) => orFails(one, Infinity, () => drafter.unmatch(one, ids)),
    });
  }

  /** A database that does not answer is asked again, for as long as this instance leads. */
  async #patiently<T>(work: () => Promise<T>): Promise<T> {
    const { clock, stop, error } = this.#options;
    for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS)) {
      try {
        return await work();
      } catch (problem) {
        if (stop.aborted || !(problem instanceof StoreError && problem.transient)) throw problem;
        error(problem, 'reconcile');
        await pause(clock, waitMs, stop);
      }
    }
  }

  async #clean(planned: Planned): Promise<void> {
    const { clock, stop, log } = this.#options;
    const { task } = planned.plan;
    try {
      const total = await this.#cleanAll(planned.plan);
      if (stop.aborted) return;
      if (total > 0) log.info({ count: total }, `${task}: ${String(total)} tasks cleaned up`);
    } catch (problem) {
      this.#failed(task, problem, 'clean');
      return;
    }
    this.#succeeded(task);
    await this.#save(planned, { lastCleanedAt: new Date(clock.now()) });
  }

  async #cleanAll(plan: TaskPlan): Promise<number> {
    const { reactive, drafter, stop } = this.#options;
    let after: string | undefined;
    let total = 0;
    do {
      const page = { limit: CLEAN_PAGE, ...(after === undefined ? {} : { after }) };
      // In turn: a document that comes back between the look and the deletion would lose the task of its return.
      const cleaned = await this.#patiently(() =>
        drafter.inTurn(plan, () => reactive.planning.clean(plan, page)),
      );
      total += cleaned.deleted;
      after = cleaned.after;
    } while (after !== undefined && !stop.aborted);
    return total;
  }
}
