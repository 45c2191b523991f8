import { StoreError, TidemillError } from '../../core/errors.js';
import type { TraceContext } from '../../core/tracer.js';
import type { Change, PlanStore, Poisoned, TaskPlan } from '../../store/reactive.js';
import { Mutex } from './mutex.js';

export interface ChangePlannerOptions {
  readonly planning: PlanStore;
  /** The plans in force on one collection. */
  readonly plansOn: (database: string, collection: string) => readonly TaskPlan[];
  readonly leaseMs: number;
  /** How long the instance's own lease holds at least. */
  readonly leaseLeftMs: () => number;
  /** Documents whose tasks cannot be written just now. */
  readonly blocked: (plan: TaskPlan, choked: readonly Poisoned[]) => void;
  /** The server refuses the statements of a task, whatever the documents are: its changes are to be found later. */
  readonly refused: (plan: TaskPlan, problem: unknown) => Promise<void>;
  readonly error: (error: unknown) => void;
}

/** A statement must be over before another instance may lead: it gets this part of what is left of the lease. */
const STATEMENT_SHARE = 1 / 2;
/** Documents that one statement plans. */
const BATCH = 1_000;
/** Documents of one batch that are reported one by one. */
const MOST_REPORTED = 3;

/** What a batch says of one document. */
interface Gathered {
  readonly id: unknown;
  readonly written: boolean;
  readonly deleted: boolean;
  /** It was not there before, so it cannot have left anything. */
  readonly isNew: boolean;
}

/**
 * Turns ids into tasks, one statement per task and batch, for live changes and for reconciliation alike. Two statements
 * on one task at once could write an older snapshot over a newer one, so they take turns.
 */
export class ChangePlanner {
  readonly #options: ChangePlannerOptions;
  readonly #turns = new Mutex();

  constructor(options: ChangePlannerOptions) {
    this.#options = options;
  }

  /** Plans what a batch of changes of one database says, whatever their order. */
  async changes(database: string, changes: readonly Change[], trace?: TraceContext): Promise<void> {
    const byCollection = new Map<string, Map<string, Gathered>>();
    for (const change of changes) {
      const known = byCollection.get(change.collection) ?? new Map<string, Gathered>();
      known.set(change.key, gathered(known.get(change.key), change));
      byCollection.set(change.collection, known);
    }
    const results = await Promise.allSettled(
      [...byCollection].flatMap(([collection, gatheredChanges]) =>
        this.#options
          .plansOn(database, collection)
          .map((plan) => this.#changesOf(plan, [...gatheredChanges.values()], trace)),
      ),
    );
    for (const result of results) if (result.status === 'rejected') throw result.reason;
  }

  /** A task that cannot be planned for a reason of its own does not hold up the others. */
  async #changesOf(
    plan: TaskPlan,
    changes: readonly Gathered[],
    trace: TraceContext | undefined,
  ): Promise<void> {
    try {
      await this.#changes(plan, changes, trace);
    } catch (problem) {
      if (problem instanceof StoreError && problem.transient) throw problem;
      await this.#options.refused(plan, problem);
    }
  }

  #changes(plan: TaskPlan, changes: readonly Gathered[], trace: TraceContext | undefined): Promise<void> {
    const present = changes.filter(({ written }) => written).map(({ id }) => id);
    // Without a filter only a deletion takes a document out of it.
    const left = changes
      .filter(({ deleted, isNew }) => deleted || (!isNew && plan.filter !== undefined))
      .map(({ id }) => id);
    return this.inTurn(plan, async () => {
      for (const ids of batches(present)) await this.#plan(plan, ids, trace);
      for (const ids of batches(left)) await this.#unmatch(plan, ids);
    });
  }

  plan(plan: TaskPlan, ids: readonly unknown[]): Promise<void> {
    return this.inTurn(plan, () => this.#plan(plan, ids));
  }

  unmatch(plan: TaskPlan, ids: readonly unknown[]): Promise<void> {
    return this.inTurn(plan, () => this.#unmatch(plan, ids));
  }

  inTurn<T>({ task }: TaskPlan, work: () => Promise<T>): Promise<T> {
    return this.#turns.run(task, work);
  }

  async #plan(plan: TaskPlan, ids: readonly unknown[], trace?: TraceContext): Promise<void> {
    const { planning, blocked, error } = this.#options;
    const choked = await planning.plan(plan, ids, this.#limitMs(), trace);
    blocked(plan, choked);
    const poisoned = choked.filter((one) => !one.blocked);
    if (poisoned.length === 0) return;
    await planning.park(plan, poisoned);
    for (const { reason } of poisoned.slice(0, MOST_REPORTED)) {
      const message = `A document of task "${plan.task}" cannot be planned: ${reason}`;
      error(new TidemillError('UNPLANNABLE', message));
    }
  }

  async #unmatch(plan: TaskPlan, ids: readonly unknown[]): Promise<void> {
    const { planning, blocked } = this.#options;
    blocked(plan, await planning.unmatch(plan, ids, this.#limitMs()));
    if (plan.cleanup.keepForMs === 0) await planning.clean(plan, { ids });
  }

  #limitMs(): number {
    const { leaseMs, leaseLeftMs } = this.#options;
    const limitMs = Math.floor(Math.min(leaseMs, leaseLeftMs()) * STATEMENT_SHARE);
    if (limitMs > 0) return limitMs;
    throw new StoreError('plan: the lease of this instance has ended.', { transient: true });
  }
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
  const count = Math.ceil(items.length / BATCH);
  return Array.from({ length: count }, (_, at) => items.slice(at * BATCH, (at + 1) * BATCH));
}
