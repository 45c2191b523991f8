import { Backoff } from '../../../core/backoff.js';
import { pause, type Clock } from '../../../core/clock.js';
import type { Emitter } from '../../../core/emitter.js';
import { StoreError } from '../../../core/errors.js';
import type { Logger } from '../../../core/logger.js';
import type { Meter } from '../../../core/meter.js';
import type { ReactiveStore, Source, TaskPlan, TaskState, Term } from '../../../store/reactive/reactive.js';
import { nextTime } from '../../definition.js';
import type { BlockedDocuments } from '../blocked-documents.js';
import type { ChangePlanner } from '../changes/change-planner.js';
import type { TaskEvents } from '../../events.js';
import { Reconciler } from './reconciler.js';
import { Backoffs, RETRY_MS } from '../backoffs.js';
import type { Troubles } from '../troubles.js';
import { PageSize, ChoreTurns, type Chore } from './turns.js';

/** A plan in use, and what the cluster knows about its task. */
export interface Planned {
  readonly plan: TaskPlan;
  readonly definition: string;
  state: TaskState;
}

/** The planner, as its maintenance sees it. */
export interface MaintenanceHost {
  /** The plans in use, by task. */
  readonly plans: ReadonlyMap<string, Planned>;
  /** Wakes workers: work was planned. */
  planned(): void;
  /** Another instance leads. */
  overtaken(): void;
  /** Has the registry read again. */
  nudge(): void;
  /** Something is done, so `dueIn` may return another time. */
  recheck(): void;
  error(error: unknown, where: string): void;
}

export interface LeaderMaintenanceOptions {
  readonly host: MaintenanceHost;
  readonly reactive: ReactiveStore;
  readonly changes: ChangePlanner;
  /** Only a source whose feed is open may be reconciled, or changes made meanwhile would be missed. */
  readonly followers: { isOpen(database: string): boolean };
  readonly blocked: Pick<BlockedDocuments, 'keep'>;
  readonly troubles: Troubles;
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
}

/** How often the progress of a cleanup is stored. */
const SAVE_EVERY_MS = 1_000;
/** How long to wait before trying again after the planner's own state could not be written. */
const TROUBLE_MS = 2_000;

const sourceKey = ({ database = '', collection }: Source): string => `${database}\0${collection}`;
const cleanupKey = ({ task }: TaskPlan): string => `cleanup\0${task}`;

/**
 * The leader's maintenance, beside the live changes: reconciles sources when that was requested or is due, and deletes
 * tasks whose time is over. Reconciliations and cleanups take turns page by page, the smallest first, so that a small
 * collection never waits for a large one to end. Together they stay below `reconcileRate`.
 */
export class LeaderMaintenance {
  readonly #options: LeaderMaintenanceOptions;
  /** Tasks that failed for a reason of their own: they are retried later, and others do not wait for them. */
  readonly #backoffs: Backoffs;
  readonly #turns = new ChoreTurns();
  #working: Promise<void> | undefined;
  /** More work may be due by now. */
  #asked = false;
  readonly #reconciling = new Map<string, { readonly collection: string; readonly by: Reconciler }>();

  constructor(options: LeaderMaintenanceOptions) {
    this.#options = options;
    this.#backoffs = new Backoffs(options.clock);
  }

