import type { Clock } from '../../../core/clock.js';
import { StoreError, TidemillError } from '../../../core/errors.js';
import type { TraceContext } from '../../../core/tracer.js';
import type { Change, PlanBatch, PlanStore, TaskPlan } from '../../../store/reactive/reactive.js';
import type { BlockedDocuments } from '../blocked-documents.js';
import { PlanBatches } from './plan-batches.js';

/** The planner, as its `ChangePlanner` sees it. */
export interface ChangePlannerHost {
  /** The minimum time for which the instance's own lease still holds. */
  readonly leaseLeftMs: number;
  /** Returns the plans in force on these collections of a database, or on all of them. */
  plansOn(database: string, collections?: readonly string[]): readonly TaskPlan[];
  /** The server refuses the statements of a task, whatever the documents are: its changes must be found later. */
  refused(plan: TaskPlan, problem: unknown): Promise<void>;
  error(error: unknown, where: string): void;
}

export interface ChangePlannerOptions {
  readonly host: ChangePlannerHost;
  readonly planning: PlanStore;
  readonly clock: Clock;
  readonly leaseMs: number;
  /** Keeps the documents that an open transaction blocks. */
  readonly blocked: Pick<BlockedDocuments, 'add'>;
}

/** A statement must end before another instance may lead: it gets this share of what is left of the lease. */
const STATEMENT_SHARE = 1 / 2;
/** Documents per statement of one task. */
const BATCH = 1_000;
/** How many unplannable documents of one batch are reported. */
const MOST_REPORTED = 3;

/** What a batch of changes says about one document. */
interface Gathered {
  readonly id: unknown;
  readonly written: boolean;
  readonly deleted: boolean;
  /** The document did not exist before, so it cannot have stopped matching. */
  readonly isNew: boolean;
}

/**
 * Turns ids into tasks, for live changes and for reconciliation alike. The tasks of a source share their statements. If
 * one fails, each task of that batch is planned by itself: a document or a task at fault does not hold up the others.
 * Statements on the same task run one at a time: two at once could write an older snapshot over a newer one.
 */
export class ChangePlanner {
  readonly #options: ChangePlannerOptions;
  readonly #turns = new Mutex();
  readonly #batches: PlanBatches;

  constructor(options: ChangePlannerOptions) {
    this.#options = options;
    this.#batches = new PlanBatches(options.clock);
  }

