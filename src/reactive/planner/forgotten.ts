import type { ReactiveStore, TaskPlan } from '../../store/reactive/reactive.js';
import type { ChangePlanner } from './changes/change-planner.js';
import type { Planned } from './chores/leader-maintenance.js';

export interface ForgottenTasksOptions {
  readonly reactive: ReactiveStore;
  readonly changes: Pick<ChangePlanner, 'inTurn'>;
}

const BATCH = 1_000;

/**
 * A task is forgotten while this leader may still plan it: what it planned after the records were deleted must go as
 * well. So it remembers plans that it stopped using because the cluster forgot their state, and deletes their records
 * once the definition is gone, too.
 */
export class ForgottenTasks {
  readonly #options: ForgottenTasksOptions;
  readonly #dropped = new Map<string, Planned>();

  constructor(options: ForgottenTasksOptions) {
    this.#options = options;
  }

  /** Called when `next` has taken the place of `before`; `known` are the tasks that have a state. */
  async sweep(
    before: ReadonlyMap<string, Planned>,
    next: ReadonlyMap<string, Planned>,
    known: ReadonlySet<string>,
  ): Promise<void> {
    for (const [task, planned] of before)
      if (!next.has(task) && !known.has(task)) this.#dropped.set(task, planned);
    for (const task of next.keys()) this.#dropped.delete(task);
    if (this.#dropped.size === 0) return;
    const names = [...this.#dropped].map(([task, { definition }]) => ({ task, definition }));
    const defined = await this.#options.reactive.planner.plans(names);
    const still = new Set(defined.map(({ plan }) => plan.task));
    for (const [task, { plan }] of this.#dropped) {
      if (still.has(task)) continue;
      await this.#deleteRecords(plan);
      this.#dropped.delete(task);
    }
  }

  /** In turn with planning, so that no statement of this leader comes later. */
  async #deleteRecords(plan: TaskPlan): Promise<void> {
    const { reactive, changes } = this.#options;
    for (let deleted = BATCH; deleted === BATCH;)
      deleted = await changes.inTurn(plan, () =>
        reactive.forgetting.deleteRecords(plan.task, BATCH, plan.source),
      );
  }
}
