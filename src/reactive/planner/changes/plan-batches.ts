import type { Clock } from '../../../core/clock.js';
import type { TaskPlan } from '../../../store/reactive/reactive.js';
import { PageSize } from '../chores/turns.js';

/** A longer list of tasks is divided: a statement must fit into the server's limits for locks, stages and memory. */
const MOST_TOGETHER = 100;
/** How long a task that failed while others succeeded is planned by itself. */
const APART_MS = 60_000;
/** How many tasks the first statement may write. How long it takes tells how many the next one may. */
const FIRST_WRITES = 2_000;

/**
 * Which tasks of a source are planned together, and for how many documents at a time. A task that fails on some
 * documents is set apart for a while, so that the others need not be planned twice.
 */
export class PlanBatches {
  readonly #clock: Pick<Clock, 'monotonic'>;
  /** Until when a task is planned by itself. */
  readonly #apart = new Map<string, number>();
  readonly #sizes = new Map<string, PageSize>();

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock;
  }

  /** Divides the tasks of one source into groups whose statements they share. */
  grouped(plans: readonly TaskPlan[]): readonly (readonly TaskPlan[])[] {
    const now = this.#clock.monotonic();
    for (const [task, until] of this.#apart) if (until <= now) this.#apart.delete(task);
    const together = plans.filter(({ task }) => !this.#apart.has(task));
    const groups = Array.from({ length: Math.ceil(together.length / MOST_TOGETHER) }, (_, at) =>
      together.slice(at * MOST_TOGETHER, (at + 1) * MOST_TOGETHER),
    );
    return [...groups, ...plans.filter(({ task }) => this.#apart.has(task)).map((plan) => [plan])];
  }

  /** Planned one by one, some tasks of a group failed. If all of them did, setting one apart would not help. */
  failed(plans: readonly TaskPlan[], failing: ReadonlySet<TaskPlan>): void {
    if (failing.size === plans.length) return;
    const until = this.#clock.monotonic() + APART_MS;
    for (const { task } of failing) this.#apart.set(task, until);
  }

  /** How many documents to plan with one statement. */
  sizeOf(plans: readonly TaskPlan[]): number {
    return this.#size(plans).size;
  }

  /** How long the last statement took; `Infinity` if it failed, which may be due to its size. */
  took(plans: readonly TaskPlan[], ms: number): void {
    this.#size(plans).took(ms);
  }

  #size(plans: readonly TaskPlan[]): PageSize {
    const { database = '', collection } = plans[0]?.source ?? { collection: '' };
    const key = JSON.stringify([database, collection]);
    const size = this.#sizes.get(key) ?? new PageSize(Infinity, Math.floor(FIRST_WRITES / plans.length));
    this.#sizes.set(key, size);
    return size;
  }
}
