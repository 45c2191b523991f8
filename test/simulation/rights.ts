import { StoreError } from '../../src/core/errors.js';
import type { TaskPlan } from '../../src/store/reactive/reactive.js';
import type { SimulatedProcess } from './process.js';
import type { Scheduler } from './scheduler.js';

interface Denial {
  readonly task: string;
  /** Undefined: denied to all processes. */
  readonly process: SimulatedProcess | undefined;
  readonly until: number;
}

/** What the database lets processes prepare. A right may be missing for a while, for one process or for all. */
export class Rights {
  readonly #scheduler: Scheduler;
  #denials: Denial[] = [];

  constructor(scheduler: Scheduler) {
    this.#scheduler = scheduler;
  }

  deny(task: string, forMs: number, process?: SimulatedProcess): void {
    this.#denials.push({ task, process, until: this.#scheduler.now + forMs });
  }

  restore(): void {
    this.#denials = [];
  }

  /** Fails like a server that refuses a statement, however often it is repeated. */
  check(by: SimulatedProcess, plans: readonly TaskPlan[]): void {
    const { now } = this.#scheduler;
    const denied = this.#denials.find(
      ({ task, process, until }) =>
        now < until && (process === undefined || process === by) && plans.some((plan) => plan.task === task),
    );
    if (denied !== undefined)
      throw new StoreError(`prepare: ${by.name} has no right to watch for ${denied.task}.`, {
        transient: false,
      });
  }
}