  /** The collections that are being reconciled, and how many of their documents have been processed. */
  get reconciling(): readonly { readonly collection: string; readonly processed: number }[] {
    return [...this.#reconciling.values()].map(({ collection, by }) => ({
      collection,
      processed: by.processed,
    }));
  }

  /** Begins work that is due, beside work in progress. */
  start(): void {
    this.#asked = true;
    this.#backoffs.wake();
    this.#working ??= this.#work().finally(() => {
      this.#working = undefined;
      if (this.#asked && !this.#options.stop.aborted) this.start();
    });
  }

  /** Resolves when the page in progress has ended. */
  async ended(): Promise<void> {
    await this.#working;
  }

  /** Milliseconds until the next reconciliation or cleanup is due, or may be tried again. */
  dueIn(): number {
    const { clock } = this.#options;
    const { plans } = this.#options.host;
    // Work that is due now is opened after the page in progress; `recheck` then makes the planner ask again.
    if (this.#asked) return Infinity;
    const times = [...plans.values()]
      .filter(({ plan }) => !this.#backoffs.isResting(plan.task))
      .flatMap((planned) => [
        this.#isWanted(planned) ? null : this.#reconcileAt(planned),
        this.#turns.has(cleanupKey(planned.plan)) ? null : this.#cleanAt(planned),
      ]);
    const next = Math.min(...times.map((time) => time?.getTime() ?? Infinity));
    return Math.min(this.#backoffs.nextIn(plans.keys()), Math.max(0, next - clock.now()));
  }

  async #work(): Promise<void> {
    const { stop, host } = this.#options;
    while (!stop.aborted) {
      try {
        if (this.#asked) await this.#open();
      } catch (problem) {
        if (!isOver(stop)) host.error(problem, 'plan');
        await this.#tryLater();
      }
      const chore = this.#turns.next();
      if (chore !== undefined) await this.#turn(chore);
      else if (!this.#asked) return;
    }
  }

  /** Waits, then has the registry read again, which retries what failed. */
  async #tryLater(): Promise<void> {
    const { clock, stop, host } = this.#options;
    await pause(clock, TROUBLE_MS, stop);
    host.nudge();
  }

  async #turn({ key, pages, isMeant, failed, over }: Chore): Promise<void> {
    const { clock, stop, reconcileRate } = this.#options;
    const began = clock.monotonic();
    try {
      const page = isMeant() ? await pages.next() : undefined;
      if (page?.done === false) {
        const restMs = (page.value / reconcileRate) * 1_000 - (clock.monotonic() - began);
        if (restMs > 1) await pause(clock, restMs, stop);
        return;
      }
    } catch (problem) {
      if (!stop.aborted) failed(problem);
    }
    this.#turns.delete(key);
    over();
  }

  /** Opens chores that are due and not in progress. */
  async #open(): Promise<void> {
    const { clock, host } = this.#options;
    this.#asked = false;
    const now = new Date(clock.now());
    const awake = [...host.plans.values()].filter(({ plan }) => !this.#backoffs.isResting(plan.task));
    for (const planned of awake) await this.#requestIfDue(planned, now);
    for (const group of this.#groups(awake)) await this.#openReconciliation(group);
    for (const planned of awake) if (this.#isCleaningDue(planned, now)) await this.#openCleanup(planned);
    host.recheck();
  }

  /** Groups the tasks to reconcile by their source. */
  #groups(awake: readonly Planned[]): Iterable<readonly Planned[]> {
    const groups = new Map<string, Planned[]>();
    for (const { plan } of awake) {
      // `#requestIfDue` and refreshes replace the state meanwhile, so read it again.
      const planned = this.#options.host.plans.get(plan.task);
      if (planned === undefined || !this.#isWanted(planned)) continue;
      const key = sourceKey(plan.source);
      if (this.#turns.has(key) || !this.#options.followers.isOpen(plan.source.database ?? '')) continue;
      groups.set(key, [...(groups.get(key) ?? []), planned]);
    }
    return groups.values();
  }

  async #openReconciliation(group: readonly Planned[]): Promise<void> {
    const [{ plan }] = group as [Planned];
    const key = sourceKey(plan.source);
    const failed = new Set<string>();
    const mark = group.map(({ plan: { task }, state }) => `${task}@${state.trigger}@${String(state.wanted)}`);
    const by = this.#reconciler(failed, group, mark.sort());
    this.#reconciling.set(key, { collection: plan.source.collection, by });
    this.#turns.add({
      key,
      size: await this.#sizeOf(plan.source),
      pages: this.#reconcile(group, by, failed),
      isMeant: () => group.some((one) => this.#isMeant(one)),
      failed: (problem) => {
        for (const { plan: one } of group)
          if (!failed.has(one.task)) this.#failed(one.task, problem, 'reconcile');
      },
      over: () => {
        this.#reconciling.delete(key);
        // The next refresh finds requests that came meanwhile.
        this.#options.host.nudge();
      },
    });
  }

  /** Returns the server's estimate; a source that cannot be counted goes last. */
  async #sizeOf(source: Source): Promise<number> {
    try {
      return await this.#options.reactive.planning.size(source);
    } catch {
      return Infinity;
    }
  }

  async #openCleanup(planned: Planned): Promise<void> {
    const { plan } = planned;
    const key = cleanupKey(plan);
    if (this.#turns.has(key)) return;
    this.#turns.add({
      key,
      size: await this.#sizeOf(plan.source),
      pages: this.#clean(planned),
      isMeant: () => this.#isMeant(planned),
      failed: (problem) => this.#failed(plan.task, problem, 'clean'),
      over: () => this.#options.host.recheck(),
    });
  }

  /** True if the task is still planned, by the same filter and projection. */
  #isMeant({ plan, state }: Planned): boolean {
    return this.#options.host.plans.get(plan.task)?.state.trigger === state.trigger;
  }

  #isWanted({ state }: Planned): boolean {
    return state.wanted > state.done;
  }

  #failed(task: string, problem: unknown, where: string): void {
    const { host, stop, troubles } = this.#options;
    if (stop.aborted) return;
    this.#backoffs.begin(task);
    troubles.begin(task, problem);
    host.error(problem, where);
  }

  #succeeded(task: string): void {
    this.#backoffs.end(task);
    this.#options.troubles.end(task);
  }

  #reconcileAt({ plan, state }: Planned): Date | null {
    if (plan.reconcileEvery === undefined || state.lastReconciledAt === undefined) return null;
    return nextTime(plan.reconcileEvery, state.lastReconciledAt);
  }

  #cleanAt({ plan, state }: Planned): Date | null {
    if (plan.cleanup.deleteWhen === 'never' || state.lastCleanedAt === undefined) return null;
    return nextTime(this.#options.cleanupInterval, state.lastCleanedAt);
  }

  /** A cleanup that was begun continues, whichever instance leads. A task that was never cleaned up is due at once. */
  #isCleaningDue(planned: Planned, now: Date): boolean {
    if (planned.plan.cleanup.deleteWhen === 'never') return false;
    if (planned.state.lastCleanedAt === undefined) return true;
    const at = this.#cleanAt(planned);
    return at !== null && at <= now;
  }

  async #requestIfDue(planned: Planned, now: Date): Promise<void> {
    const { wanted } = planned.state;
    const at = this.#reconcileAt(planned);
    if (at === null || at > now || this.#isWanted(planned)) return;
    await this.#save(planned, { wanted: wanted + 1, reason: 'reconcileEvery' });
  }

  /** Writes the given fields only: a refresh may have replaced the rest of the state meanwhile. */
  async #save({ plan: { task } }: Planned, fields: Partial<TaskState>): Promise<void> {
    const { host, reactive, term } = this.#options;
    const current = host.plans.get(task);
    if (current !== undefined) current.state = { ...current.state, ...fields };
    if (!(await reactive.planner.saveState(term, task, fields))) host.overtaken();
  }

  async *#reconcile(
    group: readonly Planned[],
    by: Reconciler,
    failed: ReadonlySet<string>,
  ): AsyncGenerator<number, void> {
    const { clock, blocked } = this.#options;
    const asked = group.map((planned) => ({ planned, wanted: planned.state.wanted }));
    yield* by.pages();
    await blocked.keep();
    const lastReconciledAt = new Date(clock.now());
    for (const { planned, wanted } of asked) {
      if (failed.has(planned.plan.task) || !this.#isMeant(planned)) continue;
      this.#succeeded(planned.plan.task);
      await this.#save(planned, { done: wanted, lastReconciledAt });
    }
    await by.complete();
  }

  /** A task whose statements are refused drops out (`failed`), and the others of its collection continue. */
  #reconciler(failed: Set<string>, group: readonly Planned[], mark: readonly string[]): Reconciler {
    const { host, reactive, changes, reconcileRate, stop } = this.#options;
    const dropsOut = (task: string): boolean =>
      failed.has(task) || !group.some((one) => one.plan.task === task && this.#isMeant(one));
    const orFails = async ({ task }: TaskPlan, work: () => Promise<void>): Promise<void> => {
      if (dropsOut(task)) {
        // It has missed a page, so this pass does not count for it, even if it comes back.
        failed.add(task);
        return;
      }
      try {
        await this.#patiently(work);
      } catch (problem) {
        if (stop.aborted) throw problem;
        failed.add(task);
        this.#failed(task, problem, 'reconcile');
        if (group.every((one) => dropsOut(one.plan.task))) throw problem;
      }
    };
    const options = {
      ...this.#options,
      planning: reactive.planning,
      planner: reactive.planner,
      rate: reconcileRate,
      plan: async (plans: readonly TaskPlan[], ids: readonly unknown[]): Promise<void> => {
        const meant = plans.filter(({ task }) => !dropsOut(task));
        const planned = await this.#patiently(() => changes.planTogether(meant, ids));
        const plan = async (one: TaskPlan): Promise<void> => {
          if (!planned.has(one)) await changes.plan(one, ids);
        };
        await Promise.all(plans.map((one) => orFails(one, () => plan(one))));
        host.planned();
      },
      unmatch: (one: TaskPlan, ids: readonly unknown[]): Promise<void> =>
        orFails(one, () => changes.unmatch(one, ids)),
    };
    const plans = group.map(({ plan }) => plan);
    const [{ source }] = plans as [TaskPlan];
    return new Reconciler(options, { source, plans, mark });
  }

  /** Retries transient errors for as long as this instance leads. */
  async #patiently<T>(work: () => Promise<T>): Promise<T> {
    const { clock, stop, host } = this.#options;
    for (const retry = new Backoff(RETRY_MS); ;) {
      try {
        return await work();
      } catch (problem) {
        if (stop.aborted || !(problem instanceof StoreError && problem.transient)) throw problem;
        host.error(problem, 'reconcile');
        await pause(clock, retry.next(), stop);
      }
    }
  }

  /** Continues from where an earlier leader stopped, at the rate of reconciliations. */
  async *#clean(planned: Planned): AsyncGenerator<number, void> {
    const { clock, log, reactive, changes, reconcileRate } = this.#options;
    const { plan, state } = planned;
    const pageSize = new PageSize(reconcileRate);
    let after = state.cleanedUpTo ?? undefined;
    let [total, savedAt] = [0, clock.monotonic()];
    do {
      const page = { limit: pageSize.size, ...(after === undefined ? {} : { after }) };
      const began = clock.monotonic();
      // In turn with planning: a document that comes back between the check and the deletion would lose its new task.
      const cleaned = await this.#patiently(() =>
        changes.inTurn(plan, () => reactive.planning.clean(plan, page)),
      );
      pageSize.took(clock.monotonic() - began);
      total += cleaned.deleted;
      after = cleaned.after;
      if (after !== undefined && clock.monotonic() - savedAt >= SAVE_EVERY_MS) {
        savedAt = clock.monotonic();
        await this.#save(planned, { cleanedUpTo: after });
      }
      if (after !== undefined) yield page.limit;
    } while (after !== undefined);
    if (total > 0) log.info({ count: total }, `${plan.task}: ${String(total)} tasks cleaned up`);
    this.#succeeded(plan.task);
    await this.#save(planned, { lastCleanedAt: new Date(clock.now()), cleanedUpTo: null });
  }
}

/** Reads the signal again after a wait; the compiler would assume the earlier value. */
const isOver = (stop: AbortSignal): boolean => stop.aborted;