  /** Plans a batch of changes of one database, whatever their order. */
  async changes(database: string, changes: readonly Change[], trace?: TraceContext): Promise<void> {
    const byCollection = new Map<string, Map<string, Gathered>>();
    for (const change of changes) {
      const known = byCollection.get(change.collection) ?? new Map<string, Gathered>();
      known.set(change.key, gathered(known.get(change.key), change));
      byCollection.set(change.collection, known);
    }
    await all(
      [...byCollection].flatMap(([collection, gatheredChanges]) =>
        this.#grouped(this.#options.host.plansOn(database, [collection])).map((plans) =>
          this.#changes(plans, [...gatheredChanges.values()], trace),
        ),
      ),
    );
  }

  /** Plans these documents for one task, without looking for those that do not match any more. */
  plan(plan: TaskPlan, ids: readonly unknown[]): Promise<void> {
    return this.inTurn(plan, async () => {
      await this.#plan(plan, ids);
    });
  }

  /**
   * Plans these documents for several tasks of one source, as far as statements for all of them succeed. Returns the
   * tasks that are planned; the others must be planned one by one.
   */
  async planTogether(plans: readonly TaskPlan[], ids: readonly unknown[]): Promise<ReadonlySet<TaskPlan>> {
    const planned = new Set<TaskPlan>();
    const groups = this.#grouped(plans).filter(({ length }) => length > 1);
    await all(
      groups.map((group) =>
        this.#turns.run(namesOf(group), async () => {
          for (let rest = ids; rest.length > 0;) {
            const present = rest.slice(0, this.#batches.sizeOf(group));
            if (!(await this.#together(group, { present, left: [] }))) return;
            rest = rest.slice(present.length);
          }
          for (const plan of group) planned.add(plan);
        }),
      ),
    );
    return planned;
  }

  unmatch(plan: TaskPlan, ids: readonly unknown[]): Promise<void> {
    return this.inTurn(plan, async () => {
      await this.#unmatch(plan, ids);
    });
  }

  inTurn<T>(plan: TaskPlan, work: () => Promise<T>): Promise<T> {
    return this.#turns.run([plan.task], work);
  }

  #grouped(plans: readonly TaskPlan[]): readonly (readonly TaskPlan[])[] {
    return this.#options.planning.planTogether === undefined
      ? plans.map((plan) => [plan])
      : this.#batches.grouped(plans);
  }

  #changes(
    plans: readonly TaskPlan[],
    changes: readonly Gathered[],
    trace: TraceContext | undefined,
  ): Promise<void> {
    const [first, ...others] = plans;
    return this.#turns.run(namesOf(plans), async () => {
      if (first !== undefined && others.length === 0) {
        await this.#alone(first, changes, trace);
        return;
      }
      for (let rest = changes; rest.length > 0;) {
        const some = rest.slice(0, this.#batches.sizeOf(plans));
        await this.#changesTogether(plans, some, trace);
        rest = rest.slice(some.length);
      }
    });
  }

  async #changesTogether(
    plans: readonly TaskPlan[],
    changes: readonly Gathered[],
    trace: TraceContext | undefined,
  ): Promise<void> {
    const present = changes.filter(({ written }) => written).map(({ id }) => id);
    const left = plans.some(hasFilter)
      ? changes.filter(mayHaveLeft)
      : changes.filter(({ deleted }) => deleted);
    const batch: PlanBatch = { present, left: left.map(({ id }) => id) };
    if (await this.#together(plans, batch, trace)) {
      await all(plans.map((plan) => this.#own(plan, () => this.#clean(plan, leftOf(plan, changes)))));
      return;
    }
    const failing = new Set<TaskPlan>();
    const alone = async (plan: TaskPlan): Promise<void> => {
      failing.add(plan);
      if (await this.#alone(plan, changes, trace)) failing.delete(plan);
    };
    try {
      await all(plans.map(alone));
    } finally {
      this.#batches.failed(plans, failing);
    }
  }

  /** Returns false if the tasks have to be planned one by one. */
  async #together(plans: readonly TaskPlan[], batch: PlanBatch, trace?: TraceContext): Promise<boolean> {
    const { planning, clock } = this.#options;
    const began = clock.monotonic();
    const planned = (await planning.planTogether?.(plans, batch, this.#limitMs(), trace)) === true;
    this.#batches.took(plans, planned ? clock.monotonic() - began : Infinity);
    return planned;
  }

  /** Plans the changes for one task. Returns false if some of it could not be planned. */
  #alone(plan: TaskPlan, changes: readonly Gathered[], trace: TraceContext | undefined): Promise<boolean> {
    const present = changes.filter(({ written }) => written).map(({ id }) => id);
    return this.#own(plan, async () => {
      let works = true;
      for (const ids of batches(present)) works = (await this.#plan(plan, ids, trace)) && works;
      for (const ids of batches(leftOf(plan, changes))) works = (await this.#unmatch(plan, ids)) && works;
      return works;
    });
  }

  /** A task that cannot be planned for a reason of its own does not hold up the others. */
  async #own(plan: TaskPlan, work: () => Promise<boolean>): Promise<boolean> {
    try {
      return await work();
    } catch (problem) {
      if (problem instanceof StoreError && problem.transient) throw problem;
      await this.#options.host.refused(plan, problem);
      return false;
    }
  }

  async #plan(plan: TaskPlan, ids: readonly unknown[], trace?: TraceContext): Promise<boolean> {
    const { host, planning, blocked } = this.#options;
    const choked = await planning.plan(plan, ids, this.#limitMs(), trace);
    blocked.add(plan, choked);
    const poisoned = choked.filter((one) => !one.blocked);
    if (poisoned.length > 0) await planning.park(plan, poisoned);
    for (const { reason } of poisoned.slice(0, MOST_REPORTED)) {
      const message = `A document of task "${plan.task}" cannot be planned: ${reason}`;
      host.error(new TidemillError('UNPLANNABLE', message), 'plan');
    }
    return choked.length === 0;
  }

  async #unmatch(plan: TaskPlan, ids: readonly unknown[]): Promise<boolean> {
    const { planning, blocked } = this.#options;
    const held = await planning.unmatch(plan, ids, this.#limitMs());
    blocked.add(plan, held);
    await this.#clean(plan, ids);
    return held.length === 0;
  }

  async #clean(plan: TaskPlan, ids: readonly unknown[]): Promise<boolean> {
    if (plan.cleanup.keepForMs === 0 && ids.length > 0) await this.#options.planning.clean(plan, { ids });
    return true;
  }

  #limitMs(): number {
    const { host, leaseMs } = this.#options;
    const limitMs = Math.floor(Math.min(leaseMs, host.leaseLeftMs) * STATEMENT_SHARE);
    if (limitMs > 0) return limitMs;
    throw new StoreError('plan: the lease of this instance has ended.', { transient: true });
  }
}

const namesOf = (plans: readonly TaskPlan[]): readonly string[] => plans.map(({ task }) => task);
const hasFilter = ({ filter }: TaskPlan): boolean => filter !== undefined;
const mayHaveLeft = ({ deleted, isNew }: Gathered): boolean => deleted || !isNew;

/** Without a filter, a document stops matching only when it is deleted. */
const leftOf = (plan: TaskPlan, changes: readonly Gathered[]): readonly unknown[] =>
  changes.filter(hasFilter(plan) ? mayHaveLeft : ({ deleted }) => deleted).map(({ id }) => id);

/** Waits for all, and then throws the first error. */
async function all(work: readonly Promise<unknown>[]): Promise<void> {
  for (const result of await Promise.allSettled(work)) if (result.status === 'rejected') throw result.reason;
}

/**
 * Merges the changes of one document without relying on their order within a batch: a document that moves between
 * shards is inserted on one and deleted on the other, and the insertion may come first. A document that was both
 * written and deleted is checked for both.
 */
const gathered = (before: Gathered | undefined, { id, kind }: Change): Gathered => ({
  id,
  written: kind !== 'delete' || before?.written === true,
  deleted: kind === 'delete' || before?.deleted === true,
  isNew: before === undefined && kind === 'insert',
});

function batches<T>(items: readonly T[]): (readonly T[])[] {
  const count = Math.ceil(items.length / BATCH);
  return Array.from({ length: count }, (_, at) => items.slice(at * BATCH, (at + 1) * BATCH));
}

/** Runs one function at a time per key, in call order. One with several keys waits for its turn with each of them. */
class Mutex {
  readonly #tails = new Map<string, Promise<unknown>>();

  async run<T>(keys: readonly string[], work: () => Promise<T>): Promise<T> {
    const turn = Promise.all(keys.map((key) => this.#tails.get(key) ?? Promise.resolve())).then(work);
    const tail = turn.catch(() => undefined);
    for (const key of keys) this.#tails.set(key, tail);
    try {
      return await turn;
    } finally {
      for (const key of keys) if (this.#tails.get(key) === tail) this.#tails.delete(key);
    }
  }
}
