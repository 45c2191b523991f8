/**
 * The port of reactive tasks: what the leader, the workers and management ask of a database whose data is watched.
 * `TaskStore` (tasks.ts) runs tasks, `PlanStore` (plan.ts) turns documents into tasks, `PlannerStore` (planner.ts) keeps
 * what outlives a leader. The store evaluates filters and projections on the server: no document
 * reaches the leader. docs/architecture.md has the states of a task and the invariant of the resume point; ../port.ts
 * explains the words of the method comments.
 */
import type { ForgettingStore } from './forgetting.js';
import type { PlanStore, TaskPlan } from './plan.js';
import type { PlannerStore } from './planner.js';
import type { TaskStore } from './tasks.js';

export type { Source } from './source.js';
export type * from './plan.js';
export * from './feed.js';
export type * from './planner.js';
export * from './tasks.js';

/** Everything that a store with watchable data offers. */
export interface ReactiveStore<Tx = unknown> {
  /**
   * Names the collection of coordination documents. Only for MongoDB: throws an `OptionError` if the store is open or
   * was given another name, and in stores that have no such collection. Memory ignores it.
   * Caller: a mill with `reactive.globalsCollection`, before each `acquire`; the same name again is accepted.
   */
  useGlobals(collection: string): void;
  /**
   * Returns the plan if nothing is wrong with it as far as the definition alone tells; no call to the database.
   * Errors: an `OptionError` that begins with `where`.
   * Caller: `mill.reactiveTask()`; `prepare` checks again.
   */
  check(where: string, plan: TaskPlan): TaskPlan;
  /**
   * Asks the server whether it understands the definitions, and makes what their tasks need: collections, indexes,
   * triggers. A store that begins to note changes here also asks for reconciliation, in the same transaction.
   * Repeat: safe, also on several instances at once.
   * Errors: an `OptionError` if a definition, or a right, is at fault; a `StoreError` otherwise.
   * Caller: each instance for its own tasks, and the leader for those that are new to it; it leaves out what fails.
   */
  prepare(plans: readonly TaskPlan[]): Promise<void>;
  /**
   * Returns the tasks. `plans` returns those that have a handler here, and is asked anew with each call; where other
   * tasks live, the registry says. Cheap: mill, engine and metrics each call it.
   */
  tasks(plans: () => ReadonlyMap<string, TaskPlan>): TaskStore<Tx>;
  /** Documents → tasks. */
  readonly planning: PlanStore;
  /** What outlives a leader. */
  readonly planner: PlannerStore;
  /** Removes tasks that left the code. */
  readonly forgetting: ForgettingStore;
}
