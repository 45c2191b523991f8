import { OptionError } from '../core/errors.js';
import { show } from '../core/options.js';
import type { TaskPlan } from '../store/reactive/reactive.js';
import type { CompiledTask } from './definition.js';

/** The reactive tasks that have a handler in this process. */
export class Definitions {
  readonly #tasks = new Map<string, CompiledTask>();
  readonly #plans = new Map<string, TaskPlan>();

  get tasks(): ReadonlyMap<string, CompiledTask> {
    return this.#tasks;
  }

  get plans(): ReadonlyMap<string, TaskPlan> {
    return this.#plans;
  }

  add(task: CompiledTask): void {
    const { plan } = task;
    if (this.#tasks.has(plan.task)) {
      throw new OptionError(
        `reactiveTask(${show(plan.task)}): this task is already defined; give each task its own name.`,
      );
    }
    this.#tasks.set(plan.task, task);
    this.#plans.set(plan.task, plan);
  }

  /** Removes a task whose definition the store refused. */
  remove(task: string): void {
    this.#tasks.delete(task);
    this.#plans.delete(task);
  }

  /** Retry policies by name, for the instance that reclaims this instance's tasks after a crash. */
  policies(): Readonly<Record<string, unknown>> {
    return Object.fromEntries(
      [...this.#tasks].map(([name, { retryPolicy }]) => [`task:${name}`, retryPolicy]),
    );
  }
}
