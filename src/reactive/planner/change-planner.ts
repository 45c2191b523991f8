import { StoreError, TidemillError } from '../../core/errors.js';
import type { TraceContext } from '../../core/tracer.js';
import type { Change, PlanStore, TaskPlan } from '../../store/reactive.js';
import type { BlockedDocuments } from './blocked-documents.js';

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
  readonly leaseMs: number;
  /** Keeps the documents that an open transaction blocks. */
  readonly blocked: Pick<BlockedDocuments, 'add'>;
}

/** A statement must end before another instance may lead: it gets this share of what is left of the lease. */
const STATEMENT_SHARE = 1 / 2;
/** Documents per statement. */
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
 * Turns ids into tasks, one statement per task and batch, for live changes and for reconciliation alike. Statements on
 * the same task run one at a time: two at once could write an older snapshot over a newer one.
 */
export class ChangePlanner {
  readonly #options: ChangePlannerOptions;
  readonly #turns = new Mutex();

  constructor(options: ChangePlannerOptions) {
    this.#options = options;
  }

  /** Plans a batch of changes of one database, whatever their order. */
  async changes(database: string, changes: readonly Change[], trace?: TraceContext): Promise<void> {
    const byCollection = new Map<string, Map<string, Gathered>>();
    for (const change of changes) {
      const known = byCollection.get(change.collection) ?? new Map<string, Gathered>();
      known.set(change.key, gathered(known.get(change.key), change));
      byCollection.set(change.collection, known);
    }
    const results = await Promise.allSettled(
      [...byCollection].flatMap(([collection, gatheredChanges]) =>
        this.#options.host
          .plansOn(database, [collection])
          .map((plan) => this.#changesOf(plan, [...gatheredChanges.values()], trace)),
      ),
    );
    for (const result of results) if (result.status === 'rejected') throw result.reason;
  }

  /**
   * Plans the changes for one task. A task that cannot be planned for a reason of its own does not hold up the others.
   */
  async #changesOf(
    plan: TaskPlan,
    changes: readonly Gathered[],
    trace: TraceContext | undefined,
  ): Promise<void> {
    try {
      await this.#changes(plan, changes, trace);
    } catch (problem) {
      if (problem instanceof StoreError && problem.transient) throw problem;
      await this.#options.host.refused(plan, problem);
    }
  }

  #changes(plan: TaskPlan, changes: readonly Gathered[], trace: TraceContext | undefined): Promise<void> {
    const present = changes.filter(({ written }) => written).map(({ id }) => id);
    // Without a filter, a document stops matching only when it is deleted.
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
    const { host, planning, blocked } = this.#options;
    const choked = await planning.plan(plan, ids, this.#limitMs(), trace);
    blocked.add(plan, choked);
    const poisoned = choked.filter((one) => !one.blocked);
    if (poisoned.length === 0) return;
    await planning.park(plan, poisoned);
    for (const { reason } of poisoned.slice(0, MOST_REPORTED)) {
      const message = `A document of task "${plan.task}" cannot be planned: ${reason}`;
      host.error(new TidemillError('UNPLANNABLE', message), 'plan');
    }
  }

  async #unmatch(plan: TaskPlan, ids: readonly unknown[]): Promise<void> {
    const { planning, blocked } = this.#options;
    blocked.add(plan, await planning.unmatch(plan, ids, this.#limitMs()));
    if (plan.cleanup.keepForMs === 0) await planning.clean(plan, { ids });
  }

  #limitMs(): number {
    const { host, leaseMs } = this.#options;
    const limitMs = Math.floor(Math.min(leaseMs, host.leaseLeftMs) * STATEMENT_SHARE);
    if (limitMs > 0) return limitMs;
    throw new StoreError('plan: the lease of this instance has ended.', { transient: true });
  }
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

/** Runs one function at a time per key, in call order. */
class Mutex {
  readonly #tails = new Map<string, Promise<unknown>>();

  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const before = this.#tails.get(key) ?? Promise.resolve();
    const turn = before.then(work, work);
    const tail = turn.catch(() => undefined);
    this.#tails.set(key, tail);
    try {
      return await turn;
    } finally {
      if (this.#tails.get(key) === tail) this.#tails.delete(key);
    }
  }
}
